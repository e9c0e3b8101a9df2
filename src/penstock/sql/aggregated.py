"""A SELECT with GROUP BY: an aggregate, then HAVING, then ORDER BY with LIMIT, then its columns.

Law: each value is an expression over aggregates, keys and the bounds of the window. Aggregates that
only HAVING or ORDER BY names are computed beside the others and left out of the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from penstock.query.aggregates import infer_aggregate
from penstock.query.dialect import to_text
from penstock.query.stream import Stream
from penstock.query.windows import WINDOW_COLUMNS, TimeWindow, Window
from penstock.sql.grouping import Groups, at_position, read_groups
from penstock.sql.outputs import Outputs, add_output, is_star, output_name, project, remove_alias
from penstock.sql.places import Mistakes
from penstock.sql.scalars import (
    WINDOWS,
    call_name,
    check,
    check_predicate,
    column,
    has_aggregate,
    is_aggregate,
    refuse_parts,
    rename_columns,
)
from penstock.sql.scope import Relation, Scope
from penstock.sql.times import read_window

_ARGUMENTS = frozenset({"self", "window", "by", "rank"})
"""Names that a value cannot have in the call of `Stream.aggregate`, or before `Stream.top`."""


def is_aggregated(select: exp.Select) -> bool:
    """Return whether a SELECT aggregates."""
    return bool(select.args.get("group") or select.args.get("having")) or any(
        has_aggregate(item) for item in select.expressions
    )


def select_groups(select: exp.Select, scope: Scope, mistakes: Mistakes) -> Relation | None:
    """Return the relation of a SELECT that aggregates, or note what is wrong with it."""
    before = len(mistakes)
    groups = read_groups(select, scope, mistakes)
    if groups is None:
        return None
    made = _Aggregated(select=select, scope=scope, groups=groups, mistakes=mistakes)
    outputs = made.outputs()
    having = made.having()
    order = made.order()
    if groups.window is None or len(mistakes) > before:
        return None
    stream = made.aggregate(groups.window)
    if having is not None:
        stream = made.filtered(stream, having)
    if order is not None:
        stream = made.top(stream, order)
    made.check_outputs(stream, outputs)
    if len(mistakes) == before:
        stream = project(stream, outputs)
    for problem in stream._problems:
        mistakes.add(problem, select)
    times = frozenset(n for n, value in outputs.items() if value == column("window_end"))
    return Relation(stream=stream, times=times) if len(mistakes) == before else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aggregated:
    """One aggregate on its way to a stream; ``values`` are its values by their text."""

    select: exp.Select
    scope: Scope
    groups: Groups
    mistakes: Mistakes
    values: dict[str, str] = field(default_factory=dict)

    def outputs(self) -> Outputs:
        """Return the SELECT list over the columns of the aggregate."""
        for item in self.select.expressions:
            if not refuse_parts(item, Mistakes(text=self.mistakes.text)):
                self._name_value(item)
        outputs: Outputs = {}
        for item in self.select.expressions:
            if is_star(item):
                self.mistakes.refuse("* with GROUP BY", item, "name the columns")
            elif not refuse_parts(item, self.mistakes):
                value = self.outer(remove_alias(item))
                add_output(outputs, output_name(item), value, item, self.mistakes)
        return outputs

    def having(self) -> exp.Expr | None:
        """Return HAVING over the columns of the aggregate."""
        node = self.select.args.get("having")
        if node is None or refuse_parts(node, self.mistakes):
            return None
        return self.outer(node.this, aliases=True)

    def order(self) -> exp.Expr | None:
        """Return what ORDER BY sorts by, over the columns of the aggregate."""
        order = self.select.args.get("order")
        if order is None or self._limit() is None or refuse_parts(order, self.mistakes):
            return None
        wanted = at_position(order.expressions[0].this, self.select, "ORDER BY", self.mistakes)
        return self.outer(wanted, aliases=True)

    def _name_value(self, item: exp.Expr) -> None:
        """Give an item of aggregates alone its own name in the aggregate, if it is free."""
        name, value = output_name(item), remove_alias(item)
        taken = {*self.groups.keys.values(), *WINDOW_COLUMNS, *self.values.values(), *_ARGUMENTS}
        if name and name not in taken and not name.startswith("__") and _only_aggregates(value):
            text = self._text(value)
            if text not in self.values:
                self._add_value(value, text, name)

    def outer(self, node: exp.Expr, *, aliases: bool = False) -> exp.Expr:
        """Return an expression over the columns of the aggregate; note columns that are none."""

        def change(part: exp.Expr) -> exp.Expr:
            text = self._text(part)
            known = self.groups.keys.get(text) or self.values.get(text) or self._find_bound(part)
            if known:
                return column(known)
            if is_aggregate(part):
                return column(self._add_value(part, text, self._make_hidden_name()))
            if isinstance(part, exp.Column):
                return self._loose(part, aliases)
            return part

        return rename_columns(node.transform(change), lambda c: None)

    def _loose(self, part: exp.Column, aliases: bool) -> exp.Expr:
        """Return what a column stands for that is neither a key nor inside an aggregate."""
        if aliases and not part.table:
            for item in self.select.expressions:
                if isinstance(item, exp.Alias) and item.alias == part.name:
                    value = self.outer(item.this)
                    bare = isinstance(value, exp.Column)
                    return value if bare else exp.paren(value, copy=False)
        if self.scope.resolve(part, self.mistakes) is not None:
            self.mistakes.add(
                f"column {part.name!r} is neither in GROUP BY nor inside an aggregate", part
            )
        return part

    def _find_bound(self, part: exp.Expr) -> str | None:
        """Return the column of the window's start or end that a part stands for."""
        if isinstance(part, exp.Column) and not part.table and part.name in WINDOW_COLUMNS:
            return part.name
        base, _, end = call_name(part).rpartition("_")
        if base not in WINDOWS or end not in ("start", "end"):
            if call_name(part) in WINDOWS:
                self.mistakes.add("a window has two ends; select window_start, window_end", part)
            return None
        same = not part.expressions or self._is_the_window(base, part)
        if base != call_name(self.groups.call) or not same:
            wanted = to_text(self.groups.call)
            self.mistakes.add(f"{part.name} is not of the window in GROUP BY: {wanted}", part)
        return f"window_{end}"

    def _is_the_window(self, name: str, part: exp.Expr) -> bool:
        """Return whether the arguments of ``TUMBLE_START`` and its kin say the same window."""
        quiet = Mistakes(text=self.mistakes.text)
        call = exp.Anonymous(this=name, expressions=[a.copy() for a in part.expressions])
        meant = read_window(call, self.scope, lambda c: self.scope.resolve(c, quiet), quiet)
        return self.groups.window is None or meant == self.groups.window

    def _text(self, node: exp.Expr) -> str:
        quiet = Mistakes(text=self.mistakes.text)
        return to_text(rename_columns(node, lambda c: self.scope.resolve(c, quiet)))

    def _make_hidden_name(self) -> str:
        used = {*self.groups.keys.values(), *self.values.values()}
        return next(n for i in range(1, 1000) if (n := f"sql_value_{i}") not in used)

    def _add_value(self, node: exp.Expr, text: str, name: str) -> str:
        before = len(self.mistakes)
        for part in node.walk():
            if is_aggregate(part) and any(is_aggregate(p) for p in _arguments(part)):
                self.mistakes.refuse("an aggregate of an aggregate", part, "write a subquery")
        resolved = rename_columns(node, lambda c: self.scope.resolve(c, self.mistakes))
        if len(self.mistakes) == before:
            schema = self.scope.stream.schema
            check(node, resolved, schema, self.mistakes, infer_aggregate)
        self.values[text] = name
        return name

    def aggregate(self, window: Window) -> Stream:
        """Return the stream of keys, bounds of the window and values."""
        stream = self.scope.stream
        if self.groups.computed:
            stream = stream.map(**self.groups.computed)
        values = {name: text for text, name in self.values.items()} or {
            self._make_hidden_name(): "count(*)"
        }
        keys = list(dict.fromkeys(self.groups.keys.values()))
        return stream.aggregate(window=window, by=keys, **values)

    def filtered(self, stream: Stream, having: exp.Expr) -> Stream:
        """Return the groups for which HAVING is true."""
        node = self.select.args["having"].this
        sound = check_predicate("HAVING", node, having, stream.schema, self.mistakes)
        return stream.filter(to_text(having)) if sound else stream

    def top(self, stream: Stream, order: exp.Expr) -> Stream:
        """Return the first rows of each window."""
        node = self.select.args["order"]
        if not isinstance(self.groups.window, TimeWindow):
            self.mistakes.refuse(
                "ORDER BY with LIMIT over such a window", node, "use TUMBLE or HOP"
            )
            return stream
        if check(node, order, stream.schema, self.mistakes) is None:
            return stream
        descending = bool(node.expressions[0].args.get("desc"))
        return stream.top(self._limit() or 0, to_text(order), descending=descending)

    def _limit(self) -> int | None:
        limit = self.select.args.get("limit")
        number = limit.expression if isinstance(limit, exp.Limit) else None
        return int(number.name) if isinstance(number, exp.Literal) and number.is_int else None

    def check_outputs(self, stream: Stream, outputs: Outputs) -> None:
        """Note the columns of the SELECT list that have no type."""
        if not stream._problems:
            for item in self.select.expressions:
                name = output_name(item)
                if name in outputs:
                    check(item, outputs[name], stream.schema, self.mistakes)


def _arguments(call: exp.Expr) -> list[exp.Expr]:
    return [n for n in call.walk() if n is not call and n is not call.this]


def _only_aggregates(node: exp.Expr) -> bool:
    """Return whether an expression has aggregates and no columns beside them."""
    rest = node.transform(lambda part: exp.Null() if is_aggregate(part) else part)
    loose = any(
        isinstance(part, exp.Column) or call_name(part).rpartition("_")[0] in WINDOWS
        for part in rest.walk()
    )
    return has_aggregate(node) and not loose
