"""Processor time of this process and all below it, sampled from a thread.

Law: a process that ends between two samples keeps what it had at the last one, so a total never
falls.
"""

import os
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass

import psutil

SAMPLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Processor seconds until a time: of this tree, and of the whole machine."""

    at: float
    tree: float
    machine: float


class CpuSampler:
    """Samples from its start to its end; used with `with`."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._seen: dict[int, float] = {}
        self._root = psutil.Process(os.getpid())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-cpu", daemon=True)

    def __enter__(self) -> "CpuSampler":
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        for process in [self._root, *self._root.children(recursive=True)]:
            try:
                spent = process.cpu_times()
            except psutil.Error:
                continue
            self._seen[process.pid] = max(
                float(spent.user + spent.system), self._seen.get(process.pid, 0.0)
            )
        all_of_it = psutil.cpu_times()
        busy = all_of_it.user + all_of_it.nice + all_of_it.system
        self.samples.append(
            Sample(at=time.time(), tree=sum(self._seen.values()), machine=float(busy))
        )


def cores_between(samples: list[Sample], begin: float, end: float) -> tuple[float, float]:
    """Return how many cores the tree and all others kept busy between two times.

    >>> two = [Sample(at=0.0, tree=0.0, machine=0.0), Sample(at=10.0, tree=5.0, machine=8.0)]
    >>> cores_between(two, 0.0, 10.0)
    (0.5, 0.3)
    """
    first, last = _at(samples, begin), _at(samples, end)
    seconds = max(last.at - first.at, 1e-9)
    own = (last.tree - first.tree) / seconds
    others = (last.machine - first.machine) / seconds - own
    return round(own, 6), round(max(0.0, others), 6)


def _at(samples: list[Sample], at: float) -> Sample:
    """Return the state at a time, between two samples by a straight line."""
    place = bisect_left(samples, at, key=lambda sample: sample.at)
    if place == 0 or place == len(samples):
        return samples[min(place, len(samples) - 1)]
    left, right = samples[place - 1], samples[place]
    share = (at - left.at) / (right.at - left.at)
    return Sample(
        at=at,
        tree=left.tree + share * (right.tree - left.tree),
        machine=left.machine + share * (right.machine - left.machine),
    )
