"""JOIN: two streams with equal keys, within a band of time.

Law: the result has the pairs for which ON is true, and for outer joins the rows without one, as the
stream's own `join` and `product` give them. A row pairs with itself where ON lets it, however the
query says that both sides are the same stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count

import polars as pl
from sqlglot import exp

from penstock.query.dialect import to_text
from penstock.query.stream import Stream
from penstock.sql.bands import Band, tightest
from penstock.sql.conditions import Conditions, Key, take_apart_on
from penstock.sql.places import Mistakes
from penstock.sql.scalars import check_predicate, rename_columns
from penstock.sql.scope import Scope, Table, Times

_HOW = {"": "inner", "LEFT": "left", "RIGHT": "left", "FULL": "full"}
_BAND_HINT = (
    "a JOIN needs a time band, such as "
    "a.ts BETWEEN b.ts - INTERVAL '1 minute' AND b.ts + INTERVAL '1 minute'"
)


def join_scopes(left: Scope, right: Scope, join: exp.Join, mistakes: Mistakes) -> Scope | None:
    """Return the scope of a join of what was there with one more table."""
    if not _is_supported(join, mistakes):
        return None
    swapped = join.side == "RIGHT"
    if swapped:
        left, right = right, left
    conditions = take_apart_on(join.args.get("on"), left, right, mistakes)
    if conditions is None:
        return None
    band = _closed_band(conditions, join, left, right, mistakes)
    if band is None:
        return None
    made = _Join(left, right, join, conditions, band, mistakes).scope()
    if made is None or not swapped:
        return made
    return replace(
        made, tables=(*made.tables[len(left.tables) :], *made.tables[: len(left.tables)])
    )


def _is_supported(join: exp.Join, mistakes: Mistakes) -> bool:
    kind = " ".join(part for part in (join.method, join.side, join.kind) if part)
    using = join.args.get("using")
    if join.method or join.kind not in ("", "INNER", "OUTER") or join.side not in _HOW:
        mistakes.refuse(f"{kind} JOIN", join, "write JOIN … ON")
    elif using and join.side:
        mistakes.add(f"USING has no place for a time band; {_BAND_HINT}; write ON", using[0])
    elif not join.args.get("on"):
        mistakes.add("a join without a condition is not supported; write JOIN … ON", join)
    else:
        return True
    return False


def _closed_band(
    conditions: Conditions, join: exp.Join, left: Scope, right: Scope, mistakes: Mistakes
) -> Band | None:
    band = tightest(band for band, _ in conditions.bands)
    if band is not None and (band.low_us or 0) > (band.high_us or 0):
        mistakes.add("the time band of the JOIN is empty", join)
        return None
    if band is None:
        one_sided = "; this one has no end on one side" if conditions.bands else ""
        times = [f"{t.alias}.{name}" for s in (left, right) for t in s.tables for name in t.times]
        named = f"; event times: {', '.join(times)}" if times else ""
        using = join.args.get("using")
        at = using[0] if using else join
        how = "USING has no place for a time band; write it in WHERE: " if using else ""
        mistakes.add(f"{how}{_BAND_HINT}{one_sided}{named}", at)
        return None
    return band


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keyed:
    """Two streams that have a column for each key of a join."""

    left: Stream
    right: Stream
    left_on: list[str]
    right_on: list[str]

    @property
    def shared(self) -> bool:
        """Whether both sides call the keys the same."""
        return self.left_on == self.right_on


def _give_keys(left: Stream, right: Stream, keys: tuple[Key, ...]) -> _Keyed:
    """Return two streams with their keys; those that are expressions are computed."""
    used = {*left.schema, *right.schema}
    lefts = _name_keys([key[0] for key in keys], used)
    rights = _name_keys([key[1] for key in keys], used | set(lefts))
    if left._node is right._node:
        left = right = _compute_keys(left, lefts | rights)
    else:
        left, right = _compute_keys(left, lefts), _compute_keys(right, rights)
    return _Keyed(left=left, right=right, left_on=list(lefts), right_on=list(rights))


def _name_keys(keys: list[exp.Expr], used: set[str]) -> dict[str, exp.Expr]:
    free = (name for i in count(1) if (name := f"sql_key_{i}") not in used)
    return {k.name if isinstance(k, exp.Column) else next(free): k for k in keys}


def _compute_keys(stream: Stream, keys: dict[str, exp.Expr]) -> Stream:
    added = {name: to_text(key) for name, key in keys.items() if not isinstance(key, exp.Column)}
    return stream.map(**added) if added else stream


class _Join:
    """One join on its way to a scope."""

    def __init__(
        self,
        left: Scope,
        right: Scope,
        join: exp.Join,
        conditions: Conditions,
        band: Band,
        mistakes: Mistakes,
    ) -> None:
        self.left, self.right, self.node = left, right, join
        self.conditions, self.band, self.mistakes = conditions, band, mistakes
        self.how = _HOW[join.side]
        self.within_us = (band.reach_us or 0) + 1 + self._slack()

    def scope(self) -> Scope | None:
        """Return the tables of both sides over the joined stream."""
        keyed = _give_keys(self.left.stream, self.right.stream, self.conditions.keys)
        on = keyed.left_on if keyed.shared and self.how == "inner" else []
        suffix = _suffix(keyed, on, self.right.tables[0].alias)
        names = _result_names(keyed, on, suffix)
        right = {names[name]: dtype for name, dtype in keyed.right.schema.items()}
        scope = self._describe(names)
        where = self._where(scope, {**keyed.left.schema, **right})
        if where is None:
            return None
        if not keyed.left_on and self.how != "inner":
            self.mistakes.refuse(f"{self.node.side} JOIN without an equality", self.node)
            return None
        stream = self._pair(keyed, on, suffix, where)
        for problem in stream._problems:
            self.mistakes.add(problem, self.node)
        return None if stream._problems else replace(scope, stream=stream)

    def _pair(self, keyed: _Keyed, on: list[str], suffix: str, where: str) -> Stream:
        within = timedelta(microseconds=self.within_us)
        if not keyed.left_on:
            return keyed.left.product(
                keyed.right, where=where or "TRUE", within=within, suffix=suffix, self_pairs=True
            )
        return keyed.left.join(
            keyed.right,
            on=on or None,
            left_on=None if on else keyed.left_on,
            right_on=None if on else keyed.right_on,
            within=within,
            where=where or None,
            how=self.how,
            suffix=suffix,
            self_pairs=True,
        )

    def _slack(self) -> int:
        return sum(
            table.slack_us + (0 if _exact(scope.stream.schema[name]) else 1)
            for scope, name in ((self.left, self.band.left), (self.right, self.band.right))
            for table in scope.tables
            if name in table.columns.values()
        )

    def _where(self, scope: Scope, schema: dict[str, pl.DataType]) -> str | None:
        """Return what is left of ON as text; empty if nothing; None if it is wrong."""
        pairs = {(band.left, band.right) for band, _ in self.conditions.bands}
        exact = self.band.symmetric and self._slack() == 0 and len(pairs) == 1
        kept = [*self.conditions.rest, *([] if exact else [n for _, n in self.conditions.bands])]
        before = len(self.mistakes)
        texts = []
        for node in kept:
            resolved = rename_columns(node, lambda c: scope.resolve(c, self.mistakes))
            check_predicate("ON", node, resolved, schema, self.mistakes)
            texts.append(to_text(resolved))
        if len(self.mistakes) > before:
            return None
        return texts[0] if len(texts) == 1 else " AND ".join(f"({text})" for text in texts)

    def _describe(self, names: dict[str, str]) -> Scope:
        """Return the scope of the result; its stream is put in later."""
        tables = [
            *[self._move(t, {n: n for n in t.columns.values()}) for t in self.left.tables],
            *[self._move(t, names) for t in self.right.tables],
        ]
        right: tuple[Times, ...] = tuple(
            frozenset(names[n] for n in group) for group in self.right.times
        )
        times = (*self.left.times, *right) if self.how == "inner" else ()
        return Scope(stream=self.left.stream, tables=tuple(tables), times=times)

    def _move(self, table: Table, names: dict[str, str]) -> Table:
        columns = {sql: names[name] for sql, name in table.columns.items()}
        return replace(table, columns=columns, slack_us=table.slack_us + self.within_us)


def _exact(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Datetime) and dtype.time_unit in ("us", "ms")


def _result_names(keyed: _Keyed, on: list[str], suffix: str) -> dict[str, str]:
    """Return what the columns of the right are called in the result of a join."""
    taken = keyed.left.schema
    return {n: n if n in on or n not in taken else f"{n}{suffix}" for n in keyed.right.schema}


def _suffix(keyed: _Keyed, on: list[str], alias: str) -> str:
    """Return the first suffix that makes all names of a join different."""
    for suffix in ("_right", f"_{alias}", *[f"_right{i}" for i in range(2, 100)]):
        names = _result_names(keyed, on, suffix)
        new = [name for column, name in names.items() if column not in on]
        if len({*keyed.left.schema, *new}) == len(keyed.left.schema) + len(new):
            return suffix
    return "_right"
