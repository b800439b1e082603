"""Units to workers: processes of this machine or of a Dask cluster, through joblib."""

import contextlib
import importlib.util
import sys
from pathlib import Path

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool, TerminatedWorkerError

from h2o_theory.errors import BadArgument, MissingDependency
from h2o_theory.store.identity import local_files
from h2o_theory.sweep.unit import run_unit

__all__ = ["execute"]

_DEATHS = (BrokenProcessPool, TerminatedWorkerError)
_DEATH = "WorkerDied: the process that ran the cell ended"
_CAREFUL = 4
"""Units in a batch once a worker has died."""


def execute(units, workers, dask):
    """Run units in any order; yields the list of results of each as it comes.

    A worker that dies (killed, out of memory, ``os._exit``) takes the units of the others with
    it: what is left is then run in small batches, a batch that dies unit by unit, and a unit that
    dies by halves, until the cells that kill their worker are found. They fail; the others run.

    Parameters
    ----------
    units : list of Unit
    workers : int
        Processes, without ``dask``.
    dask : str or None
        Address of a scheduler.
    """
    if not units:
        return
    _pickle_by_value(units)
    with _backend(workers, dask) as deaths:
        yield from _in_batches(units, len(units), deaths)


def _in_batches(units, size, deaths):
    for first in range(0, len(units), size):
        batch, done = units[first : first + size], set()
        try:
            for index, results in _parallel(batch):
                done.add(index)
                yield results
        except deaths:
            left = [unit for index, unit in enumerate(batch) if index not in done]
            if size > 1:
                yield from _in_batches(left, _CAREFUL if size > _CAREFUL else 1, deaths)
            elif len(left[0].cells) > 1:
                yield from _in_batches(left[0].halves(), 1, deaths)
            else:
                yield [(left[0].cells[0].key, None, _DEATH)]


def _parallel(units):
    jobs = (joblib.delayed(_numbered)(index, unit) for index, unit in enumerate(units))
    return joblib.Parallel(return_as="generator_unordered", batch_size=1)(jobs)


def _numbered(index, unit):
    return index, run_unit(unit)


@contextlib.contextmanager
def _backend(workers, dask):
    """joblib set up for loky or Dask; yields the exceptions by which a dead worker shows."""
    if dask is None:
        with joblib.parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
            yield _DEATHS
        return
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise MissingDependency(
            "Dask is not installed", where="--dask", hint="Run: pip install 'h2o-theory[cluster]'"
        ) from None
    try:
        client = Client(dask, timeout="5s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise BadArgument(
            "no Dask scheduler answers there",
            where="--dask",
            got=dask,
            expected="an address such as tcp://host:8786",
            hint=str(error).splitlines()[0] if str(error) else "",
        ) from None
    from h2o_theory.sweep.cluster import ClusterBackend

    with client, joblib.parallel_config(ClusterBackend(client=client)):
        yield (*_DEATHS, KilledWorker)


def _pickle_by_value(units):
    """A user's class travels with its code, as workers may not be able to import it."""
    for unit in units:
        for given in unit.policies.values():
            module = sys.modules.get(type(given).__module__)
            if isinstance(given, str) or module is None or _ours(module):
                continue
            for own in _with_helpers(module):
                for pickler in ("joblib.externals.cloudpickle", "cloudpickle"):
                    if importlib.util.find_spec(pickler):
                        importlib.import_module(pickler).register_pickle_by_value(own)


def _with_helpers(module):
    """A user's module and those of the user's that it imports."""
    file = getattr(module, "__file__", None)
    files = local_files(file) if file else {}
    loaded = [found for found in list(sys.modules.values()) if getattr(found, "__file__", None)]
    return [module, *(found for found in loaded if Path(found.__file__).resolve() in files)]


def _ours(module):
    return module.__name__.split(".")[0] in ("h2o_theory", "__main__")
