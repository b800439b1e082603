"""Work of many heads in threads: the compiled kernels release the GIL."""

from concurrent.futures import ThreadPoolExecutor, as_completed

from threadpoolctl import threadpool_limits

__all__ = ["in_threads"]


def in_threads(function, items, workers, progress, label):
    """Map in threads, in order; the compiled kernels release the GIL. Stops at the first error.

    Matrix products use one thread each: more would compete, and sums could depend on how many.
    """
    pool = ThreadPoolExecutor(workers)
    with threadpool_limits(1, user_api="blas"):
        try:
            futures = [pool.submit(function, item) for item in items]
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                if progress:
                    progress(done, len(items), label)
            return [future.result() for future in futures]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
