"""Moves of buckets: whatever moves, by whichever protocol, the rows are those of the reference.

Time windows of every kind, rows out of order and late, tails one after the other, crashes,
rescales, restarts and the end of the input while tails are open.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import polars as pl
from hypothesis import event, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import penstock as ps
from penstock.compiler import STRATEGIES
from penstock.control import read_speed
from penstock.query.stream import Sinks
from penstock.testing.streams import TestStream
from tests.property.queries import COLUMNS, VALUES, QueryText
from tests.property.strategies import (
    ORIGINS,
    Add,
    Crash,
    Event,
    MoveBuckets,
    Rescale,
    Restart,
    Row,
    Scenario,
    values,
)

WINDOWS: dict[str, ps.TimeWindow] = {
    "5s": ps.tumbling("5 seconds"),
    "1m": ps.tumbling("1 minute"),
    "10s/5s": ps.sliding("10 seconds", every="5 seconds"),
    "10s/4s+3s": ps.sliding("10 seconds", every="4 seconds", offset="3 seconds"),
    "7s/3s": ps.sliding("7 seconds", every="3 seconds"),
    "30s/1s": ps.sliding("30 seconds", every="1 second"),
    "2.5s/1.5s": ps.sliding("2500 ms", every="1500 ms"),
}


@dataclass(frozen=True)
class MovesText(QueryText):
    """An aggregate over time windows, and an aggregate of its results."""

    window: str = "5s"
    by: tuple[str, ...] = ()
    names: tuple[str, ...] = ("rows",)
    ordered: bool = False

    def build(self, folder: Path) -> Sinks:
        """Return the query."""
        sources = [
            ps.from_rows([], schema=COLUMNS, time="ts", name=f"s{i}", delay=timedelta(seconds=d))
            for i, d in enumerate(self.delays)
        ]
        united = sources[0].union(*sources[1:]) if sources[1:] else sources[0]
        chosen = {f"v{i}": VALUES[name][1] for i, name in enumerate(self.names)}
        made = united.aggregate(by=self.by, window=WINDOWS[self.window], **chosen)
        later = made.aggregate(window=ps.sliding("20 seconds", every="4 seconds"), n="count(*)")
        return made.write_memory("m", ordered=self.ordered).also(later.write_memory("later"))


@st.composite
def arrivals(draw: st.DrawFn) -> list[Row]:
    """Draw rows that go on steadily, so that windows stay open for some epochs."""
    clock, rows = draw(st.sampled_from(ORIGINS)) - timedelta(seconds=7), []
    for advance, behind, k, g, x, s in draw(st.lists(_fields, min_size=30, max_size=70)):
        clock += timedelta(seconds=advance)
        rows.append({"k": k, "g": g, "x": x, "y": x and x / 4, "s": s, "d": None,
                     "ts": clock - timedelta(seconds=behind)})  # fmt: skip
    return rows


_fields = st.tuples(
    st.sampled_from([0, 0.5, 1, 1, 2, 3, 0, 0.5, 1, 1, 2, 3, 40]),
    st.sampled_from([0, 0, 0.5, 1, 3, 5, 9, 30]),
    st.sampled_from(["a", "b", "c", "d", None]),
    st.sampled_from([0, 1, 2, None]),
    st.sampled_from([0, 1, 4, -7, 9, 60, None]),
    st.sampled_from(["1", "2", "3", "4", None, "z"]),
)
INSTANCES = st.integers(1, 5)
protocols = st.sampled_from(["window", "window", "window", "state", "auto"])
adds = st.builds(
    Add, sizes=st.tuples(st.integers(1, 12), st.integers(0, 12)), splits=st.integers(1, 3)
)
moves = st.builds(
    MoveBuckets,
    subquery=st.integers(0, 1),
    first=st.integers(0, 3),
    step=st.integers(1, 3),
    shift=st.integers(1, 4),
    protocol=protocols,
)
others: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Crash,
        sizes=st.none() | st.tuples(st.integers(0, 12), st.integers(0, 12)),
        committed=st.booleans(),
        lose_workers=st.booleans(),
    ),
    st.builds(Rescale, subquery=st.integers(0, 9), instances=INSTANCES, protocol=protocols),
    st.builds(Restart, strategy=st.sampled_from(STRATEGIES), instances=INSTANCES),
)
turns = st.tuples(
    st.one_of(
        moves.map(lambda m: (m,)),
        moves.map(lambda m: (m,)),
        st.lists(moves | others, max_size=2).map(tuple),
    ),
    adds,
)
"""Changes, and then an epoch."""


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw an aggregate, its rows, and a run with many moves."""
    delays = draw(st.sampled_from([(0,), (2,), (5,), (20,), (5, 2)]))
    query = MovesText(
        delays=delays,
        window=draw(st.sampled_from(list(WINDOWS))),
        by=draw(st.sampled_from([("k",), ("g",), ("k", "g"), ()])),
        names=draw(values),
        ordered=draw(st.booleans()),
    )
    return Scenario(
        query=query,
        rows=tuple(draw(arrivals()) for _ in delays),
        events=_flat(draw(adds), draw(st.lists(turns, min_size=2, max_size=8))),
        finish=draw(st.booleans()),
        instances=draw(st.integers(2, 5)),
        strategy=draw(st.sampled_from(STRATEGIES)),
        buckets=draw(st.sampled_from([1024, 7])),
        tight=draw(st.booleans()),
        workers=draw(st.integers(1, 3)),
    )


def _flat(first: Event, turns: list[tuple[tuple[Event, ...], Event]]) -> tuple[Event, ...]:
    return (first, *[step for changes, add in turns for step in (*changes, add)])


@given(scenario=scenarios())
def test_moves_change_no_row(scenario: Scenario) -> None:
    scenario.check()


@given(
    rows=arrivals(),
    window=st.sampled_from(list(WINDOWS)),
    plan=st.lists(st.tuples(st.integers(0, 12), st.none() | moves), min_size=2, max_size=12),
)
def test_state_is_the_same_with_and_without_moves(
    rows: list[Row], window: str, plan: list[tuple[int, MoveBuckets | None]]
) -> None:
    """What an operator keeps, main lineage and tails together, is what it keeps unmoved."""
    source = ps.from_rows([], schema=COLUMNS, time="ts", delay="3 seconds")
    counted = source.aggregate(by="k", window=WINDOWS[window], n="count(*)", t="sum(x)")
    query = counted.write_memory()
    with (
        TemporaryDirectory() as folder,
        TestStream(query, Path(folder) / "still", instances=3, buckets=7) as still,
        TestStream(query, Path(folder) / "moved", instances=3, buckets=7) as moved,
        patch.object(read_speed, "READ_BYTES_PER_SECOND", 1),
    ):
        tails = 0
        for size, move in plan:
            if move is not None:
                found = move.moves(moved.owners[1])
                moved.move(1, found, protocol=move.protocol)
            taken, rows = rows[:size], rows[size:]
            still.add(taken)
            moved.add(taken)
            tails += bool(moved.moving)
            assert_frame_equal(_sorted(still), _sorted(moved))
        event(f"{min(tails, 3)} epochs with tails")
        moved.expect_reference()


def _sorted(stream: TestStream) -> pl.DataFrame:
    state = stream.state()
    return state.sort("k", "pane_start") if state.height else pl.DataFrame()
