"""A tree of SQL to a typed Polars expression, from the leaves up.

Law: a part of an expression fails on a row only where SQL would compute it there. ``CASE``,
``COALESCE``, ``AND`` and ``OR`` put what they leave out behind a guard: where the guard does not
hold, a part that can fail gets null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import polars as pl
from sqlglot import exp

from penstock.query.dialect import to_text
from penstock.query.failing import fail_where
from penstock.query.kept import exact
from penstock.query.row_wise import looks_around
from penstock.query.trees import substitute

Schema = Mapping[str, pl.DataType]
Builder: TypeAlias = "Callable[[Translator, exp.Expr], pl.Expr | None]"
"""Makes the expression of a node; None leaves the node to Polars' own SQL."""

_STRUCTURE = (exp.Where, exp.Order, exp.Ordered, exp.Distinct, exp.Tuple, exp.WithinGroup)
_AS_WRITTEN = (
    exp.Literal, exp.Null, exp.Boolean, exp.Star, exp.Var, exp.DataType, exp.Interval,
    exp.Identifier,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Translator:
    """Makes expressions over a schema; ``guard`` says for which rows they are wanted."""

    schema: Schema
    builder_of: Callable[[exp.Expr], Builder | None]
    guard: pl.Expr | None = None

    @cached_property
    def _frame(self) -> pl.LazyFrame:
        return pl.LazyFrame(schema={**self.schema, "__none": pl.Null()})

    def value(self, node: exp.Expr) -> pl.Expr:
        """Return the expression of a node."""
        builder = self.builder_of(node)
        made = builder(self, node) if builder is not None else None
        return self.as_polars_reads(node) if made is None else made

    def values(self, *nodes: exp.Expr) -> list[tuple[pl.Expr, pl.DataType | None]]:
        """Return the expressions of nodes with their types."""
        made = [self.value(node) for node in nodes]
        return [(value, self.dtype(value)) for value in made]

    def dtype(self, value: pl.Expr) -> pl.DataType | None:
        """Return the type of an expression; None if it has none, which is noted elsewhere."""
        try:
            if any(looks_around(value)):
                value = exact(value, self.schema)
            return self._frame.select(value.alias("__value")).collect_schema()["__value"]
        except pl.exceptions.PolarsError:
            return None

    def where(self, condition: pl.Expr) -> Translator:
        """Return a translator of what is wanted only for the rows of a condition."""
        guard = condition if self.guard is None else self.guard & condition
        return replace(self, guard=guard)

    def wanted(self, value: pl.Expr) -> pl.Expr:
        """Return a value that is null for rows where it is not wanted."""
        return value if self.guard is None else pl.when(self.guard).then(value)

    def strict(self, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        """Return a value in another type; a row fails if it is wanted there and does not fit."""
        return self.wanted(value).cast(dtype)

    def failing(self, condition: pl.Expr, reason: str, dtype: pl.DataType) -> pl.Expr:
        """Return an expression that is null, and fails with a reason where a condition holds."""
        held = condition if self.guard is None else self.guard & condition
        return fail_where(held, reason).cast(dtype)

    def as_polars_reads(self, node: exp.Expr) -> pl.Expr:
        """Return what Polars makes of a node over the values of its parts."""
        held: dict[str, pl.Expr] = {}

        def hold(part: exp.Expr) -> exp.Expr:
            name = f"__v{len(held)}"
            held[name] = self.value(part)
            return exp.column(exp.to_identifier(name, quoted=True))

        read = pl.sql_expr(to_text(_with_parts(node.copy(), hold, columns=self.guard is not None)))
        if self.guard is not None and any(looks_around(read)):  # an aggregate has its own rows
            return replace(self, guard=None).as_polars_reads(node)
        return substitute(read, {name: self.wanted(value) for name, value in held.items()})


def _with_parts(node: exp.Expr, hold: Callable[[exp.Expr], exp.Expr], *, columns: bool) -> exp.Expr:
    """Put what ``hold`` gives in place of the values that a node is made of."""
    if isinstance(node, exp.Column):
        return node
    for name in node.find_all(exp.Identifier):  # words of SQL are names here, too
        name.set("quoted", True)
    plain = (exp.Column,) if not columns else ()
    for child in list(node.iter_expressions()):
        called = isinstance(node, exp.Filter) and isinstance(child, exp.Anonymous)
        if called or isinstance(child, _STRUCTURE):
            _with_parts(child, hold, columns=columns)
        elif not _is_as_written(child) and (not isinstance(child, plain) or child.table):
            child.replace(hold(child))
    return node


def _is_as_written(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast):
        return isinstance(node.this, exp.Literal) and bool(node.this.is_string)
    if isinstance(node, exp.Neg | exp.Paren):
        return isinstance(node.this, exp.Literal)
    return isinstance(node, _AS_WRITTEN)
