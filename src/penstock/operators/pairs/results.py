"""Pairs of rows: from places in two frames to results, in blocks of bounded size.

Laws: a pair for which the predicate fails is refused and every other pair comes out as if it had
not been there; whatever the number of pairs, at most `BLOCK` of them are looked at at a time, and
about as many results wait before they are handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.operators.kernel import HIDDEN, SIDE, UNTIL, Emit, empty_results, place_results
from penstock.operators.rowwise.blame import Refusal, refuse_failing
from penstock.operators.rowwise.fallible import may_fail
from penstock.operators.rowwise.stateless import CAREFUL
from penstock.query.joins import Pairing
from penstock.query.nodes import Filter, roots

BLOCK = 1 << 21
"""How many pairs are made at a time at most."""
Places = npt.NDArray[np.int64]
Columns = dict[str, tuple[pl.Expr, pl.DataType]]
"""The columns of state rows: what each is made of, and its type."""
Given = tuple[dict[str, str], dict[str, str]]
"""For each side: columns of the result and the columns of state rows that they come from."""
_PAIR = "__pair"


@dataclass(slots=True)
class Found:
    """Results and refusals, as they are found; with ``emit`` some `BLOCK` results wait at most."""

    emit: Emit | None = None
    results: list[pl.DataFrame] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    rows: int = 0

    def add(self, results: pl.DataFrame) -> None:
        """Add some results."""
        self.results.append(results)
        self.rows += results.height
        if self.emit is not None and self.rows >= BLOCK:
            self.emit(pl.concat(self.results))
            self.results, self.rows = [], 0


class Pairs:
    """What becomes of pairs of rows: the predicate, then results.

    ``given[side]`` says which column of a side's state rows each column of the result comes from.
    """

    def __init__(
        self,
        node: Pairing,
        given: Given,
        wanted: Iterable[str],
        operator: int,
        ordered: bool,
        emit: Emit | None = None,
    ) -> None:
        """Prepare the columns that results have and the predicate reads."""
        self.node, self.operator, self.ordered, self.emit = node, operator, ordered, emit
        self.schema = {name: t for name, t in node.schema.items() if name in set(wanted)}
        self.results = self._sources(given, self.schema)
        self.where = node.where
        self.compared: Given = ({}, {})
        self.careful = False
        if self.where is not None:
            self.compared = self._sources(given, roots([self.where]))
            self.careful = _where_may_fail(node)

    def _sources(self, given: Given, names: Iterable[str]) -> Given:
        left = {name: given[0][name] for name in names if name in given[0]}
        right = {name: given[1][name] for name in names if name not in left}
        return left, right

    def found(self) -> Found:
        """Return where the results of an epoch are gathered."""
        return Found(emit=self.emit)

    def add(
        self, found: Found, left: pl.DataFrame, right: pl.DataFrame, li: Places, ri: Places
    ) -> None:
        """Add the results of some pairs, given by their places in two frames."""
        li, ri = self.passing(left, right, li, ri, found.refusals)
        if li.size:
            found.add(self.taken(left, right, li, ri))

    def passing(
        self,
        left: pl.DataFrame,
        right: pl.DataFrame,
        li: Places,
        ri: Places,
        refusals: list[Refusal],
    ) -> tuple[Places, Places]:
        """Return the pairs for which the predicate is true."""
        where = self.where
        if where is None or not li.size:
            return li, ri
        pairs = self._columns(self.compared, left, right, li, ri).with_row_index(_PAIR)
        if not self.careful:
            passed = pairs.lazy().filter(where).select(_PAIR).collect()[_PAIR].to_numpy()
            return li[passed], ri[passed]

        def step(part: pl.DataFrame) -> pl.DataFrame:
            return part.lazy().filter(where).select(_PAIR).collect(optimizations=CAREFUL)

        good, bad = refuse_failing(step, pairs, self.node.title, pairs.height, where)
        for refusal in bad:
            at = refusal.row[_PAIR].to_numpy()
            shown = self._columns(self.results, left, right, li[at], ri[at])
            extra = [c for c in refusal.row.columns if c not in shown.columns and c != _PAIR]
            row = shown.hstack(refusal.row.select(extra))
            refusals.append(Refusal(operator=refusal.operator, reason=refusal.reason, row=row))
        passed = np.concatenate([np.empty(0, np.uint32), *[f[_PAIR].to_numpy() for f in good]])
        return li[passed], ri[passed]

    def _columns(
        self,
        sources: Given,
        left: pl.DataFrame,
        right: pl.DataFrame,
        li: Places,
        ri: Places,
    ) -> pl.DataFrame:
        """Return columns of the result for pairs; a frame of no columns has no height."""
        parts = [
            _gather(frame, names, places)
            for frame, names, places in ((left, sources[0], li), (right, sources[1], ri))
            if names
        ]
        if not parts:
            return pl.DataFrame(height=len(li))
        return parts[0] if len(parts) == 1 else parts[0].hstack(parts[1])

    def taken(
        self, left: pl.DataFrame, right: pl.DataFrame, li: Places, ri: Places
    ) -> pl.DataFrame:
        """Return the results of pairs that passed."""
        times = np.maximum(left[TIME].to_numpy()[li], right[TIME].to_numpy()[ri])
        columns = self._columns(self.results, left, right, li, ri)
        return self._shape(columns.hstack([pl.Series(TIME, times)]))

    def alone(
        self, rows: pl.DataFrame, side: int, at: pl.Expr, keys: dict[str, str]
    ) -> pl.DataFrame:
        """Return the results of rows that have no partner.

        Args:
            rows: State rows of a side.
            side: Their side.
            at: The event time of the results.
            keys: Columns of the result that are there whichever side a row is from.
        """
        sources = self.results[side] | {n: c for n, c in keys.items() if n in self.schema}
        known = rows.select(at.alias(TIME), *[pl.col(c).alias(n) for n, c in sources.items()])
        missing = [
            pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in self.schema.items()
            if name not in sources
        ]
        return self._shape(known.with_columns(missing))

    def _shape(self, rows: pl.DataFrame) -> pl.DataFrame:
        hidden = [TIME] if not self.ordered else list(ORDER)
        odd = [pl.col(n).cast(t) for n, t in self.schema.items() if rows.schema[n] != t]
        if not odd and not self.ordered:  # nothing to compute, as most often
            return rows[[*self.schema, *hidden]]
        whole = place_results(rows.lazy().with_columns(odd), self.operator, self.ordered)
        return whole.select(*self.schema, *hidden).collect()

    def all_of(self, found: Found) -> pl.DataFrame:
        """Return what was found and is still here, as one frame."""
        return pl.concat([empty_results(self.schema, self.ordered), *found.results])


@lru_cache(maxsize=256)
def _where_may_fail(node: Pairing) -> bool:
    assert node.where is not None
    step = Filter(inputs=(node,), schema=node.schema, predicate=node.where, text="")
    return may_fail(step)


def _gather(rows: pl.DataFrame, names: dict[str, str], places: Places) -> pl.DataFrame:
    """Return columns of some rows under other names; without a plan, since there are many calls."""
    found = rows[places, list(names.values())]
    found.columns = list(names)
    return found


def stored_columns(
    node: Pairing, wanted: Iterable[str], keys: Sequence[Columns] = ({}, {})
) -> tuple[list[Columns], Given]:
    """Return the columns of state rows, and where those of the results come from.

    The left side keeps its names, the right one has those of the result. Rows of a stream that is
    paired with itself have the names of the stream, and everything that either side needs.

    Args:
        node: The operator.
        wanted: The columns that results have.
        keys: Columns by which rows of each side are routed and found.
    """
    sides: list[Columns] = []
    for side in range(len(node.inputs)):
        schema, columns = node.inputs[side].schema, dict(keys[side])
        needed = node.reads(side, set(wanted)) if node.itself else node.carried(side, wanted)
        names = dict(node.renamed) if side and not node.itself else {c: c for c in schema}
        for column in (c for c in schema if c in needed and c in names):
            columns.setdefault(names[column], (pl.col(column), schema[column]))
        sides.append(columns)
    right = {name: column if node.itself else name for column, name in node.renamed}
    return sides, ({name: name for name in node.inputs[0].schema}, right)


class StateRows:
    """State rows of both sides as frames of one form, as they are sent and as they are kept.

    ``columns[side]`` are the columns that a side has, each with what it is made of.
    """

    def __init__(
        self,
        columns: Sequence[Columns],
        hidden: Sequence[str],
    ) -> None:
        """Prepare the schema of the frames."""
        self.columns, self.hidden = columns, list(hidden)
        types = {name: dtype for side in columns for name, (_, dtype) in side.items()}
        self.schema = types | {name: HIDDEN[name] for name in hidden} | {SIDE: pl.Int8()}

    def prepare(self, rows: pl.LazyFrame, side: int) -> pl.LazyFrame:
        """Return the columns of rows that come from a side."""
        named = [expression.alias(name) for name, (expression, _) in self.columns[side].items()]
        return rows.select(*named, *self.hidden, pl.lit(side, dtype=pl.Int8).alias(SIDE))

    def whole(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of any side with the columns of all."""
        missing = [
            pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in self.schema.items()
            if name not in rows.columns
        ]
        return rows.with_columns(missing).select(list(self.schema))

    def of_side(self, frames: Iterable[pl.DataFrame], side: int) -> pl.DataFrame:
        """Return the rows of one side, with its columns."""
        names = [*self.columns[side], *self.hidden]
        empty = pl.DataFrame(schema={name: self.schema[name] for name in names})
        mine = [
            frame if frame[SIDE].min() == frame[SIDE].max() else frame.filter(pl.col(SIDE) == side)
            for frame in frames
            if frame.height and (frame[SIDE] == side).any()
        ]
        chosen = [frame.select(names) for frame in mine]
        return chosen[0] if len(chosen) == 1 else pl.concat([empty, *chosen], rechunk=True)

    def delta(self, arrived: Iterable[pl.DataFrame], until: pl.Expr) -> pl.DataFrame:
        """Return arrived rows as they are kept, with the watermark up to which they are needed."""
        fresh = [self.whole(frame) for frame in arrived if frame.height]
        if not fresh:
            return pl.DataFrame()
        return pl.concat(fresh).with_columns(until.cast(pl.Int64).alias(UNTIL))


def ranges_in_blocks(low: Places, high: Places) -> Iterator[tuple[Places, Places]]:
    """Yield the pairs of each i with the numbers from ``low[i]`` to ``high[i]``, in blocks.

    >>> import numpy as np
    >>> ((i, j),) = ranges_in_blocks(np.array([5, 0, 7]), np.array([7, 0, 8]))
    >>> i.tolist(), j.tolist()
    ([0, 0, 2], [5, 6, 7])
    """
    ends = np.cumsum(high - low)
    total = int(ends[-1]) if ends.size else 0
    for start in range(0, total, BLOCK):
        stop = min(start + BLOCK, total)
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left")) + 1
        begins = np.maximum(ends[first:last] - (high - low)[first:last], start)
        counts = np.minimum(ends[first:last], stop) - begins
        rows = np.repeat(np.arange(first, last), counts)
        offsets = np.repeat(high[first:last] - ends[first:last], counts)
        yield rows, np.arange(start, stop) + offsets
