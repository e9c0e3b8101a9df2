"""One life of a driver: `python -m faults.kill_child EVENTS SETTINGS`, in a session of its own.

It starts Spark, says that it is ready, and waits for its job on the standard input; so a successor
can stand by while its predecessor still lives. What happens to it, it tells through a pipe, one
JSON object a line. Law: it does not outlive its parent, which holds the other end of its standard
input, and takes everything below it along.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from penstock.driver.driver import Driver, EpochResult, Execute
from penstock.testing.faults.kills import Family, Step, Trigger, Victim, kill_self, stepping

JVM_END_SECONDS = 180.0
ORDERS = "PENSTOCK_KILL_ORDERS"
"""Where workers look for an order to die."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order to die at a step, or to kill others there.

    Attributes:
        step: The step, as text.
        nth: At which of its times, counted from 1.
        victim: Who dies.
        number: Tells orders apart.
    """

    step: str
    nth: int = 1
    victim: Victim = "driver"
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a life is to do.

    Attributes:
        calls: The input.
        out: The sink.
        checkpoint: The checkpoint.
        instances: How many instances.
        ordered: Whether the sink is ordered.
        order: When the driver is to die, if at a step.
        record: Whether to tell all steps at the end.
    """

    calls: str
    out: str
    checkpoint: str
    instances: int = 1
    ordered: bool = False
    order: Order | None = None
    record: bool = False

    def to_line(self) -> str:
        """Return the job as a line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of_line(cls, line: str) -> Job:
        """Return the job of a line."""
        raw = json.loads(line)
        order = raw.pop("order")
        return cls(**raw, order=None if order is None else Order(**order))


class Teller:
    """Tells events to the parent; times are of the machine's monotonic clock."""

    def __init__(self, handle: int) -> None:
        """Write to a pipe that no child of ours inherits."""
        os.set_inheritable(handle, False)
        self.handle = handle

    def __call__(self, event: str, **facts: Any) -> None:
        """Tell an event."""
        line = json.dumps({"event": event, "at": time.monotonic(), **facts}) + "\n"
        with suppress(BrokenPipeError):
            os.write(self.handle, line.encode())


def main(handle: str, settings: str) -> None:
    """Start Spark, wait for the job, run it."""
    tell, lines = Teller(int(handle)), listen()
    from penstock.spark.session import local_session

    spark = local_session("penstock kills", cores=2, settings=json.loads(settings))
    tell("ready")
    job = Job.of_line(lines.get())
    try:
        _run(spark, job, tell)
    except Exception as error:
        tell("error", kind=type(error).__name__, text=str(error)[:2000])
        Family.of(os.getpid()).kill("all")  # as a program that fails and ends does, but faster
    end_session(spark)
    tell("ended")


def end_session(spark: Any) -> None:
    """End Spark and its JVM in peace; one that was asked for a class archive writes it now."""
    from pyspark import SparkContext

    spark.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=JVM_END_SECONDS)


def listen() -> queue.SimpleQueue[str]:
    """Return the lines that the parent sends; when it is gone, everything of ours goes along."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        Family.of(os.getpid()).kill("all")

    threading.Thread(target=read, name="parent", daemon=True).start()
    return lines


def _run(spark: Any, job: Job, tell: Teller) -> None:
    from faults.kill_workload import build_query

    steps: dict[str, int] = {}
    with ExitStack() as stack:
        stack.enter_context(watched(tell))
        stack.enter_context(stepping(_hook(job, steps, tell)))
        tell("starting")
        query = build_query(Path(job.calls), Path(job.out), ordered=job.ordered).start(
            spark,
            checkpoint=job.checkpoint,
            available_now=True,
            finish=True,
            instances=job.instances,
        )
        query.awaitTermination()
        tell("done", totals=query.totals, steps=steps if job.record else {})


def _hook(job: Job, steps: dict[str, int], tell: Teller) -> Callable[[Step], None]:
    if job.record:

        def count(step: Step) -> None:
            steps[str(step)] = steps.get(str(step), 0) + 1

        return count
    if job.order is None:
        return lambda step: None
    order = job.order

    def act() -> None:
        tell("fired", step=order.step, victim=order.victim)
        Family.of(os.getpid()).kill(order.victim)

    return Trigger(Step.parse(order.step), order.nth, act)


@contextmanager
def watched(tell: Teller) -> Iterator[None]:
    """Let the query's driver tell how long it took to open, and each epoch that it committed."""

    class Watched(Driver):
        def __init__(self, *args: Any, **options: Any) -> None:
            since = time.monotonic()
            super().__init__(*args, **options)
            tell("opened", ms=1000 * (time.monotonic() - since))

        def run_epoch(self, epoch: int, execute: Execute, *, final: bool = False) -> EpochResult:
            result = super().run_epoch(epoch, execute, final=final)
            tell("epoch", epoch=epoch, replayed=result.replayed, seconds=result.seconds)
            return result

    with mock.patch("penstock.spark.start.Driver", Watched):
        yield


_OBEYING: dict[str, Any] = {"number": None, "stack": ExitStack()}


def obey() -> None:
    """In a worker: if there is an order, die at its step; called in every task."""
    folder = os.environ.get(ORDERS)
    if folder is None:
        return
    path = os.path.join(folder, "order.json")
    try:
        with open(path) as file:
            order: Mapping[str, Any] = json.load(file)
    except FileNotFoundError:
        _disarm()
        return
    if order["number"] != _OBEYING["number"]:
        _disarm()
        _arm(folder, path, Order(**order))


def _disarm() -> None:
    _OBEYING["stack"].close()
    _OBEYING["number"] = None


def _arm(folder: str, path: str, order: Order) -> None:
    def act() -> None:
        try:  # of several workers at this step, one takes the order
            os.rename(path, os.path.join(folder, f"fired-{order.number}.json"))
        except FileNotFoundError:
            return
        if order.victim == "worker":
            kill_self()
        Family.of(os.getsid(0)).kill(order.victim)

    def record(step: Step) -> None:
        name = str(step).replace(", ", "@").replace("/", "|")
        Path(folder, f"step-{name}").touch()

    hook = record if order.step == "*" else Trigger(Step.parse(order.step), order.nth, act)
    _OBEYING["stack"].enter_context(stepping(hook))
    _OBEYING["number"] = order.number


if __name__ == "__main__":
    main(*sys.argv[1:])
