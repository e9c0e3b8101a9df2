"""Joins and products: pairs of rows of two streams, or of a stream with itself.

Laws: a pair is a result exactly if its keys are equal and known, its rows are close enough (less
than ``within`` apart, or one among the last rows before the other) and ``where`` is true; a row is
paired with itself only where that is asked for; the columns of a result have one name each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.base.columns import TIME
from penstock.base.durations import Duration, format_duration, parse_duration
from penstock.query.expressions import (
    UNKNOWN,
    ExpressionLike,
    ExpressionProblem,
    infer_row_wise,
    parse,
    unknown_column,
)
from penstock.query.keys import Names, names_of
from penstock.query.nodes import Node, roots, topological
from penstock.query.windows import CountWindow

HOW = ("inner", "left", "full")
Within = int | CountWindow
"""How close the rows of a pair are: microseconds, or a number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairing(Node):
    """What joins and products share.

    With one input, or the same input twice, a stream is paired with itself; with ``self_pairs`` a
    row is then its own partner like any other. ``renamed`` gives the columns of the right input
    that are in the result, each with its name there; those of the left input are all in the result
    and keep their names.
    """

    within: Within
    where: pl.Expr | None
    text: str
    renamed: tuple[tuple[str, str], ...]
    self_pairs: bool = False

    @property
    def stateful(self) -> bool:
        """Whether the operator keeps rows or results from one epoch to the next."""
        return True

    @property
    def itself(self) -> bool:
        """Whether a stream is paired with itself."""
        return self.inputs[0] is self.inputs[-1]

    @property
    def apart(self) -> bool:
        """Whether a row must not be its own partner."""
        return self.itself and not self.self_pairs

    @property
    def by_count(self) -> bool:
        """Whether rows are close by their number instead of by their time."""
        return isinstance(self.within, CountWindow)

    def carried(self, side: int, wanted: Iterable[str]) -> set[str]:
        """Return the columns of a side that results need, beside its keys, by their names there.

        A count window sees rows in stream order, and rows at the same place are told apart by their
        columns, so it needs them all.
        """
        source = self.inputs[0 if side == 0 else -1]
        if self.by_count:
            return set(source.schema)
        names = set(wanted) | roots([] if self.where is None else [self.where])
        if side == 0:
            return names & set(source.schema)
        return {column for column, name in self.renamed if name in names}

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        sides = (0, 1) if self.itself else (port,)
        return {name for side in sides for name in self.carried(side, wanted)}

    def wants_order(self, ordered: bool) -> bool:
        """Return whether input rows must carry their order, if results have to or not."""
        return self.by_count

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        return {
            "within": str(self.within),
            "where": None if self.where is None else str(self.where),
            **({"self pairs": True} if self.itself and self.self_pairs else {}),
        }

    def kept(self, wanted: Iterable[str]) -> list[dict[str, str]]:
        """Return the columns that the state has for results, by side, with their types."""
        right = {
            name: self.schema[name] for c, name in self.renamed if c in self.carried(1, wanted)
        }
        left = {name: self.schema[name] for name in self.carried(0, wanted)}
        return [{n: str(side[n]) for n in sorted(side)} for side in (left, right)]

    def _with_itself(self) -> str:
        if not self.itself:
            return ""
        return " with itself and self pairs" if self.self_pairs else " with itself"

    def _describe(self, verb: str) -> str:
        unit = isinstance(self.within, CountWindow)
        near = f"the last {self.within}" if unit else format_duration(_micros(self.within))
        return f"{verb} within {near}" + (f" where {self.text}" if self.text else "")


def _micros(within: Within) -> int:
    assert isinstance(within, int)
    return within


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Join(Pairing):
    """Pairs of rows with equal keys.

    ``stored`` are the names of the keys in the operator's state. With ``shared`` both inputs have
    the keys by the same names, and the result has them once.
    """

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    shared: bool
    stored: tuple[str, ...]
    key_types: tuple[pl.DataType, ...]
    how: str = "inner"

    def keys(self, port: int) -> tuple[str, ...] | None:
        """Return the columns by which rows of an input are routed."""
        return self.stored

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        sides = (self.left_on, self.right_on)
        keys = {*sides[0], *sides[1]} if self.itself else {*sides[port]}
        return Pairing.reads(self, port, wanted) | keys

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        return Pairing.facts(self) | {
            "keys": list(self.stored),
            "on": [f"{a} = {b}" for a, b in zip(self.left_on, self.right_on, strict=True)],
            "key types": [str(dtype) for dtype in self.key_types],
            "how": self.how,
        }

    @property
    def note(self) -> str:
        """How the operator works, for plans."""
        kept = "one copy of its rows" if len(self.inputs) == 1 else "the rows of both sides"
        return f"keeps {kept} in runs by key and {'order' if self.by_count else 'time'}"

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        pairs = zip(self.left_on, self.right_on, strict=True)
        on = ", ".join(a if a == b else f"{a} = {b}" for a, b in pairs)
        kind = "" if self.how == "inner" else f"{self.how} "
        return self._describe(f"{kind}join{self._with_itself()} on {on}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product(Pairing):
    """Pairs of rows for which any predicate holds, compared on a grid of cells."""

    def keys(self, port: int) -> tuple[str, ...] | None:
        """Return the columns by which rows of an input are spread over the grid."""
        sides = (0, 1) if self.itself else (port,)
        return (TIME, *dict.fromkeys(name for side in sides for name in self._find_compared(side)))

    def _find_compared(self, side: int) -> list[str]:
        """Return the columns of a side, by their names in the state, that the predicate reads."""
        assert self.where is not None
        used = roots([self.where])
        source = self.inputs[0 if side == 0 else -1].schema
        if side == 0:
            names = {name: name for name in source if name in used}
        else:
            names = {column: name for column, name in self.renamed if name in used}
        return [
            column if self.itself else name
            for column, name in names.items()
            if not source[column].is_nested()
        ]

    def grid(self, port: int) -> str:
        """Return where rows of an input go on the grid of cells."""
        if self.by_count:
            return "all"
        return "cross" if self.itself else ("row", "column")[port]

    @property
    def note(self) -> str:
        """How the operator works, for plans."""
        return "compares pairs in blocks, cell by cell"

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        return self._describe(f"product{self._with_itself()}")


def join_node(
    left: Node,
    right: Node,
    *,
    on: Names | None,
    left_on: Names | None,
    right_on: Names | None,
    within: Duration | CountWindow,
    where: ExpressionLike | None,
    how: str,
    suffix: str,
    self_pairs: bool | None,
) -> tuple[Node, list[str]]:
    """Return the operator that joins two streams, and what is wrong with it."""
    found: list[str] = []
    lefts, rights = _keys(on, left_on, right_on, found)
    shared = on is not None
    types = [
        _key_type(a, b, left.schema, right.schema, found)
        for a, b in zip(lefts, rights, strict=True)
    ]
    itself, apart = left is right, left is right and lefts != rights
    found += _misfits(how, within, lefts, rights, apart=apart)
    found += _self_pair_problems("join", left, right, within, self_pairs)
    dropped = rights if shared else ()
    renamed = _rename("join", left.schema, right.schema, dropped, suffix, found)
    schema = _schema(left.schema, right.schema, renamed)
    if shared:
        schema |= {key: dtype for key, dtype in zip(lefts, types, strict=True) if key in schema}
    node = Join(
        inputs=(left,) if itself and not apart else (left, right),
        schema=schema,
        within=_within("join", within, found),
        where=None if where is None else _predicate("join where", where, schema, found),
        text="" if where is None else str(where),
        renamed=renamed,
        left_on=lefts,
        right_on=rights,
        shared=shared,
        stored=tuple(f"__key{i}" for i in range(len(lefts))) if apart else lefts,
        key_types=tuple(types),
        how=how,
        self_pairs=bool(self_pairs),
    )
    return node, found


def _misfits(
    how: str,
    within: Duration | CountWindow,
    left_on: Sequence[str],
    right_on: Sequence[str],
    *,
    apart: bool,
) -> list[str]:
    """Return what does not go together; ``apart``: a stream with itself on different keys."""
    found = []
    if how not in HOW:
        found.append(f"join: how={how!r} is unknown; allowed: {', '.join(HOW)}")
    if how != "inner" and isinstance(within, CountWindow):
        found.append(
            f"join: a {how} join needs a time window, since with a count window no row is ever "
            f"known to stay alone; within={within}"
        )
    if apart and isinstance(within, CountWindow):
        found.append(
            "join: a stream with itself in a count window needs the same keys on both sides; "
            f"left_on={list(left_on)}, right_on={list(right_on)}"
        )
    return found


def _self_pair_problems(
    verb: str, left: Node, right: Node, within: Duration | CountWindow, self_pairs: bool | None
) -> list[str]:
    """Return why rows can't be paired, or kept from being paired, with themselves."""
    if self_pairs and left is right and isinstance(within, CountWindow):
        return [
            f"{verb}: self_pairs=True needs a time window, since a count window pairs a row with "
            f"rows before it; within={within}"
        ]
    if self_pairs is False and left is not right and _sources(left) & _sources(right):
        return [
            f"{verb}: self_pairs=False needs the same stream on both sides, and these two are made "
            "of it in different ways; join the stream with itself and put what differs into where"
        ]
    return []


def _sources(node: Node) -> set[int]:
    return {id(part) for part in topological((node,)) if not part.inputs}


def product_node(
    left: Node,
    right: Node,
    *,
    where: ExpressionLike,
    within: Duration | CountWindow,
    suffix: str,
    self_pairs: bool | None,
) -> tuple[Node, list[str]]:
    """Return the operator that compares all pairs of two streams, and what is wrong with it."""
    found = _self_pair_problems("product", left, right, within, self_pairs)
    renamed = _rename("product", left.schema, right.schema, (), suffix, found)
    schema = _schema(left.schema, right.schema, renamed)
    node = Product(
        inputs=(left,) if left is right else (left, right),
        schema=schema,
        within=_within("product", within, found),
        where=_predicate("product where", where, schema, found),
        text=str(where),
        renamed=renamed,
        self_pairs=bool(self_pairs),
    )
    return node, found


def _keys(
    on: Names | None, left_on: Names | None, right_on: Names | None, found: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys of both sides, equally many."""
    if on is not None and (left_on is not None or right_on is not None):
        found.append("join: give either on or left_on and right_on")
    lefts = _names(on if on is not None else left_on)
    rights = _names(on if on is not None else right_on)
    if len(lefts) != len(rights):
        found.append(
            "join: left_on and right_on must be equally many; "
            f"left_on={list(lefts)}, right_on={list(rights)}"
        )
    elif not lefts:
        found.append("join: no keys given; name them with on, or use product for any predicate")
    for side in dict.fromkeys((lefts, rights)):
        twice = {name for name in side if side.count(name) > 1}
        found += [f"join on: column {name!r} is given twice" for name in sorted(twice)]
    few = min(len(lefts), len(rights))
    return lefts[:few], rights[:few]


def _names(names: Names | None) -> tuple[str, ...]:
    return () if names is None else names_of(names)


def _key_type(
    left: str,
    right: str,
    left_schema: Mapping[str, pl.DataType],
    right_schema: Mapping[str, pl.DataType],
    found: list[str],
) -> pl.DataType:
    """Return the type in which two keys are compared."""
    missing = [
        f"join on: {unknown_column(name, schema)}"
        for name, schema in ((left, left_schema), (right, right_schema))
        if name not in schema
    ]
    if missing:
        found += missing
        return UNKNOWN
    a, b = left_schema[left], right_schema[right]
    if UNKNOWN in (a, b):
        return UNKNOWN
    names = left if left == right else f"{left} = {right}"
    if a.is_nested() or b.is_nested():
        found.append(f"join on {names}: a key must not be a list or a struct; {a} and {b}")
        return UNKNOWN
    if a == b:
        return a
    if a.is_integer() and b.is_integer():
        common = _common(a, b)
        if common.is_integer():
            return common
    found.append(f"join on {names}: the keys have different types; {a} and {b}")
    return UNKNOWN


def _common(a: pl.DataType, b: pl.DataType) -> pl.DataType:
    both = [pl.DataFrame(schema={"_": dtype}) for dtype in (a, b)]
    return pl.concat(both, how="vertical_relaxed").schema["_"]


def _rename(
    verb: str,
    left: Mapping[str, pl.DataType],
    right: Mapping[str, pl.DataType],
    dropped: Sequence[str],
    suffix: str,
    found: list[str],
) -> tuple[tuple[str, str], ...]:
    """Return the names that the right columns have in the result."""
    renamed = [(c, f"{c}{suffix}" if c in left else c) for c in right if c not in dropped]
    names = [name for _, name in renamed]
    found += [
        f"{verb}: column {column!r} of the right side would be called {name!r}, which there is "
        f"already; suffix={suffix!r}"
        for column, name in renamed
        if name in left or names.count(name) > 1
    ]
    return tuple((column, name) for column, name in renamed if name not in left)


def _schema(
    left: Mapping[str, pl.DataType],
    right: Mapping[str, pl.DataType],
    renamed: Iterable[tuple[str, str]],
) -> dict[str, pl.DataType]:
    return dict(left) | {name: right[column] for column, name in renamed}


def _within(verb: str, within: Duration | CountWindow, found: list[str]) -> Within:
    if isinstance(within, CountWindow):
        found += [f"{verb}: {problem}" for problem in within.problems()]
        if within.every != within.size:
            found.append(f"{verb}: a count window has no advance here; every={within.every}")
        return within
    try:
        micros = parse_duration(within)
    except (TypeError, ValueError) as error:
        found.append(f"{verb} within: {error}")
        return 1
    if micros <= 0:
        found.append(f"{verb}: within must be positive; within={format_duration(micros)!r}")
    return micros


def _predicate(
    verb: str, where: ExpressionLike, schema: Mapping[str, pl.DataType], found: list[str]
) -> pl.Expr:
    try:
        value = parse(where, schema)
        dtype = infer_row_wise(value, schema)
    except ExpressionProblem as problem:
        found.append(f"{verb}: {problem}")
        return pl.lit(None)
    if dtype not in (pl.Boolean(), UNKNOWN):
        found.append(f"{verb}: a predicate must be true or false; it is {dtype}")
    return value.fill_null(False)
