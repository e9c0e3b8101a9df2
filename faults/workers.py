"""Worker processes for campaigns: started afresh, since Polars does not survive a fork.

Law: when the block ends, however it ends, its workers are gone; and they are gone when this process
is killed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from typing import Any

PROCESSES = 2


@contextmanager
def workers(*start: Any, processes: int = PROCESSES) -> Iterator[ProcessPoolExecutor]:
    """Give a pool of processes, each with one Polars thread.

    Args:
        start: If given, a function that each worker calls first, and its arguments.
        processes: How many.
    """
    before = os.environ.get("POLARS_MAX_THREADS")
    os.environ["POLARS_MAX_THREADS"] = "1"
    pool = ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_begin, initargs=start
    )
    try:
        yield pool
    finally:
        if before is None:
            del os.environ["POLARS_MAX_THREADS"]
        else:
            os.environ["POLARS_MAX_THREADS"] = before
        pool.shutdown(cancel_futures=True)


def _begin(*start: Any) -> None:
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if start:
        start[0](*start[1:])


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
