"""The rescale storm: ``python -m faults.storm --operations 1000 --kills 100 --seed 1``.

A query runs on a real Spark cluster of several workers. Meanwhile buckets move, subqueries get more
and fewer instances, and executors come and go, a thousand times by chance; and in the middle of
some of these operations a process is killed: an executor, a Python worker, or the driver, which is
then started again from the checkpoint. Law: the output is the one of a static run, row for row, and
nothing is left running. Exit code 1 if it is not.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from faults.kill_family import Child, scratch_folder
from faults.kill_workload import Verdict
from faults.report import Log, percentile
from faults.storm_workload import batch_found, judge, read_found, run_static, write_file
from penstock.base.errors import CheckpointError
from penstock.testing.cluster import Cluster, standalone_cluster
from penstock.testing.faults.oracle import parted

KINDS = {"move": 0.4, "rescale": 0.4, "provision": 0.1, "decommission": 0.1}
"""Operations, and how often each comes."""
VICTIMS = {"executor": 0.4, "worker": 0.35, "driver": 0.25}
WORKERS, SHORT_WORKERS = 4, 3
INSTANCES = 5
AHEAD = 4
"""So many files more than there are epochs are always there."""
TOGETHER = 3
"""At most so many operations are asked for at once."""
READY_SECONDS = 240.0
EPOCH_SECONDS = 300.0
ANSWER_SECONDS = 120.0
END_SECONDS = 300.0
POLL_SECONDS = 0.05
_SETTINGS = {
    "spark.driver.memory": "600m",
    # Short, so that retention is among what goes on meanwhile.
    "spark.penstock.retainEpochs": "3",
    "spark.penstock.retainSeconds": "0",
}


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a storm has done and seen so far."""

    operations: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    recovery_ms: list[float] = field(default_factory=list)
    restart_ms: list[float] = field(default_factory=list)
    epochs: int = 0
    replayed: int = 0
    lives: int = 0
    ended: list[str] = field(default_factory=list)
    """Why a query ended although its driver was not killed."""
    verdict: Verdict = field(default_factory=Verdict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the output is right and no query ended by itself."""
        return self.verdict.right and not self.ended

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "operations": dict(self.operations),
            "kills": dict(self.kills),
            "reconfigurations": dict(self.records),
            "epochs": self.epochs,
            "lives": self.lives,
            "ended": self.ended,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "differing": self.verdict.differing,
            "remarks": list(self.verdict.remarks),
            "recovery_ms": {
                "p50": percentile(self.recovery_ms, 0.5),
                "max": max(self.recovery_ms, default=None),
            },
            "restart_ms": {
                "p50": percentile(self.restart_ms, 0.5),
                "max": max(self.restart_ms, default=None),
            },
            "seconds": self.seconds,
            "passed": self.passed,
        }


class Storm:
    """One storm over one checkpoint."""

    def __init__(self, folder: Path, cluster: Cluster, seed: int, log: Log) -> None:
        """Prepare a storm on a cluster."""
        self.folder, self.cluster, self.seed, self.log = folder, cluster, seed, log
        self.rng = random.Random(seed)
        self.tally = Tally()
        self.child: Child | None = None
        self.files = 0
        self.number = 0
        (folder / "calls").mkdir()

    def run(self, operations: int, kills: int, minutes: float | None = None) -> Tally:
        """Do the operations, with a kill in the middle of some, and judge the output.

        Args:
            operations: How many.
            kills: In the middle of how many of them something is killed.
            minutes: Begin no more operations after so long, however many are left.
        """
        since = time.monotonic()
        until = since + (60 * minutes if minutes else 1e9)
        fatal = set(self.rng.sample(range(operations), kills))
        done = 0
        try:
            while done < operations and time.monotonic() < until:
                some = min(self.rng.randint(1, TOGETHER), operations - done)
                hits = len(fatal & set(range(done, done + some)))
                self._turn([self._kind() for _ in range(some)], hits)
                done += some
                if done // 20 > (done - some) // 20:
                    self.log(self._line(time.monotonic() - since))
            self._finish()
        finally:
            if self.child is not None:
                self.child.end()
        self.tally.verdict = self._verdict()
        self.tally.seconds = time.monotonic() - since
        return self.tally

    def _turn(self, kinds: Sequence[str], hits: int) -> None:
        """Do some operations together; each kill hits a part of them of its own."""
        parts = [list(kinds)] if hits < 2 else [[kind] for kind in kinds]
        for number, part in enumerate(parts):
            child = self._alive()
            self._operate(child, part)
            self._kill() if number < hits else self._epochs(child, 1)

    def _kind(self) -> str:
        return self.rng.choices(list(KINDS), list(KINDS.values()))[0]

    def _line(self, seconds: float) -> str:
        tally = self.tally
        return (
            f"{sum(tally.operations.values())} operations, {sum(tally.kills.values())} kills, "
            f"{tally.epochs} epochs, {seconds:.0f} s"
        )

    def _alive(self) -> Child:
        """Return the driver; start another if there is none, or if its query has ended."""
        if self.child is not None and self.child.over:
            error = self.child.told("error")
            words = error[-1]["text"] if error else self.child.last_words(5)
            self.tally.ended.append(words[:500])
            self.log(f"the query ended: {words[:300]}")
            self.child.end()
            self.child = None
        if self.child is None:
            self.child = self._start()
        return self.child

    def _start(self) -> Child:
        self.tally.lives += 1
        self._feed()
        settings: dict[str, Any] = {
            "master": self.cluster.master,
            "cluster": str(self.cluster.folder),
            "folder": str(self.folder),
            "executors": len(self.cluster.workers),
            "instances": INSTANCES,
            "seed": self.rng.randrange(1 << 30),
            "settings": _SETTINGS,
        }
        name = self.folder / f"c{self.tally.lives}"
        child = Child(name, settings, "faults.storm_child")
        if not child.wait_for("started", READY_SECONDS):
            words = f"{child.told('error')}\n{child.last_words()}"
            child.end()
            raise RuntimeError(f"a driver did not start:\n{words}")
        return child

    def _feed(self) -> None:
        """Let there be some more files than epochs."""
        while self.files < self._done() + AHEAD:
            write_file(self.folder / "calls", self.files, self.seed)
            self.files += 1

    def _done(self) -> int:
        """Return how many epochs are committed, as far as it was told."""
        live = [] if self.child is None else self.child.told("epoch")
        return max([self.tally.epochs, *[int(event["epoch"]) + 1 for event in live]])

    def _operate(self, child: Child, kinds: Sequence[str]) -> None:
        """Ask for operations together; a driver that is gone does not hear them."""
        for kind in kinds:
            self.number += 1
            number = self.number
            child.say(json.dumps({"kind": kind, "number": number}) + "\n")
            child.wait(
                lambda events, n=number: any(  # type: ignore[misc]  # its number is bound now
                    e["event"] == "asked" and e["number"] == n for e in events
                ),
                ANSWER_SECONDS,
            )
            answers = [e for e in child.told("asked") if e["number"] == number]
            self.tally.operations[answers[0].get("instead", kind) if answers else "unheard"] += 1

    def _epochs(self, child: Child, count: int) -> float:
        """Wait for so many more epochs of a driver; return the seconds."""
        since, before = time.monotonic(), len(child.told("epoch"))
        self._feed()
        child.wait_for("epoch", EPOCH_SECONDS, before + count)
        if len(child.told("epoch")) < before + count and not child.over:
            raise RuntimeError(
                f"no epoch within {EPOCH_SECONDS:.0f} seconds; events: "
                f"{child.events[-3:]}\n{child.last_words()}"
            )
        self._count(child)
        return time.monotonic() - since

    def _count(self, child: Child) -> None:
        """Count the epochs that a driver has told of since the last time."""
        for event in child.told("epoch"):
            if event["epoch"] < self.tally.epochs:
                continue
            self.tally.epochs = event["epoch"] + 1
            self.tally.replayed += event["replayed"]
            for record in event["records"]:
                how = f" ({record['protocol']})" if record["protocol"] else ""
                self.tally.records[f"{record['kind']}{how}"] += 1

    def _kill(self) -> None:
        """Kill something in the middle of the epoch that carries what was asked for."""
        child = self._alive()
        before = len(child.told("begun"))
        self._feed()
        child.wait_for("begun", EPOCH_SECONDS, before + 1)
        usual = [event["seconds"] for event in child.told("epoch")[-5:]] or [0.5]
        child.wait(lambda events: False, self.rng.uniform(0.0, 1.2 * max(usual)))
        victim = self.rng.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        since = time.monotonic()
        if victim == "driver":
            whom = self.rng.choice(["driver", "jvm", "all"])
            child.family.kill(whom)  # type: ignore[arg-type]  # one of its literals
            self._count(child)
            child.end()
            self.child = None
            self.tally.kills[f"driver: {whom}"] += 1
            gone = time.monotonic()
            self._epochs(self._alive(), 1)
            self.tally.restart_ms.append(1000 * (time.monotonic() - since))
            self._tell_restart(since, gone)
            return
        self.tally.kills[victim if self._hit(child, victim) else "missed"] += 1
        self._epochs(child, 2)  # the one that was hit, and one more
        self.tally.recovery_ms.append(1000 * (time.monotonic() - since))

    def _hit(self, child: Child, victim: str) -> bool:
        """Kill an executor or a worker, as soon as there is one; executors come and go."""
        until = time.monotonic() + ANSWER_SECONDS
        while not _kill_one(self.cluster, victim, self.rng):
            if child.over or time.monotonic() > until:
                return False
            child.wait(lambda events: False, POLL_SECONDS)
        return True

    def _tell_restart(self, since: float, gone: float) -> None:
        """Log where the time of a restart went; all clocks are the machine's monotonic one."""
        if self.child is None:
            return
        names = ("ready", "started", "epoch")
        found = [(name, told[0]["at"]) for name in names if (told := self.child.told(name))]
        steps = [("gone", gone), *found]
        self.log("restart: " + ", ".join(f"{name} {at - since:.0f} s" for name, at in steps))

    def _finish(self) -> None:
        """Let the query process all files and close its windows."""
        for _ in range(3):
            child = self._alive()
            child.say(json.dumps({"kind": "finish"}) + "\n")
            if child.wait_for("ended", END_SECONDS) and child.told("done"):
                self._count(child)
                return
            self.log(f"the last run failed: {child.told('error')}")
            child.end()
        raise RuntimeError(f"the query did not finish:\n{child.last_words()}")

    def _verdict(self) -> Verdict:
        calls = self.folder / "calls"
        try:
            found = read_found(self.folder / "run")
        except CheckpointError as error:
            return Verdict(differing=1, remarks=(str(error),))
        verdict = judge(found, run_static(calls, self.folder / "static"), batch_found(calls))
        return verdict.noting(parted(self.folder / "run" / "checkpoint"))


def _kill_one(cluster: Cluster, victim: str, rng: random.Random) -> bool:
    """Kill an executor's JVM, or one of its Python workers; return whether there was one."""
    jvms = [jvm for worker in cluster.workers for jvm in worker.executors()]
    found = jvms
    if victim == "worker":
        found = []
        for jvm in jvms:
            with suppress(psutil.Error):
                daemons = jvm.children()
                found += [worker for daemon in daemons for worker in daemon.children()]
    if not found:
        return False
    with suppress(psutil.NoSuchProcess):
        rng.choice(found).kill()
        return True
    return False


def run(
    operations: int,
    kills: int,
    seed: int,
    log: Log,
    *,
    workers: int = WORKERS,
    minutes: float | None = None,
) -> Tally:
    """Make a cluster, storm it, and remove it."""
    with scratch_folder() as folder, standalone_cluster(workers) as cluster:
        log(f"a cluster of {workers} workers; {operations} operations, {kills} kills, seed {seed}")
        return Storm(folder, cluster, seed, log).run(operations, kills, minutes)


def table(found: Mapping[str, Any]) -> Table:
    """Return what a storm did and found as a table."""
    shown = Table(title="rescale storm", show_header=False)
    for name in ("operations", "kills", "reconfigurations"):
        rows = found[name]
        parts = ", ".join(f"{kind} {count}" for kind, count in sorted(rows.items()))
        shown.add_row(name, str(sum(rows.values())), parts)
    shown.add_row("epochs", str(found["epochs"]), f"{found['lives']} lives of the driver")
    for name in ("lost", "duplicated", "differing"):
        shown.add_row(f"rows {name}", str(found[name]), "")
    for name, what in (("recovery_ms", "executor or worker"), ("restart_ms", "driver")):
        times = found[name]
        if times["p50"] is not None:
            words = f"after a kill of {what}: p50 {times['p50']:.0f} ms, most {times['max']:.0f} ms"
            shown.add_row(name.removesuffix("_ms"), "", words)
    shown.add_row("ended by itself", str(len(found["ended"])), "; ".join(found["ended"])[:200])
    shown.add_row("seconds", f"{found['seconds']:.0f}", "")
    return shown


def main(
    operations: Annotated[int, typer.Option(min=1, help="How many.")] = 1000,
    kills: Annotated[int, typer.Option(min=0, help="In how many of them.")] = 100,
    seed: Annotated[int, typer.Option(help="What all chance comes from.")] = 1,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no more operations after so long.")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="12 operations, 2 kills.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Move, rescale, provision and decommission in a running query, and kill meanwhile."""
    messages = Console(stderr=True)
    if short:
        operations, kills = 12, 2
    if kills > operations:
        messages.print(f"error: more kills than operations; kills={kills}")
        raise typer.Exit(2)

    def log(line: str) -> None:
        messages.print(line, markup=False)

    workers = SHORT_WORKERS if short else WORKERS
    tally = run(operations, kills, seed, log, workers=workers, minutes=minutes)
    for remark in tally.verdict.remarks:
        log(remark)
    if as_json:
        print(json.dumps(tally.as_dict(), indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(table(tally.as_dict()))
    if not tally.passed:
        raise typer.Exit(1)


def _exit(*_: object) -> None:
    """End as after an error, so that folders and processes are cleared away."""
    raise SystemExit(143)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _exit)
    typer.run(main)
