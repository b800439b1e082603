"""joblib's Dask backend, with a dead worker noticed."""

from joblib._dask import DaskDistributedBackend

__all__ = ["ClusterBackend"]


class ClusterBackend(DaskDistributedBackend):
    """The backend as joblib has it, but for two things.

    A cluster of one core, as while a dead worker is replaced, is used like any other; joblib would
    run the work in the calling process. And when Dask gives a task up because its worker died,
    joblib 1.6 stores the exception where its generators do not look, and they wait for ever; here
    it takes the way of a result, and is raised where that is taken out.
    """

    def effective_n_jobs(self, n_jobs):
        """At least 2, so that joblib submits its work."""
        return max(super().effective_n_jobs(n_jobs), 2)

    def submit(self, func, callback=None):
        """Submit a batch; an exception of Dask's reaches ``callback`` like a result."""
        future = super().submit(func, callback)
        future.add_done_callback(lambda done: done.exception() and callback(done.exception()))
        return future

    def retrieve_result_callback(self, out):
        """The results of a batch; raises what Dask gave in their place."""
        if isinstance(out, Exception):
            raise out
        return super().retrieve_result_callback(out)
