"""Fields of structs: ``st.a``, ``(st).a``, ``st.b.c``."""

from __future__ import annotations

import difflib

import polars as pl
from sqlglot import exp

from penstock.query.functions import WrongCall
from penstock.query.scalars.translate import Builder, Translator
from penstock.query.scalars.zones import is_text


def _column(t: Translator, node: exp.Expr) -> pl.Expr | None:
    """Return a column, or the field of a struct; there are no tables here."""
    first, *fields = [node.args[part].name for part in _PARTS if node.args.get(part)]
    if isinstance(node.this, exp.Star):
        return None
    return _inside(t, pl.col(first), first, fields)


def _dot(t: Translator, node: exp.Expr) -> pl.Expr | None:
    owner = node.this.this if isinstance(node.this, exp.Paren) else node.this
    name = owner.name or owner.text("expression")
    return _inside(t, t.value(owner), name, [node.expression.name])


def _bracket(t: Translator, node: exp.Expr) -> pl.Expr | None:
    """Return ``st['a']``; lists have other things in brackets."""
    inside = node.expressions
    if len(inside) != 1 or not is_text(inside[0]):
        return None
    return _inside(t, t.value(node.this), node.this.name, [inside[0].name])


def _inside(t: Translator, value: pl.Expr, name: str, fields: list[str]) -> pl.Expr:
    for field in fields:
        dtype = t.dtype(value)
        if isinstance(dtype, pl.Struct):
            known = [f.name for f in dtype.fields]
            if field not in known:
                raise WrongCall(_unknown_field(field, name, known))
        elif dtype is not None:
            raise WrongCall(f"{name!r} has no field {field!r}: it is {dtype}, not a struct")
        value, name = value.struct.field(field), field
    return value


def _unknown_field(name: str, struct: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"fields: {', '.join(known)}"
    return f"unknown field {name!r} of {struct!r}; {hint}"


_PARTS = ("catalog", "db", "table", "this")
NODES: dict[type[exp.Expr], Builder] = {
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
}
CALLS: dict[str, Builder] = {}
