"""The manifest of a trace that is being written: appended, locked, and taken up again."""

import os
from collections import deque

from h2o_theory.errors import OutputExists
from h2o_theory.store.lock import try_lock
from h2o_theory.trace.manifest import MANIFEST, listed, to_line

__all__ = ["Ledger"]


class Ledger:
    """Appends lines to ``manifest.jsonl``, each flushed to the disk before the next step.

    Opening takes a lock that the system drops when the process ends, however it ends. Lines that
    are already there are expected to come again, in their order.

    Attributes
    ----------
    entries : list of dict
        Segments written or kept so far.

    Raises
    ------
    OutputExists
        If another process holds the lock.
    """

    def __init__(self, folder):
        self._folder, self.entries, self._end = folder, [], 0
        self._file = open(folder / MANIFEST, "a+b")
        if not try_lock(self._file):
            self._file.close()
            raise OutputExists(
                "another process is recording there",
                where=folder,
                hint="Wait for it, or choose another folder",
            )
        self._file.seek(0)
        self._expected = deque(listed(self._file.read()))

    def close(self):
        """Drop the lock; the file stays as it is."""
        self._file.close()

    def discard_unlisted(self):
        """Cut a half-appended line, and delete every file that no line lists."""
        self._cut(self._expected[-1][1] if self._expected else 0)
        known = {entry["file"] for entry, _ in self._expected} | {MANIFEST, "spec.json"}
        for file in self._folder.iterdir():
            if file.name not in known:
                file.unlink()

    def expects(self, entry):
        """Whether this very segment comes next among those that are already there."""
        return bool(self._expected) and self._expected[0][0] == entry

    def keep(self):
        """Take the expected segment as written."""
        entry, self._end = self._expected.popleft()
        self.entries.append(entry)

    def drop_expected(self):
        """Forget the segments that are still expected: first their lines, then their files."""
        if not self._expected:
            return
        self._cut(self._end)
        for entry, _ in self._expected:
            (self._folder / entry["file"]).unlink(missing_ok=True)
        self._expected.clear()

    def append(self, entry):
        """Add one line, on disk when this returns."""
        line = to_line(entry)
        try:
            self._file.write(line)
            self._flush()
        except OSError:
            # What is still buffered would be written again on closing.
            self._file.close()
            raise
        self._end += len(line)
        if entry["kind"] == "segment":
            self.entries.append(entry)

    def _cut(self, end):
        self._file.truncate(end)
        self._flush()

    def _flush(self):
        self._file.flush()
        os.fsync(self._file.fileno())
