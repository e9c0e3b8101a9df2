"""Kill campaigns on Spark: whole drivers, and single workers, by SIGKILL.

``trials`` is the number of kills. A trial history is one checkpoint: its driver is killed and
started again, with another number of instances at times, until the input is done; or its workers
are killed one after the other while it runs. Law: a history counts only if, at its end, the output,
the late rows, the counts and the epochs are those of a batch and of a run that nobody disturbed,
and if all its processes have gone by themselves.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from faults.kill_child import Job, Order
from faults.kill_family import Child, Household, scratch_folder
from faults.kill_workload import (
    Outcome,
    Verdict,
    batch_outcome,
    files_per_epoch,
    judge,
    run_in_process,
    run_outcome,
    write_files,
)
from faults.report import CampaignResult, Log, percentile
from penstock.base.errors import CheckpointError
from penstock.testing.faults.kills import Step, Victim
from penstock.testing.faults.oracle import parted

LIFE_SECONDS = 120.0
"""How long a life may take; a busy machine needs many times what a quiet one does."""
GONE_SECONDS = 30.0
EPOCH_SECONDS = 60.0
FILES, FEW_FILES = 36, 16
MANY = 40
"""From so many kills on it pays to write a class archive for the JVMs of the campaign first."""
LANES = 2
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.driver.memory": "600m",
    # Short, so that retention is among what is interrupted.
    "spark.penstock.retainEpochs": "2",
    "spark.penstock.retainSeconds": "0",
    # The judge reads from Spark's log how the input was cut into epochs, from the first one on.
    "spark.sql.streaming.minBatchesToRetain": "1000",
}
_OPTIONS = "spark.driver.extraJavaOptions"
_TASK_KINDS = ("segment", "staged output", "staged side output")
_TASK_CALLS = (
    "create", "create: half", "create: written", "create: synced", "link", "linked", "unlink",
    "sync",
)  # fmt: skip
"""What a task does to write a file of these kinds."""
_RARE = 3
"""A step that a whole run takes less often than this is hit in a first life, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all histories of a campaign share.

    Attributes:
        folder: The campaign's folder.
        ordered: Whether the sink is ordered.
        batch: The right answer.
        clean: What a run without kills left.
        steps: How often that run came to each step in its driver.
        worker_steps: The steps in its workers.
        settings: Spark's settings.
    """

    folder: Path
    ordered: bool
    batch: Outcome
    clean: Outcome
    steps: Mapping[str, int]
    worker_steps: Sequence[str]
    settings: Mapping[str, str]

    def job(self, name: str, **others: object) -> Job:
        """Return the job of a life of a history."""
        base = Job(
            calls=str(self.folder / "calls"),
            out=str(self.folder / name / "out"),
            checkpoint=str(self.folder / name / "checkpoint"),
            ordered=self.ordered,
        )
        return replace(base, **others)  # type: ignore[arg-type]  # the fields of Job

    def _clean_cut_alike(self, place: Path) -> Outcome:
        """Return the clean run, made anew if Spark has cut this history into other epochs."""
        cut = files_per_epoch(place / "checkpoint")
        if set(cut) == {1}:
            return self.clean
        again = place / "cut"
        run_in_process(self.folder / "calls", again, ordered=self.ordered, cut=cut)
        return run_outcome(again / "checkpoint", again / "out")

    def verdict(self, name: str) -> Verdict:
        """Judge what a history left, and remove it."""
        place = self.folder / name
        try:
            found = run_outcome(place / "checkpoint", place / "out")
            clean = self._clean_cut_alike(place)
        except CheckpointError as error:
            return Verdict(differing=1, remarks=(f"{name}: {error}",))
        verdict = judge(found, self.batch, clean, ordered=self.ordered)
        verdict = verdict.noting(parted(place / "checkpoint"))
        shutil.rmtree(place, ignore_errors=True)
        return verdict


@dataclass(slots=True)
class Tally:
    """What a campaign has seen so far; several lanes add to it."""

    goal: int
    kills: int = 0
    histories: int = 0
    detected: int = 0
    points: set[str] = field(default_factory=set)
    recovery_ms: list[float] = field(default_factory=list)
    opened_ms: list[float] = field(default_factory=list)
    victims: dict[str, int] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)
    failing: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def killed(self, victim: str, point: str | None = None) -> None:
        """Count a kill."""
        with self.lock:
            self.kills += 1
            self.victims[victim] = self.victims.get(victim, 0) + 1
            if point is not None:
                self.points.add(point)

    @property
    def left(self) -> int:
        """How many kills are still wanted."""
        return self.goal - self.kills

    def judged(self, name: str, verdict: Verdict, log: Log) -> None:
        """Add a history's verdict."""
        with self.lock:
            self.histories += 1
            was = self.verdict
            self.verdict = Verdict(
                lost=was.lost + verdict.lost,
                duplicated=was.duplicated + verdict.duplicated,
                differing=was.differing + verdict.differing,
            )
            if not verdict.right:
                self.failing.append(name)
                log(f"{name}: " + "\n  ".join(["not right", *verdict.remarks]))

    def result(
        self, campaign: str, since: float, points_total: int | None = None
    ) -> CampaignResult:
        """Return the campaign's result."""
        return CampaignResult(
            campaign=campaign,
            trials=self.histories,
            faults=self.kills,
            points=None if points_total is None else len(self.points),
            points_total=points_total,
            lost=self.verdict.lost,
            duplicated=self.verdict.duplicated,
            differing=self.verdict.differing,
            detected=self.detected,
            recovery_ms=tuple(self.recovery_ms),
            failing=tuple(self.failing),
            seconds=time.monotonic() - since,
        )


@contextmanager
def prepared(files: int, seed: int, log: Log, *, ordered: bool, full: bool) -> Iterator[Ground]:
    """Write the input, make the clean run, and remove everything at the end.

    In the full form the clean run is on Spark, and its JVM leaves a class archive with which the
    next ones start in half the time; in the short form it is in this process.
    """
    with scratch_folder() as folder:
        write_files(folder / "calls", files, seed=seed)
        classes = folder / "classes.jsa"
        dump = f"{_JAVA} -Xlog:disable -XX:ArchiveClassesAtExit={classes}"
        settings = {**_SETTINGS, "spark.local.dir": str(folder / "local")}
        clean = _clean_on_spark if full else _clean_in_process
        steps, worker_steps = clean(folder, settings | {_OPTIONS: dump}, ordered)
        shared = f"{_JAVA} -Xshare:auto -XX:SharedArchiveFile={classes}"
        ground = Ground(
            folder=folder,
            ordered=ordered,
            batch=batch_outcome(folder / "calls"),
            clean=run_outcome(folder / "checkpoint", folder / "out"),
            steps=steps,
            worker_steps=worker_steps,
            settings=settings | {_OPTIONS: shared if classes.exists() else _JAVA},
        )
        first = judge(ground.clean, ground.batch, None, ordered=ordered)
        if not first.right:
            raise RuntimeError("the clean run is not right: " + "; ".join(first.remarks))
        log(f"clean run: {ground.clean.rows.height} rows out, {dict(ground.clean.totals)}")
        yield ground


def _clean_in_process(
    folder: Path, settings: Mapping[str, str], ordered: bool
) -> tuple[Mapping[str, int], Sequence[str]]:
    """Run the query without Spark; return the steps of its driver and of its tasks."""
    seen: Counter[Step] = Counter()
    run_in_process(folder / "calls", folder, ordered=ordered, hook=lambda step: seen.update([step]))
    kinds = [kind for kind in _TASK_KINDS if Step("create", kind) in seen]
    return (
        {str(step): times for step, times in seen.items() if not _only_of_tasks(step)},
        [str(Step(call, kind)) for kind in kinds for call in _TASK_CALLS],
    )


def _only_of_tasks(step: Step) -> bool:
    """Return whether a driver never takes a step: it writes no segments and stages no files."""
    writes = step.kind in _TASK_KINDS and step.call.startswith("create")
    return writes or (step.kind == "segment" and step.call != "unlink")


def _clean_on_spark(
    folder: Path, settings: Mapping[str, str], ordered: bool
) -> tuple[Mapping[str, int], Sequence[str]]:
    with Household(folder / "clean", settings) as house:
        child = house.take()
        _give_order(child, Order(step="*"))
        child.give(
            Job(
                calls=str(folder / "calls"),
                out=str(folder / "out"),
                checkpoint=str(folder / "checkpoint"),
                ordered=ordered,
                record=True,
            )
        )
        if not child.wait_for("ended", LIFE_SECONDS * 4) or not child.told("done"):
            raise RuntimeError(f"the clean run failed: {child.told('error')}\n{child.last_words()}")
        child.gone(GONE_SECONDS)
        names = [path.name.removeprefix("step-") for path in child.orders.glob("step-*")]
        return child.told("done")[0]["steps"], sorted(name.replace("@", ", ") for name in names)


def _give_order(child: Child, order: Order) -> None:
    """Let an order appear whole."""
    hidden = child.orders / ".order"
    hidden.write_text(
        json.dumps(
            {"step": order.step, "nth": order.nth, "victim": order.victim, "number": order.number}
        )
    )
    hidden.replace(child.orders / "order.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one life is to end.

    Attributes:
        victim: Who is killed.
        point: At which step: ``driver: ...`` or ``worker: ...``; None for any moment.
        nth: At which of the step's times.
        epochs: For any moment: after how many epochs.
        delay: For any moment: how many seconds after that.
    """

    victim: Victim
    point: str | None = None
    nth: int = 1
    epochs: int = 0
    delay: float = 0.0


class Deck:
    """Deals the plans of lives: every point once, and any moments between."""

    def __init__(self, ground: Ground, seed: int) -> None:
        """Shuffle the points that the clean run came to."""
        self.rng = random.Random(seed)
        rare = [f"driver: {s}" for s, times in ground.steps.items() if times < _RARE]
        often = [f"driver: {s}" for s, times in ground.steps.items() if times >= _RARE]
        often += [f"worker: {s}" for s in ground.worker_steps if not s.startswith("make folder")]
        rare += [f"worker: {s}" for s in ground.worker_steps if s.startswith("make folder")]
        self.rng.shuffle(rare)
        self.rng.shuffle(often)
        self.first, self.any = rare, often
        self.points_total = len(rare) + len(often)
        self._tries: dict[str, int] = {}
        self._dealt = 0
        self._lock = threading.Lock()

    def deal(self, *, first: bool) -> Plan:
        """Return the plan of the next life; ``first`` if it is the first of its checkpoint."""
        with self._lock:
            self._dealt += 1
            victims: tuple[Victim, ...] = ("driver", "driver", "jvm", "all")
            victim = self.rng.choice(victims)
            pile = self.first if first and self.first else self.any
            if pile and (first or self._dealt % 2):
                point = pile.pop()
                rare = pile is self.first
                return Plan(victim=victim, point=point, nth=1 if rare else self.rng.randint(1, 3))
            if self.rng.random() < 0.2:
                return Plan(victim=victim, delay=self.rng.uniform(0.0, 3.0))
            epochs = self.rng.randint(1, 7)
            return Plan(victim=victim, epochs=epochs, delay=self.rng.uniform(0.0, 0.6))

    def missed(self, plan: Plan) -> None:
        """Put a point back that its life did not come to; not for ever."""
        if plan.point is None:
            return
        with self._lock:
            self._tries[plan.point] = self._tries.get(plan.point, 0) + 1
            if self._tries[plan.point] < 3:
                self.first.insert(0, plan.point)


def run_driver_kills(trials: int, seed: int, log: Log) -> CampaignResult:
    """Kill drivers, JVMs and both, ``trials`` times in all."""
    since = time.monotonic()
    many = trials >= MANY
    with prepared(FILES if many else FEW_FILES, seed, log, ordered=False, full=many) as ground:
        log(f"prepared in {time.monotonic() - since:.0f} s")
        deck, tally = Deck(ground, seed), Tally(trials)
        lanes = LANES if many else 1
        # The household ends first, however this ends: lanes then find no more children.
        with (
            ThreadPoolExecutor(lanes) as pool,
            Household(ground.folder / "lives", ground.settings, standbys=lanes) as house,
        ):
            histories = _Histories(ground, deck, tally, house, log)
            for done in as_completed([pool.submit(histories.run) for _ in range(lanes)]):
                done.result()
    log(
        f"driver kills by victim: {tally.victims}; opening took a median of "
        f"{_median(tally.opened_ms)} ms; fenced lives: {tally.detected}"
    )
    covered = deck.points_total if trials > 2 * deck.points_total else None
    return tally.result("driver-kills", since, covered)


class _Histories:
    """Runs one history of driver kills after another, until there were enough kills."""

    def __init__(
        self, ground: Ground, deck: Deck, tally: Tally, house: Household, log: Log
    ) -> None:
        self.ground, self.deck, self.tally, self.house, self.log = ground, deck, tally, house, log
        self.numbers = itertools.count(1)

    def run(self) -> None:
        while self.tally.left > 0:
            self._history(f"h{next(self.numbers)}")

    def _history(self, name: str) -> None:
        old: list[Child] = []
        trouble: list[str] = []
        try:
            done = False
            while not done:
                fatal = self.tally.left > 0
                plan = self.deck.deal(first=not old) if fatal else None
                child = self.house.take(more=self.tally.left > 1)
                old.append(child)
                done = self._life(name, child, plan, old[:-1], trouble)
                if len(old) > 4 * FILES:
                    trouble.append("no end in sight")
                    break
            trouble += [
                f"life {i} of {len(old)} left processes behind: {child.family.all}"
                for i, child in enumerate(old)
                if not child.gone(GONE_SECONDS)
            ]
        finally:
            for child in old:
                self.house.end(child)
        verdict = self.ground.verdict(name)
        if trouble:
            remarks = (*verdict.remarks, *trouble)
            verdict = replace(verdict, differing=verdict.differing + len(trouble), remarks=remarks)
        self.tally.judged(name, verdict, self.log)
        self.log(
            f"{name}: {len(old)} lives, {'right' if verdict.right else 'NOT RIGHT'}; "
            f"{self.tally.kills} kills, {len(self.tally.points)} points so far; a restart takes "
            f"{_median(self.tally.recovery_ms)} ms, {_median(self.tally.opened_ms)} ms of it ours"
        )

    def _life(
        self, name: str, child: Child, plan: Plan | None, before: list[Child], trouble: list[str]
    ) -> bool:
        """Run one life; return whether the input is done."""
        instances = self.deck.rng.choice((1, 1, 2, 3))
        order = None
        if plan is not None and plan.point is not None:
            where, _, step = plan.point.partition(": ")
            order = Order(step=step, nth=plan.nth, victim=plan.victim)
            if where == "worker":
                _give_order(child, order)
                order = None
        haunted = any(c.family.all for c in before[-2:])
        child.give(self.ground.job(name, instances=instances, order=order))
        killed = self._end(child, plan)
        self._measure(child)
        if child.told("done"):
            if plan is not None and not killed:
                self.deck.missed(plan)
            return True
        errors = child.told("error")
        if killed:
            return False
        if errors and errors[0]["kind"] == "FencedError" and haunted:
            self.tally.detected += 1  # the life before was not quite dead, and committed
            return False
        trouble.append(f"a life ended by itself: {errors or child.last_words()}")
        return len(trouble) > 3

    def _end(self, child: Child, plan: Plan | None) -> bool:
        """Wait until a life ends as planned, or by itself; return whether it was killed."""
        if plan is None:
            child.wait(lambda _: bool(_ending(child)), LIFE_SECONDS)
            return False
        if plan.point is not None:
            fired = self._wait_until_fired(child, plan)
        else:
            child.wait(lambda _: _epochs(child) >= plan.epochs or _ending(child), LIFE_SECONDS)
            child.wait(lambda _: bool(_ending(child)), plan.delay)
            fired = not _ending(child) and child.family.kill(plan.victim) > 0
        if not fired:
            return False
        self.tally.killed(plan.victim, plan.point)
        return True

    def _wait_until_fired(self, child: Child, plan: Plan) -> bool:
        assert plan.point is not None
        if plan.point.startswith("driver"):
            child.wait(lambda _: bool(_ending(child)), LIFE_SECONDS)
            return bool(child.told("fired"))
        fired = child.orders / "fired-0.json"
        until = time.monotonic() + LIFE_SECONDS
        while not fired.exists() and not _ending(child) and time.monotonic() < until:
            child.wait(lambda _: bool(_ending(child)), 0.02)
        return fired.exists()

    def _measure(self, child: Child) -> None:
        """Take a restart's times: from the start of the query to its first epoch, and our part."""
        start, opened, epochs = (child.told(e) for e in ("starting", "opened", "epoch"))
        with self.tally.lock:
            if opened:
                self.tally.opened_ms.append(opened[0]["ms"])
            if start and epochs:
                self.tally.recovery_ms.append(1000 * (epochs[0]["at"] - start[0]["at"]))


def _median(values: Sequence[float]) -> str:
    middle = percentile(values, 0.5)
    return "–" if middle is None else f"{middle:.0f}"


def _ending(child: Child) -> bool:
    return child.over or any(event["event"] in ("done", "error", "fired") for event in child.events)


def _epochs(child: Child) -> int:
    return sum(event["event"] == "epoch" for event in child.events)


def run_worker_kills(trials: int, seed: int, log: Log) -> CampaignResult:
    """Kill workers of running queries, ``trials`` times in all."""
    since = time.monotonic()
    rng = random.Random(seed)
    files = max(12, min(300, 2 * trials))
    with prepared(files, seed, log, ordered=True, full=False) as ground:
        log(f"prepared in {time.monotonic() - since:.0f} s")
        points = [
            s for s in ground.worker_steps if not s.startswith(("make folder", "sync, other"))
        ]
        tally = Tally(trials)
        with Household(ground.folder / "lives", ground.settings) as house:
            while tally.left > 0 and len(tally.failing) < 3:
                _worker_history(ground, house, tally, rng, points, log)
    covered = len(points) if trials > 2 * len(points) else None
    return tally.result("worker-kills", since, covered)


def _worker_history(
    ground: Ground, house: Household, tally: Tally, rng: random.Random, points: list[str], log: Log
) -> None:
    """Run the whole input once, and kill workers all the while."""
    name = f"w{tally.histories + 1}"
    child = house.take()
    trouble: list[str] = []
    try:
        child.give(ground.job(name, instances=rng.choice((1, 2))))
        child.wait_for("epoch", LIFE_SECONDS)
        while tally.left > 0 and not _ending(child):
            _kill_a_worker(child, tally, rng, points)
        if not child.wait_for("ended", LIFE_SECONDS * 4) or child.told("error"):
            trouble.append(f"the query ended: {child.told('error')}\n{child.last_words()}")
        elif not child.gone(GONE_SECONDS):
            trouble.append(f"processes were left behind: {child.family.all}")
        usual = [1000 * e["seconds"] for e in child.told("epoch")]
    finally:
        house.end(child)
    verdict = ground.verdict(name)
    if trouble:
        more = verdict.differing + len(trouble)
        verdict = replace(verdict, differing=more, remarks=(*verdict.remarks, *trouble))
    tally.judged(name, verdict, log)
    log(
        f"{name}: {'right' if verdict.right else 'NOT RIGHT'}; {tally.kills} kills, "
        f"{len(tally.points)} of {len(points)} points so far; an epoch takes "
        f"{_median(usual)} ms, a kill costs {_median(tally.recovery_ms)} ms until the next commit"
    )


def _kill_a_worker(child: Child, tally: Tally, rng: random.Random, points: list[str]) -> None:
    """Kill one, at a step or at any moment, and wait until an epoch has been committed since."""
    unseen = [point for point in points if point not in tally.points]
    forced = unseen if unseen and tally.kills % 2 else []
    if forced or rng.random() < 0.4:
        point: str | None = rng.choice(forced or points)
        assert point is not None
        killed = _killed_at(child, point)
    else:
        point = None
        child.wait(lambda _: _ending(child), rng.uniform(0.0, 0.5))
        family = child.family
        killed = bool(family.workers) and family.kill("worker", rng.randrange(8)) > 0
    at = time.monotonic()
    if not killed or _ending(child):
        return
    tally.killed("worker", point)
    before = _epochs(child)  # the epoch that was hit needs longer to come to its commit than this
    if child.wait(lambda _: _epochs(child) > before or _ending(child), EPOCH_SECONDS):
        committed = [e["at"] for e in child.told("epoch") if e["at"] > at]
        if committed:
            tally.recovery_ms.append(1000 * (committed[0] - at))


def _killed_at(child: Child, point: str) -> bool:
    number = time.monotonic_ns()  # a worker obeys an order of a new number only
    _give_order(child, Order(step=point, victim="worker", number=number))
    fired = child.orders / f"fired-{number}.json"
    until = time.monotonic() + EPOCH_SECONDS
    while not fired.exists() and not _ending(child) and time.monotonic() < until:
        child.wait(lambda _: _ending(child), 0.01)
    return fired.exists()
