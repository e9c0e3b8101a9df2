"""Histories: long lives of checkpoints and output folders, against a plain model of the folder.

A history is a sequence that a seed draws: more input, stops, crashes, the finish, checkpoints that
are deleted or begun beside old folders, folders that are appended to, overwritten, moved away or
deleted, epochs that readers take. Law: after every step a plain reader of the folder finds the rows
of the model in its order; what must be refused is refused, by name, and changes nothing.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import polars as pl

import penstock as ps
from penstock.base.config import Config
from penstock.base.errors import FinishedError, OutputError, PenstockError
from penstock.compiler import compile_query
from penstock.driver.driver import Driver
from penstock.files.disk import RealDisk
from penstock.files.place import LocalFiles, in_place_of_local
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.task.worker import Worker
from penstock.testing.faults.disks import Crash, Fault, FaultyDisk
from penstock.testing.faults.machine import SOUND, Store
from penstock.testing.faults.oracle import Difference, parted
from penstock.testing.faults.scenario import replaced
from penstock.testing.runner import frame_splits, run_stages

SCHEMA = {"a": pl.Int64(), "ts": pl.Datetime("us")}
STEPS = 28
_CONFIG = Config(fsync=False, buckets=4, retainEpochs=1, retainSeconds=0)
_ORIGIN = datetime(2024, 1, 1)
_MODES = ("error", "error", "append", "overwrite")


@dataclass(slots=True)
class Model:
    """A checkpoint as the model sees it: what was fed to it, in order, and what waits.

    Attributes:
        path: Where it is.
        fed: How many epochs of input it has.
        waiting: The last row, which an ordered sink keeps until a later one comes.
        final: Whether it is finished.
        stuck: Whether an epoch of its waits for a folder that another has taken.
        alive: Whether it is still there.
    """

    path: Path
    fed: int = 0
    waiting: list[int] = field(default_factory=list)
    final: bool = False
    stuck: bool = False
    alive: bool = True

    def give(self, rows: Sequence[int], *, final: bool = False) -> list[int]:
        """Return what an epoch of these rows writes."""
        known = [*self.waiting, *rows]
        cut = len(known) if final or not known else len(known) - 1
        self.waiting, self.final = known[cut:], final
        self.fed += not final
        return known[:cut]


@dataclass(slots=True, kw_only=True)
class History:
    """What a history came to."""

    seed: int
    odd: Difference = field(default_factory=Difference)
    crashes: int = 0
    refused: int = 0
    steps: int = 0
    told: list[str] = field(default_factory=list)


def live(seed: int, folder: Path, store: Store = SOUND) -> History:
    """Live through the history of a seed, in a folder that is empty."""
    world = _World(seed, folder, store)
    with replaced(store.changes):
        try:
            world.run()
        except Exception as error:  # whatever it is, the history has failed
            world.found.odd.add(f"{type(error).__name__}: {error}")
    if world.found.odd:
        world.found.odd.notes.append(f"steps: {'; '.join(world.found.told)}")
    return world.found


@lru_cache
def _query(out: Path, mode: str) -> CompiledQuery:
    stream = ps.from_rows([], schema=SCHEMA, time="ts").select("a", "ts")
    return compile_query(stream.write_parquet(out, ordered=True, mode=mode).sinks, buckets=4)


class _World:
    """The folder, its checkpoints, the query that runs, and the model of all of it."""

    def __init__(self, seed: int, folder: Path, store: Store) -> None:
        self.choice, self.store = random.Random(f"history {seed}"), store
        self.folder, self.out = folder, folder / "out"
        self.found = History(seed=seed)
        self.epochs: list[list[int]] = []
        self.kept: dict[Path, list[int]] = {}
        self.checkpoints: list[Model] = []
        self.owner: Model | None = None
        self.now: Model | None = None
        self.driver: Driver | None = None
        self.rows = 0
        self.worker = Worker()

    def run(self) -> None:
        self._begin(self._new())
        for _ in range(STEPS):
            step = self.choice.choice(self._steps())
            self.found.told.append(step.__name__.strip("_"))
            step()
            self.found.steps += 1
            self._check(step.__name__)
        self._stop()
        for checkpoint in self.checkpoints:
            if checkpoint.alive and checkpoint.fed:
                for note in parted(checkpoint.path, taken=True):
                    self.found.odd.add(note)

    def _steps(self) -> list[Callable[[], None]]:
        running = [self._feed] * 8 + [self._restart] + [self._crash] * 4
        running += [self._move_folder, self._take_epoch, self._remove_folder]
        changes = [self._remove_checkpoint, self._another, self._return]
        running += [self._finish, self._overtake]
        return running + changes if self.driver is not None else changes

    # Steps

    def _feed(self) -> None:
        assert self.now is not None
        rows = self._next_rows()
        try:
            self._epoch(rows)
        except FinishedError:
            self._expect(self.now.final, "input was refused, though nobody had finished")
            return
        except OutputError:
            self._expect(self.owner is not self.now, "a query was refused its own folder")
            self.now.give(rows)
            self.now.stuck = True
            self._stop()
            return
        self._expect(not self.now.final, "input after the finish was ignored", 0)
        self._expect(self.owner is self.now, "a query wrote into a folder of another's", 0)
        self._publish(self.now.give(rows))

    def _restart(self) -> None:
        assert self.now is not None
        self._stop()
        self._begin(self.now)

    def _crash(self) -> None:
        """Die somewhere in a start or an epoch; then start again, and ask for the epoch again."""
        assert self.now is not None
        if self.now.final or self.owner is not self.now:
            return
        rows, fed = self._next_rows(), self.now.fed
        self.worker = Worker()
        self.driver = None
        try:
            with self._files([Fault(at=self.choice.randrange(self.choice.choice((15, 40, 70))))]):
                self._open(self.now, "error")
                self._epoch(rows)
        except Crash:
            self.found.crashes += 1
            self.driver = None
            with self._files():
                self._open(self.now, "error")
                self._ask(fed, rows)
        with self._files():
            self._open(self.now, "error")  # on a disk without faults
        self._publish(self.now.give(rows))

    def _finish(self) -> None:
        assert self.now is not None
        assert self.driver is not None
        if self.owner is not self.now:
            return
        with self._files():
            self.driver.finish(lambda query, plan: run_stages(query, plan, [], self.worker))
        if not self.now.final:
            self._publish(self.now.give([], final=True))

    def _remove_checkpoint(self) -> None:
        """Delete the checkpoint and begin anew in its place."""
        assert self.now is not None
        self._stop()
        shutil.rmtree(self.now.path)
        self.now.alive = False
        self._begin(self._new(self.now.path))

    def _another(self) -> None:
        """Begin a query on a checkpoint beside the others."""
        self._stop()
        self._begin(self._new())

    def _overtake(self) -> None:
        """Let another query take the folder while this one runs, and give this one input."""
        if self.owner is not self.now or self.now is None or self.now.final:
            return
        before, self.driver = (self.now, self.driver), None
        self._begin(self._new(), self.choice.choice(("append", "overwrite")))
        after = (self.now, self.driver)
        self.now, self.driver = before
        self._feed()
        self.now, self.driver = after

    def _return(self) -> None:
        """Go on with a checkpoint that others may have come after."""
        self._stop()
        self._begin(self.choice.choice([c for c in self.checkpoints if c.alive]))

    def _move_folder(self) -> None:
        if self.out.exists():
            place = self.folder / f"kept-{len(self.kept)}"
            self.out.rename(place)
            self.kept[place] = self._model()
            self.epochs = []

    def _remove_folder(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.epochs = []

    def _take_epoch(self) -> None:
        if len(self.epochs) > 1:
            shutil.rmtree(min(self.out.glob("epoch=*"), key=lambda p: int(p.name[6:])))
            self.epochs.pop(0)

    # What they are made of

    def _new(self, path: Path | None = None) -> Model:
        model = Model(path or self.folder / f"checkpoint-{len(self.checkpoints)}")
        self.checkpoints.append(model)
        return model

    def _begin(self, model: Model, mode: str | None = None) -> None:
        """Start a query, or see that it is refused; then some other mode has to do."""
        mode = mode or self.choice.choice(_MODES)
        allowed = self._allowed(model, mode)
        self.now = model
        try:
            with self._files():
                self._open(model, mode)
        except OutputError as error:
            self.found.refused += 1
            self._expect(not allowed, f"a start was refused: {error}")
            self._expect(str(self.out) in str(error), f"the error names no folder: {error}")
            self.driver = None
            return
        self._expect(allowed, f"a start with mode={mode!r} took a folder of another's", 0)
        if self.owner is not model:
            self.epochs = [] if mode == "overwrite" else self.epochs
            self.owner = model

    def _allowed(self, model: Model, mode: str) -> bool:
        if self.owner is model:
            return True
        if mode != "error":
            return not model.stuck
        other = self.owner is not None and self.owner.alive and self.owner.path != model.path
        return not self.epochs and not other and not model.stuck

    def _open(self, model: Model, mode: str) -> None:
        query = _query(self.out, mode)
        self.driver = Driver(query, model.path, _CONFIG, clock=lambda: 0.0)

    def _stop(self) -> None:
        if self.driver is not None:
            with self._files():
                self.driver.close()
        self.driver = None

    def _epoch(self, rows: Sequence[int]) -> None:
        assert self.now is not None
        with self._files():
            self._ask(self.now.fed, rows)

    def _ask(self, epoch: int, rows: Sequence[int]) -> None:
        """Ask for an epoch by its number, as Spark does: the closing epoch has none there."""
        assert self.driver is not None

        def execute(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
            times = [_ORIGIN + timedelta(seconds=row) for row in rows]
            frame = pl.DataFrame({"a": list(rows), "ts": times}, schema=SCHEMA)
            return run_stages(query, plan, frame_splits(query, {0: [frame]}), self.worker)

        self.driver.run_epoch(epoch, execute)

    def _next_rows(self) -> list[int]:
        first, self.rows = self.rows, self.rows + self.choice.choice((2, 2, 3))
        return list(range(first, self.rows))

    def _publish(self, rows: list[int]) -> None:
        if rows:
            self.epochs.append(rows)

    @contextmanager
    def _files(self, faults: Sequence[Fault] = ()) -> Iterator[None]:
        disk = FaultyDisk(RealDisk(), list(faults)) if faults else RealDisk()
        files = _FILES if not faults else LocalFiles(disk, fsync=False)
        with in_place_of_local(lambda fsync: files):
            yield

    # Checks

    def _expect(self, holds: bool, note: str, count: int = 1) -> None:
        if not holds:
            self.found.odd.add(note)
            if not count:
                raise PenstockError(note=note)

    def _model(self) -> list[int]:
        return [row for epoch in self.epochs for row in epoch]

    def _check(self, step: str) -> None:
        for place, right in {**self.kept, self.out: self._model()}.items():
            found = _read(place)
            if found != right:
                odd, step = self.found.odd, step.strip("_")
                odd.lost += len(set(right) - set(found))
                odd.duplicated += len(found) - len(set(found))
                odd.add(f"after {step}: {place.name} holds {found}, not {right}")
                raise PenstockError(note=f"{step} went wrong")


_FILES = LocalFiles(fsync=False)
"""One for all that a process does, as outside of tests: it remembers what folders it has made."""


def _read(folder: Path) -> list[int]:
    """Return the rows of a folder as a reader finds them that goes by name."""
    paths = sorted(folder.glob("*/*.parquet"))
    frames = [pl.read_parquet(path, hive_partitioning=False) for path in paths]
    return [row for frame in frames for row in frame["a"].to_list()]
