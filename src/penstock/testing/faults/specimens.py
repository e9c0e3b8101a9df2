"""Specimens: checkpoints to be damaged, in several states, and what must come of them.

Each has compacted state, late rows, dead letters, rows of the program, plans, two pins, retired
epochs and the log of an imitated Spark. Law: a specimen is the same at every preparation, down to
the names of its files, so a trial on it can be repeated.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.driver.outputs import read_side_output
from penstock.files.place import LocalFiles, in_place_of_local, place_of
from penstock.plan.compiled import CompiledQuery
from penstock.query import nodes
from penstock.query.stream import Stream
from penstock.sinks.publish import read_published
from penstock.testing.faults.imitation import ImitatedRun, Tables, write_inputs

SCHEMA = {"k": pl.String(), "s": pl.String(), "ts": pl.Datetime("us")}
INPUTS, STOP = 12, 10
"""How many epochs have input, and in which one a specimen is taken."""
STATES = ("unpublished", "uncommitted", "stopped", "begun")
"""In which state the driver left the checkpoint when it died."""
_FIRST = datetime(2026, 1, 1)
_CONFIG = Config(fsync=False, buckets=16, instances=2, retainEpochs=5, retainSeconds=20)

Outcome = dict[str, Any]
"""What a run leaves: rows by sink and side output, as sorted texts, and the totals."""


@dataclass
class Specimen:
    """A checkpoint in one state, kept aside; `fresh` puts a copy where it was made.

    The files of the copy are links, so damage has to replace them, never to write into them.
    """

    folder: Path
    state: str
    tables: Tables = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """How many epochs have input."""
        return 3 if self.state == "begun" else INPUTS

    @property
    def live(self) -> Path:
        """Where the specimen is used; its manifests name files by these paths."""
        return self.folder / "live"

    @property
    def home(self) -> Path:
        """The checkpoint."""
        return self.live / "checkpoint"

    @property
    def kept(self) -> Path:
        """Where the specimen is kept."""
        return self.folder / self.state

    def prepare(self) -> None:
        """Make the specimen."""
        self.remove()
        with naming("a"):
            write_inputs(self.live / "input", _frames(self.inputs))
            if self.state == "begun":
                self._run(late_sink=True).die(committed=False)
            else:
                self._run(late_sink=False).run_until(3)
                run = self._run(late_sink=True)
                run.run_until(STOP - (self.state != "stopped"))
                if self.state != "stopped":
                    run.die(committed=self.state == "unpublished")
        os.rename(self.live, self.kept)

    def _run(self, *, late_sink: bool = True) -> ImitatedRun:
        return ImitatedRun(query_in(self.live, late_sink), self.home, _CONFIG, self.tables)

    def fresh(self) -> None:
        """Put an undamaged copy into use."""
        self.remove()
        shutil.copytree(self.kept, self.live, copy_function=os.link)

    def remove(self) -> None:
        """Remove the copy in use."""
        shutil.rmtree(self.live, ignore_errors=True)

    def go_on(self, life: str = "b") -> Outcome:
        """Start the query on the copy in use and run it to its end; return what came of it.

        Raises:
            PenstockError: The query would not start, or stopped.
        """
        tables = deepcopy(self.tables)
        with naming(life):
            run = ImitatedRun(query_in(self.live, True), self.home, _CONFIG, tables)
            run.finish()
            return self.outcome(run, tables)

    def outcome(self, run: ImitatedRun, tables: Tables) -> Outcome:
        """Return what a run has left, every file verified."""
        root = run.driver.root
        found: Outcome = {}
        for name in ("out", "raw"):
            found[name] = _texts(read_published(place_of(self.live / name)).values())
        for kind in ("late", "dead"):
            frames = read_side_output(root, kind)
            for source, frame in frames.items():
                found[f"{kind} {source}"] = _texts([frame.drop("epoch")])
        for sink, epochs in tables.items():
            rows = [repr(sorted(row.items())) for e in epochs.values() for row in e]
            found[f"sink {sink}"] = sorted(rows)
        last = run.driver.last
        return found | {"totals": dict(last.totals) if last else {}}


def _texts(frames: Any) -> list[str]:
    return sorted(repr(row) for frame in frames for row in frame.rows())


@contextmanager
def naming(life: str) -> Iterator[None]:
    """Let files get the same names in every run of a life."""
    numbers = count()
    files = LocalFiles(fsync=False, unique=lambda: f"{life}{next(numbers):07d}")
    with in_place_of_local(lambda fsync: files):
        yield


@lru_cache
def query_in(live: Path, late_sink: bool) -> CompiledQuery:
    """Return the query of all specimens; its sink in order comes later than the others."""
    calls = ps.read_arrow(
        live / "input",
        time="ts",
        schema=SCHEMA,
        delay="2 seconds",
        idle="15 seconds",
        max_files_per_epoch=1,
        name="calls",
    )
    rows = calls.union(_given()).map(x="cast(s as bigint)")
    sums = rows.aggregate(
        by="k", window=ps.sliding("20 seconds", every="5 seconds"), n="count(*)", total="sum(x)"
    )
    sinks = sums.write_parquet(str(live / "out")).also(
        rows.select("k", "x").write_parquet(str(live / "raw"))
    )
    if late_sink:
        sinks = sinks.also(sums.filter("n > 1").write_memory("few", ordered=True))
    return compile_query(sinks.sinks, buckets=_CONFIG.buckets, instances=_CONFIG.instances)


def _given() -> Stream:
    rows = [{"k": f"g{i}", "s": str(i), "ts": _FIRST + timedelta(seconds=i)} for i in range(5)]
    reader = nodes.Rows(rows=pl.DataFrame(rows, schema=SCHEMA))
    return Stream(
        nodes.Source(
            schema=SCHEMA,
            name="given",
            time="ts",
            delay_us=2_000_000,
            reader=reader,
            idle_us=15_000_000,
        )
    )


def _frames(epochs: int) -> list[pl.DataFrame]:
    rng = random.Random(7)
    return [pl.DataFrame(_rows(rng, epoch), schema=SCHEMA) for epoch in range(epochs)]


def _rows(rng: random.Random, epoch: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for i in range(12):
        second = 4 * (epoch + i / 12) + rng.uniform(-1, 1)
        word = "no number" if i == 5 and epoch % 3 == 1 else str(rng.randrange(100))
        found.append({"k": rng.choice("abcdef"), "s": word, "ts": _at(second)})
    if epoch % 2:
        found.append({"k": "late", "s": "1", "ts": _at(-30)})
        found.append({"k": "timeless", "s": "1", "ts": None})
    return found


def _at(second: float) -> datetime:
    return _FIRST + timedelta(seconds=100 + second)
