"""What results are kept in and known by: atomic files, locks, cells, identities, provenance."""

from h2o_theory.store.atomic import (
    new_file,
    new_folder,
    os_errors_named,
    require_writable,
    sync_folder,
    write_bytes,
)
from h2o_theory.store.cells import CellStore
from h2o_theory.store.identity import (
    LIVE_ROOMS,
    REPLAY_ROOMS,
    code_identity,
    identity,
    model_identity,
    policy_identity,
    text_identity,
)
from h2o_theory.store.lock import holds_output, lock_output
from h2o_theory.store.provenance import provenance, versions

__all__ = [
    "LIVE_ROOMS",
    "REPLAY_ROOMS",
    "CellStore",
    "code_identity",
    "holds_output",
    "identity",
    "lock_output",
    "model_identity",
    "new_file",
    "new_folder",
    "os_errors_named",
    "policy_identity",
    "provenance",
    "require_writable",
    "sync_folder",
    "text_identity",
    "versions",
    "write_bytes",
]
