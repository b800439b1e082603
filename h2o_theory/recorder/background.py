"""Segments written by a thread: hashing and syncing overlap with the model's next layers."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor

__all__ = ["BackgroundWriter"]

QUEUE = 2
"""Segments that may wait; a slow disk then holds the model back instead of filling memory."""


class BackgroundWriter:
    """Hands segments to their :class:`~h2o_theory.trace.TraceWriter` in order, one at a time.

    A failed write surfaces at the next :meth:`add` or at :meth:`finish`. Leaving the context
    waits for the segment being written and drops the others.
    """

    def __init__(self):
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="h2o-theory-writer")
        self._waiting = deque()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, writer, tensors, **details):
        """Queue one segment for a writer, with the arguments of its ``add_segment``."""
        while len(self._waiting) >= QUEUE:
            self._collect()
        self._waiting.append(self._pool.submit(writer.add_segment, tensors, **details))

    def finish(self):
        """Wait until every queued segment is on disk."""
        while self._waiting:
            self._collect()

    def _collect(self):
        self._waiting.popleft().result()
