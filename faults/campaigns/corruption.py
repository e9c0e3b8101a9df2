"""The corruption campaign: one file of a checkpoint is damaged, and it has to be noticed.

A trial takes a fresh copy of a specimen, damages one file, verifies the checkpoint, and lets a new
driver go on with it to the end. Law: damage is named, by an error or by `verify`, or it does not
matter, and then the outcome is that of the run that nobody disturbed. What a driver never reads,
such as rows that were published long ago, `verify` alone can name; such trials are told apart.
Trials run in processes of their own, so one that takes its interpreter down, or hangs, is counted
and not the end.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from faults.report import CampaignResult, Log
from penstock.base.errors import PenstockError
from penstock.state.care.verify import verify
from penstock.testing.faults.corruption import DAMAGES, Corruption, choose, files_by_kind
from penstock.testing.faults.specimens import STATES, Outcome, Specimen

HANG_SECONDS = 180.0
"""A trial takes a fraction of a second, but on a machine that others share it may wait for long."""
MEMORY = "/dev/shm"
KINDS = 16
"""How many kinds of file there are: see `files_by_kind`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a trial went.

    Attributes:
        seed: Its seed.
        kind: The kind of file that was damaged.
        damage: What was done to it.
        verdict: ``detected``, ``harmless``, ``undetected``, ``unnamed``, ``crashed`` or ``hung``.
        lost: Rows that are missing though nothing was noticed.
        duplicated: Rows too many though nothing was noticed.
        differing: Other differences though nothing was noticed.
        by_verify_alone: Whether the query went on to other rows, and only `verify` named the file.
        recovery_ms: How long the run took to its end, or to its error.
        remark: What was found, in a few words.
    """

    seed: int
    kind: str = ""
    damage: str = ""
    verdict: str = ""
    lost: int = 0
    duplicated: int = 0
    differing: int = 0
    by_verify_alone: bool = False
    recovery_ms: float = 0.0
    remark: str = ""


class Bench:
    """Specimens in all states, ready for trials, in a folder of one process."""

    def __init__(self, folder: Path) -> None:
        """Prepare the specimens and learn what comes of them undisturbed."""
        self.specimens = {state: Specimen(folder=folder, state=state) for state in STATES}
        self.clean: dict[str, Outcome] = {}
        self.files: dict[str, dict[str, list[Path]]] = {}
        for state, specimen in self.specimens.items():
            specimen.prepare()
            specimen.fresh()
            odd = verify(specimen.home).findings
            assert not odd, f"an undamaged checkpoint is found damaged: {odd}"
            self.files[state] = files_by_kind(specimen.home)
            self.clean[state] = specimen.go_on()

    def trial(self, seed: int) -> Trial:
        """Make the trial of a seed."""
        state = state_of(seed)
        specimen = self.specimens[state]
        specimen.fresh()
        corruption = choose(seed, self.files[state])
        corruption.apply()
        named = _verified(specimen, corruption)
        since = time.perf_counter()
        try:
            found = specimen.go_on()
        except (PenstockError, OSError) as error:
            told = f"{type(error).__name__}: {error}"
            verdict = "detected" if named or _names(told, corruption) else "unnamed"
            return _trial(seed, state, corruption, verdict, since, told)
        except Exception as error:  # any other way to end is a defect
            told = f"{type(error).__name__}: {error}"
            return _trial(seed, state, corruption, "crashed", since, told, differing=1)
        return _judged(seed, state, corruption, named, since, found, self.clean[state])


_STATES = ("unpublished", "uncommitted", "stopped", "unpublished", "uncommitted", "begun")


def state_of(seed: int) -> str:
    """Return the state of the specimen that a trial damages."""
    return _STATES[seed % len(_STATES)]


def _verified(specimen: Specimen, corruption: Corruption) -> str:
    """Return what verify says about the damaged file; nothing if it does not name it."""
    outcome = verify(specimen.home)
    told = [f"{item.path}: {item.wrong}" for item in (*outcome.findings, *outcome.notes)]
    return next((text for text in told if _names(text, corruption)), "")


def _names(text: str, corruption: Corruption) -> bool:
    """Return whether a text names a damaged file, or the epoch or folder that it was all of."""
    for path in corruption.paths:
        tail = f"{path.parent.name}/{path.name}"
        alone = f"{path.parent.parent.name}/{path.parent.name}:"
        beside = f"{path.parent.name}/{path.name.lstrip('.').removesuffix('.crc')}"
        part = f"{path.parent.name}/{path.name[:10]}:"
        if any(word in text for word in (tail, alone, part)):
            return True
        if corruption.kind == "crc" and beside in text:
            return True
    return False


def _judged(
    seed: int,
    state: str,
    corruption: Corruption,
    named: str,
    since: float,
    found: Outcome,
    clean: Outcome,
) -> Trial:
    lost, duplicated, differing = differences(found, clean)
    if named:
        changed = bool(lost or duplicated or differing)
        return _trial(seed, state, corruption, "detected", since, named, by_verify_alone=changed)
    verdict = "undetected" if lost or duplicated or differing else "harmless"
    return _trial(
        seed,
        state,
        corruption,
        verdict,
        since,
        lost=lost,
        duplicated=duplicated,
        differing=differing,
    )


def differences(found: Outcome, clean: Outcome) -> tuple[int, int, int]:
    """Return how many rows an outcome lacks, how many it has too many, and what else differs."""
    lost = duplicated = 0
    for name in (found.keys() | clean.keys()) - {"totals"}:
        ours: Counter[str] = Counter(found.get(name, ()))
        right: Counter[str] = Counter(clean.get(name, ()))
        lost += (right - ours).total()
        duplicated += (ours - right).total()
    return lost, duplicated, int(found["totals"] != clean["totals"])


def _trial(
    seed: int,
    state: str,
    corruption: Corruption,
    verdict: str,
    since: float,
    told: str = "",
    *,
    by_verify_alone: bool = False,
    **counts: int,
) -> Trial:
    name = f"{corruption.path.parent.name}/{corruption.path.name}"
    return Trial(
        seed=seed,
        kind=corruption.kind,
        damage=corruption.damage,
        verdict=verdict,
        recovery_ms=(time.perf_counter() - since) * 1000,
        remark=f"{state} {corruption.kind} {corruption.damage} {name}: {told}"[:500],
        by_verify_alone=by_verify_alone,
        **counts,
    )


Prepare = Callable[[], None]
"""Is called in each process before its trials; a test breaks the store with it."""


def run(
    trials: int,
    seed: int,
    log: Log,
    *,
    workers: int | None = None,
    prepare: Prepare | None = None,
) -> CampaignResult:
    """Make a number of trials; with one trial, the one of that seed.

    Args:
        trials: How many trials.
        seed: The seed of the first; the others follow.
        log: Takes a line about how it goes.
        workers: How many processes to use; as many as there are cores, at most two, unless given.
        prepare: Called in each process first.
    """
    since = time.perf_counter()
    done = []
    for trial in trials_of(range(seed, seed + trials), workers or _workers(trials), prepare):
        done.append(trial)
        if trial.verdict not in ("detected", "harmless"):
            log(f"seed {trial.seed}: {trial.verdict}: {trial.remark}")
        if len(done) % 250 == 0:
            log(f"{len(done)} of {trials} trials, {time.perf_counter() - since:.0f} s")
    result = _result(done, time.perf_counter() - since)
    verdicts = Counter(trial.verdict for trial in done)
    log(", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    alone = Counter(f"{t.damage} {t.kind}" for t in done if t.by_verify_alone)
    told = ", ".join(f"{count} {what}" for what, count in sorted(alone.items())) or "none"
    log(f"detected by verify alone, the query having gone on to other rows: {told}")
    return result


def _workers(trials: int) -> int:
    return 1 if trials < 20 else min(2, os.cpu_count() or 1)


def _result(done: list[Trial], seconds: float) -> CampaignResult:
    good = ("detected", "harmless")
    covered = {(t.kind, t.damage) for t in done if t.kind}
    return CampaignResult(
        campaign="corruption",
        trials=len(done),
        faults=len(done),
        points=len(covered) if len(done) >= KINDS * len(DAMAGES) * 12 else None,
        points_total=POINTS if len(done) >= KINDS * len(DAMAGES) * 12 else None,
        lost=sum(t.lost for t in done),
        duplicated=sum(t.duplicated for t in done),
        differing=sum(t.differing for t in done),
        detected=sum(t.verdict == "detected" for t in done),
        undetected=sum(t.verdict not in good for t in done),
        recovery_ms=[t.recovery_ms for t in done if t.verdict == "harmless"],
        failing=[t.seed for t in sorted(done, key=lambda t: t.seed) if t.verdict not in good],
        seconds=seconds,
    )


POINTS = 126
"""How many pairs of a kind of file and a damage there are; a test counts them."""


def trials_of(seeds: Iterable[int], workers: int, prepare: Prepare | None) -> Iterator[Trial]:
    """Yield trials as they come from several processes; one that dies is replaced."""
    waiting = list(seeds)[::-1]
    memory = MEMORY if os.path.isdir(MEMORY) else None
    folder = Path(tempfile.mkdtemp(prefix="penstock-corruption-", dir=memory))
    crew = [_Worker(folder / str(number), prepare) for number in range(workers)]
    try:
        for worker in crew:
            worker.take(waiting)
        while any(worker.seed is not None for worker in crew):
            ready = wait([w.pipe for w in crew if w.seed is not None], timeout=1.0)
            for worker in crew:
                if worker.pipe in ready and not worker.ready:
                    worker.begin_trials()
                elif worker.pipe in ready or worker.overdue:
                    yield worker.give()
                    worker.take(waiting)
    finally:
        for worker in crew:
            worker.end()
        shutil.rmtree(folder, ignore_errors=True)


class _Worker:
    """A process that makes trials."""

    def __init__(self, folder: Path, prepare: Prepare | None) -> None:
        self.folder, self.prepare = folder, prepare
        self.seed: int | None = None
        self.since = 0.0
        self._begin()

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, self.folder, self.prepare), daemon=True
        )
        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # small frames, and a core each
        self.process.start()
        theirs.close()
        self.ready = False

    @property
    def overdue(self) -> bool:
        late = time.monotonic() - self.since > HANG_SECONDS
        return self.seed is not None and self.ready and late

    def take(self, waiting: list[int]) -> None:
        """Begin the next trial, if there is one."""
        self.seed = waiting.pop() if waiting else None
        if self.seed is not None:
            self.since = time.monotonic()
            self.pipe.send(self.seed)

    def begin_trials(self) -> None:
        """Take note that the process has prepared its specimens."""
        try:
            self.pipe.recv()
        except EOFError:
            raise RuntimeError("a worker of the campaign could not prepare its specimens") from None
        self.ready, self.since = True, time.monotonic()

    def give(self) -> Trial:
        """Return the trial that is done; if the process died or hangs, begin a new process."""
        assert self.seed is not None
        verdict = "hung" if self.overdue else "crashed"
        if not self.overdue:
            try:
                trial: Trial = self.pipe.recv()
                return trial
            except (EOFError, OSError):
                pass
        self.end()
        self._begin()
        return Trial(seed=self.seed, verdict=verdict, differing=1, remark="the process ended")

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(pipe: Connection, folder: Path, prepare: Prepare | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bench = Bench(folder)
    if prepare is not None:
        prepare()
    pipe.send("ready")
    while True:
        try:
            seed = pipe.recv()
        except EOFError:
            return
        pipe.send(bench.trial(seed))
