"""Count windows, sessions and tops: the rows of the reference, however a run is cut and crashed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.times import FINISHED
from penstock.compiler import STRATEGIES, compile_query
from penstock.operators.kernel import UNTIL, Kernel
from penstock.operators.kernels import kernel_of
from penstock.operators.stores import numbered_rows
from penstock.query.expressions import ExpressionLike
from penstock.query.stream import Sinks, Stream
from penstock.query.windows import Window
from penstock.testing.compare import difference
from tests.property.queries import COLUMNS, VALUES, QueryText
from tests.property.strategies import INSTANCES, Scenario, arrivals, events, keys, several, values

pytestmark = pytest.mark.filterwarnings("ignore:top without a window")

SESSIONS: dict[str, Window] = {
    "1s": ps.session("1 second"),
    "3s": ps.session("3 seconds"),
    "7.5s": ps.session("7500 ms"),
    "1m": ps.session("1 minute"),
}
COUNTS: dict[str, Window] = {
    "1": ps.count_window(1),
    "3": ps.count_window(3),
    "2/1": ps.count_window(2, every=1),
    "5/1": ps.count_window(5, every=1),
    "5/2": ps.count_window(5, every=2),
    "6/4": ps.count_window(6, every=4),
    "11/3": ps.count_window(11, every=3),
}
TOPS: dict[str, ps.TimeWindow | None] = {
    "moment": None,
    "5s": ps.tumbling("5 seconds"),
    "10s/2s": ps.sliding("10 seconds", every="2 seconds"),
    "7s/3s": ps.sliding("7 seconds", every="3 seconds"),
}
ORDERS: dict[str, ExpressionLike] = {
    "x": "x",
    "y": "y",
    "text": "s",
    "not a number": pl.when(pl.col("x") == 4).then(float("nan")).otherwise(pl.col("y")),
    "strict": "cast(s as bigint)",
    "constant": pl.lit(1),
}


def twice(stream: Stream) -> Stream:
    """Return each row two times: at the same place, told apart by a column or not at all."""
    return stream.union(stream.map(x="x + 1"), stream.filter("g = 1"))


def counted(stream: Stream) -> Stream:
    """Return results, which all have the position 0, in the columns of the rows."""
    counts = stream.aggregate(
        by="g", window=ps.sliding("4s", every="2s"), x="sum(x)", y="avg(y)", k="min(k)",
        s="last(s)", d="max(d)",
    )  # fmt: skip
    rounded = counts.map(y=pl.col("y").round(6))
    return rounded.select("k", "g", "x", "y", "s", "d", ts="window_end")


BEFORE = {"rows": lambda stream: stream, "twice": twice, "counted": counted}


@dataclass(frozen=True)
class WindowText(QueryText):
    """A query with one operator of ours, and perhaps an aggregate of its results."""

    before: str = "rows"
    kind: str = "session"
    which: str = "3s"
    by: tuple[str, ...] = ()
    names: tuple[str, ...] = ("rows",)
    k: int = 1
    descending: bool = True
    ordered: bool = False

    def build(self, folder: Path) -> Sinks:
        """Return the query."""
        sources = [
            ps.from_rows([], schema=COLUMNS, time="ts", name=f"s{i}", delay=timedelta(seconds=d))
            for i, d in enumerate(self.delays)
        ]
        united = sources[0].union(*sources[1:]) if sources[1:] else sources[0]
        made = self._operator(BEFORE[self.before](united))
        later = made.aggregate(window=ps.tumbling("5 seconds"), n="count(*)")
        return made.write_memory("m", ordered=self.ordered).also(later.write_memory("later"))

    def _operator(self, stream: Stream) -> Stream:
        if self.kind == "top":
            return stream.top(
                self.k, ORDERS[self.names[0]], by=self.by, window=TOPS[self.which],
                descending=self.descending,
            )  # fmt: skip
        window = (SESSIONS if self.kind == "session" else COUNTS)[self.which]
        named = {f"v{i}": VALUES[name][1] for i, name in enumerate(self.names)}
        return stream.aggregate(window=window, by=self.by, **named)


plain = st.builds(
    WindowText,
    delays=st.lists(st.sampled_from([0, 2, 5, 20]), min_size=1, max_size=2).map(tuple),
    before=st.sampled_from(["rows", "rows", *BEFORE]),
    by=keys,
    names=values,
    ordered=st.booleans(),
)
sessions = st.builds(
    lambda text, which: replace(text, kind="session", which=which),
    plain,
    st.sampled_from(list(SESSIONS)),
)
counts = st.builds(
    lambda text, which: replace(text, kind="count", which=which),
    plain,
    st.sampled_from(list(COUNTS)),
)
tops = st.builds(
    lambda text, which, order, k, descending: replace(
        text, kind="top", which=which, names=(order,), k=k, descending=descending
    ),
    plain,
    st.sampled_from(list(TOPS)),
    st.sampled_from(list(ORDERS)),
    st.integers(1, 4),
    st.booleans(),
)


@st.composite
def runs(draw: st.DrawFn, texts: st.SearchStrategy[WindowText]) -> Scenario:
    """Draw a query, its rows and what happens to its run."""
    text = draw(texts)
    return Scenario(
        query=text,
        rows=tuple(draw(arrivals()) for _ in text.delays),
        events=draw(several(events, 7)),
        finish=draw(st.booleans()),
        instances=draw(INSTANCES),
        strategy=draw(st.sampled_from(STRATEGIES)),
        buckets=draw(st.sampled_from([1024, 7])),
        tight=draw(st.booleans()),
        workers=draw(st.integers(1, 3)),
    )


@given(scenario=runs(sessions))
def test_sessions_agree_with_the_reference(scenario: Scenario) -> None:
    scenario.check()


@given(scenario=runs(counts))
def test_count_windows_agree_with_the_reference(scenario: Scenario) -> None:
    scenario.check()


@given(scenario=runs(tops))
def test_tops_agree_with_the_reference(scenario: Scenario) -> None:
    scenario.check()


KERNELS: dict[str, Window] = {
    "session": ps.session(timedelta(microseconds=5)),
    "count": ps.count_window(4, every=1),
    "count step": ps.count_window(5, every=3),
    "count tumbling": ps.count_window(3),
}
KERNEL_VALUES: dict[str, dict[str, ExpressionLike]] = {
    "partials": {
        "n": "count(*)",
        "s": "sum(x)",
        "f": "first(x)",
        "hi": "max(x)",
        "v": "variance(x)",
    },
    "sets": {"d": "count(distinct x)", "s": "sum(x)"},
    "rows": {"m": "median(x)", "all": pl.col("x").implode()},
}
SMALL: dict[str, pl.DataType] = {"k": pl.Int64(), "x": pl.Int64(), "ts": pl.Datetime("us")}


@dataclass(frozen=True)
class Epoch:
    """Rows as (time after the watermark, key, value), and what happens after them."""

    rows: tuple[tuple[int, int, int], ...]
    advance: int
    restore: bool
    compact: tuple[int, ...]


epochs = st.builds(
    Epoch,
    rows=several(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 3)), 4),
    advance=st.integers(0, 6),
    restore=st.booleans(),
    compact=st.lists(st.integers(0, 30), max_size=5).map(tuple),
)


def kernel_named(name: str, values: str) -> Kernel:
    stream = ps.from_rows([], schema=SMALL, time="ts")
    if name.startswith("top"):
        window = ps.sliding(timedelta(microseconds=6), every=timedelta(microseconds=2))
        made = stream.top(2, "x", by="k", window=window if name == "top" else None)
    else:
        made = stream.aggregate(by="k", window=KERNELS[name], **KERNEL_VALUES[values])
    query = compile_query(made.write_memory().sinks)
    return kernel_of(query, 1)


def prepared(kernel: Kernel, rows: list[tuple[int, int, int]], first: int) -> pl.DataFrame:
    """Return what a load balancer sends of rows of (time, key, value)."""
    frame = pl.DataFrame(
        rows, schema={TIME: pl.Int64(), "k": pl.Int64(), "x": pl.Int64()}, orient="row"
    )
    placed = frame.with_columns(
        pl.col(TIME).cast(pl.Datetime("us")).alias("ts"),
        pl.lit(0, dtype=pl.Int32).alias(SOURCE),
        pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(POSITION),
    )
    return kernel.combine(kernel.prepare(placed.lazy(), 0).collect())


@given(
    name=st.sampled_from([*KERNELS, "top", "top moment"]),
    values=st.sampled_from(list(KERNEL_VALUES)),
    steps=several(epochs, 16),
    chunk=st.sampled_from([1, 2, 256]),
)
def test_epochs_restores_and_compactions_do_not_show(
    name: str, values: str, steps: tuple[Epoch, ...], chunk: int
) -> None:
    with patch.object(numbered_rows, "_LARGEST", chunk):
        _run_epochs(kernel_named(name, values), steps)


def _run_epochs(kernel: Kernel, steps: tuple[Epoch, ...]) -> None:
    state, watermark, place = kernel.restore([], 0), 0, 0
    deltas: list[pl.DataFrame] = []
    everything, results = [], [kernel.advance(state, [], 0).results]
    for step in steps:
        halves = [list(step.rows[0::2]), list(step.rows[1::2])]
        arrived = []
        for half in halves:
            rows = [(watermark + time, key, x) for time, key, x in half]
            arrived.append(prepared(kernel, rows, place))
            everything.append(arrived[-1])
            place += len(rows)
        watermark += step.advance
        done = kernel.advance(state, arrived, watermark)
        results.append(done.results)
        deltas = _compacted(kernel, deltas, step.compact, watermark)
        added = [d for d in (kernel.delta(arrived), done.kept) if d.height]
        deltas += [d.filter(pl.col(UNTIL) > watermark) for d in added]
        state = kernel.restore(deltas, watermark) if step.restore else done.state
    results.append(kernel.advance(state, [], FINISHED).results)
    once = kernel.advance(kernel.restore([], 0), everything, FINISHED).results
    found, expected = (f.to_dicts() for f in (pl.concat(results), once))
    assert not difference(found, expected)


def _compacted(
    kernel: Kernel, deltas: list[pl.DataFrame], places: tuple[int, ...], watermark: int
) -> list[pl.DataFrame]:
    chosen = {place % len(deltas) for place in places} if deltas else set()
    if len(chosen) < 2:
        return deltas
    merged = kernel.compact([deltas[i] for i in sorted(chosen)], watermark)
    return [*[d for i, d in enumerate(deltas) if i not in chosen], merged]
