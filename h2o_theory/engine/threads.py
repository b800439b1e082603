"""Work of many heads in threads: the compiled kernels release the GIL."""

from concurrent.futures import ThreadPoolExecutor, as_completed

__all__ = ["in_threads"]


def in_threads(function, items, workers, progress, label):
    """Map in threads, in order; the compiled kernels release the GIL. Stops at the first error."""
    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(function, item) for item in items]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            if progress:
                progress(done, len(items), label)
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
