"""Executors as resources: asks Spark for more, gives back what is not needed, notices losses.

All cluster managers of Spark answer the same calls (they share `CoarseGrainedSchedulerBackend`);
only standalone is tested. Laws: there is never less than one executor; an executor that is given
back has ended its tasks first; where Spark sizes the application itself (dynamic allocation),
nothing is asked for or given back here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.driver.resources import FixedSlots
from penstock.observe.events import ExecutorEvent, ExecutorNews
from penstock.spark.executors import UNLIMITED, Executor, Executors, SparkExecutors, sizing_of

if TYPE_CHECKING:
    from pyspark import SparkContext

RELEASE_AFTER_EPOCHS = 5
"""Executors are given back once so many epochs in a row could do without them."""
_PATIENCE_SECONDS = 5.0
"""How long the end of a query waits for the cluster manager."""
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Application:
    """What the queries of one Spark application share: their wants, and what was asked for."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    slots: dict[int, int] = field(default_factory=dict)
    requested: int | None = None


class SparkResources:
    """Slots on the executors of a Spark application."""

    def __init__(
        self,
        executors: Executors,
        *,
        most_executors: int | None = None,
        first_executors: int = UNLIMITED,
        sizing: bool = True,
        at_home: Callable[[], Mapping[str, int]] = dict,
        application: Application | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Look at the executors that there are.

        Args:
            executors: Spark's executors.
            most_executors: How many there may be; None for all that the cluster has.
            first_executors: How many the cluster manager gives without being asked.
            sizing: Whether executors may be asked for and given back.
            at_home: Tells how many instances are at home on each host.
            application: What is shared with other queries on the same executors.
            clock: Tells the time.
        """
        self._executors, self._most, self._sizing = executors, most_executors, sizing
        self._first, self._at_home, self._clock = first_executors, at_home, clock
        self._application = application or Application()
        self._mark: tuple[str, int] | None = None
        self._live: dict[str, Executor] = {}
        self._leaving: dict[str, Executor] = {}
        self._news: list[ExecutorEvent] = []
        self._seen_most = 0
        self._wanted: deque[int] = deque(maxlen=RELEASE_AFTER_EPOCHS)
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="penstock-executors")
        self._calling: Future[object] | None = None
        self._look()

    def slots(self) -> int:
        """Return how many tasks can run at the same time now."""
        return max(1, sum(self.slots_by_host().values()))

    def slots_by_host(self) -> dict[str, int]:
        """Return how many tasks each host can run at the same time now."""
        self._look()
        found: dict[str, int] = {}
        for executor in list(self._live.values()):
            found[executor.host] = found.get(executor.host, 0) + executor.slots
        return found

    def most(self) -> int:
        """Return how many slots there can be at most."""
        self._look()
        most = self._seen_most if self._most is None else self._most
        return max(most, 1) * self._slots_each()

    def ask(self, slots: int) -> None:
        """Ask for so many slots in all, or give some back; see `Resources.ask`."""
        self._look()
        self._application.slots[id(self)] = slots
        if not self._sizing or (self._calling is not None and not self._calling.done()):
            return
        wanted = self._fit(-(-sum(self._application.slots.values()) // self._slots_each()))
        self._wanted.append(wanted)
        peak = max(self._wanted)
        if wanted > self._target():
            self._call(self._grow, wanted)
        elif len(self._wanted) == RELEASE_AFTER_EPOCHS and peak < len(self._live):
            self._call(self._shrink, peak)

    def events(self) -> tuple[ExecutorEvent, ...]:
        """Return which executors have come and gone since the last call."""
        self._look()
        with self._application.lock:
            news, self._news = tuple(self._news), []
        return news

    def close(self) -> None:
        """Go back to the number of executors that there was, unless another query needs them."""
        with self._application.lock:
            self._application.slots.pop(id(self), None)
            alone = not self._application.slots
        if self._sizing and alone and self._application.requested is not None:
            with suppress(Exception):  # a cluster manager that is away keeps nobody from stopping
                restored = self._calls.submit(self._executors.request, self._first)
                restored.result(timeout=_PATIENCE_SECONDS)
            self._application.requested = None
        self._calls.shutdown(wait=False)

    def _slots_each(self) -> int:
        """Return how many slots an executor has; they are all alike."""
        return max([1, *(e.slots for e in list(self._live.values()))])

    def _fit(self, executors: int) -> int:
        most = UNLIMITED if self._most is None else self._most
        return max(1, min(executors, most))

    def _target(self) -> int:
        """Return how many executors there will be if nothing more is asked for."""
        requested = self._application.requested
        return self._first if requested is None else requested

    def _call(self, call: Callable[[int], object], number: int) -> None:
        """Speak to Spark beside the epochs: a master that is away keeps its callers for minutes."""
        self._calling = self._calls.submit(call, number)
        self._calling.add_done_callback(_log_failure)

    def _grow(self, total: int) -> None:
        everything = self._most is None and total >= self._seen_most
        self._request(UNLIMITED if everything else total)

    def _shrink(self, total: int) -> None:
        if not self._request(total):
            return
        with self._application.lock:
            live, at_home = list(self._live.values()), self._at_home()
            live.sort(key=lambda e: (at_home.get(e.host, 0), e.host, e.id))
            for executor in live[: len(live) - total]:
                if self._executors.release(executor.id):
                    self._leaves(executor)

    def _request(self, total: int) -> bool:
        granted = self._executors.request(total)
        many = "all executors that the cluster has" if total == UNLIMITED else f"{total} executors"
        _LOG.info("asked Spark for %s%s", many, "" if granted else ", which it does not give")
        if granted:
            self._application.requested = total
        return granted

    def _look(self) -> None:
        """Compare the executors that there are with those that were there."""
        mark = self._executors.mark()
        if mark == self._mark:
            return
        with self._application.lock:
            found = self._executors.registered()
            for executor in found.values():
                if executor.id not in self._live and executor.id not in self._leaving:
                    self._comes(executor)
            for executor in list(self._live.values()):
                if executor.id not in found:
                    self._goes(executor, "lost")
                elif self._executors.decommissioning(executor.id):
                    self._leaves(executor)
            for executor in list(self._leaving.values()):
                if executor.id not in found:
                    self._goes(executor, "released")
            self._seen_most = max(self._seen_most, len(self._live))
            self._mark = mark if set(filter(None, mark[0].split(","))) == set(found) else None

    def _comes(self, executor: Executor) -> None:
        self._live[executor.id] = executor
        self._tell(executor, "added")

    def _leaves(self, executor: Executor) -> None:
        if self._live.pop(executor.id, None) is not None:
            self._leaving[executor.id] = executor
            self._tell(executor, "decommissioning")

    def _goes(self, executor: Executor, what: ExecutorNews) -> None:
        self._live.pop(executor.id, None)
        self._leaving.pop(executor.id, None)
        self._tell(executor, what)

    def _tell(self, executor: Executor, what: ExecutorNews) -> None:
        level = logging.WARNING if what == "lost" else logging.INFO
        _LOG.log(level, "executor %s on %s: %s", executor.id, executor.host, what)
        self._news.append(
            ExecutorEvent(at=self._clock(), executor=executor.id, host=executor.host, what=what)
        )


_APPLICATIONS: dict[str, Application] = {}


def resources_of(
    context: SparkContext,
    *,
    most_executors: int,
    sizing: bool,
    at_home: Callable[[], Mapping[str, int]],
) -> SparkResources | FixedSlots:
    """Return the resources of a Spark context: its executors, or the slots of local mode.

    Args:
        context: Spark.
        most_executors: ``spark.penstock.maxExecutors``; 0 if it is not set.
        sizing: Whether the query may ask for executors and give them back.
        at_home: Tells how many instances are at home on each host.
    """
    master, settings = str(context.master), context.getConf()
    if master == "local" or master.startswith("local["):
        return FixedSlots(context.defaultParallelism)
    rules = sizing_of(master, settings.get, most_executors)
    if sizing and not rules.ours:
        _LOG.warning("Spark sizes the application itself (dynamicAllocation), so Penstock does not")
    return SparkResources(
        SparkExecutors(context),
        most_executors=rules.most_executors,
        first_executors=rules.first_executors,
        sizing=sizing and rules.ours,
        at_home=at_home,
        application=_APPLICATIONS.setdefault(str(context.applicationId), Application()),
    )


def _log_failure(call: Future[object]) -> None:
    if (error := call.exception()) is not None:
        _LOG.warning("the cluster manager did not answer: %s", error)
