"""Parts of texts: what is cut off, cut out and put in their place.

Law: null in, null out, for every argument; places count characters from 1, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator

_STRIPS = {"BOTH": "strip_chars", "LEADING": "strip_chars_start", "TRAILING": "strip_chars_end"}


def whole_number(node: exp.Expr) -> int | None:
    """Return the whole number that a node writes out; None if it does not."""
    sign, inner = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(inner, exp.Literal) or inner.is_string or not inner.name.isdigit():
        return None
    return sign * int(inner.name)


def _known(value: pl.Expr, *arguments: pl.Expr) -> pl.Expr:
    """Return a value that is null where an argument is."""
    return pl.when(*[argument.is_not_null() for argument in arguments]).then(value)


def _number(t: Translator, node: exp.Expr) -> pl.Expr:
    return t.value(node).cast(pl.Int64, strict=False)


def _left(t: Translator, node: exp.Expr) -> pl.Expr | None:
    text, (place, count) = t.value(node.expressions[0]), _count(t, node.expressions[1])
    if place is not None and place >= 0:
        return text.str.slice(0, place)
    rest = (text.str.len_chars().cast(pl.Int64) + count).clip(lower_bound=0)
    return _known(text.str.slice(0, pl.when(count < 0).then(rest).otherwise(count)), text, count)


def _right(t: Translator, node: exp.Expr) -> pl.Expr | None:
    text, (_, count) = t.value(node.expressions[0]), _count(t, node.expressions[1])
    rest = (text.str.len_chars().cast(pl.Int64) - count).clip(lower_bound=0)
    return _known(text.str.slice(pl.when(count < 0).then(-count).otherwise(rest)), text, count)


def _count(t: Translator, node: exp.Expr) -> tuple[int | None, pl.Expr]:
    """Return a number that may be written out, and its expression."""
    return whole_number(node), _number(t, node)


def _substring(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if isinstance(node, exp.Substring):
        parts = [node.this, node.args.get("start"), node.args.get("length")]
    else:
        parts = [*node.expressions, None][:3]
    if parts[1] is None:
        return None
    text, (place, start) = t.value(parts[0]), _count(t, parts[1])
    if parts[2] is None:
        cut = text.str.slice((start - 1).clip(lower_bound=0))
        return text.str.slice(max(place - 1, 0)) if place is not None else _known(cut, text, start)
    known, length = _count(t, parts[2])
    if place is not None and place > 0 and known is not None and known >= 0:
        return text.str.slice(place - 1, known)
    before = (start - 1).clip(upper_bound=0)
    cut = text.str.slice((start - 1).clip(lower_bound=0), (length + before).clip(lower_bound=0))
    failing = t.failing(length < 0, "a text cannot have a negative length", pl.String())
    return _known(pl.coalesce(failing, cut), text, start, length)


def _trim(t: Translator, node: exp.Expr) -> pl.Expr | None:
    side = str(node.args.get("position") or "BOTH").upper()
    return _strip(t, side, node.this, node.expression)


def _trim_call(side: str) -> Builder:
    def build(t: Translator, node: exp.Expr) -> pl.Expr | None:
        text, characters = [*node.expressions, None][:2]
        assert text is not None
        return _strip(t, side, text, characters)

    return build


def _strip(t: Translator, side: str, text: exp.Expr, characters: exp.Expr | None) -> pl.Expr:
    """Return a text without some characters at its ends: spaces unless told."""
    value = t.value(text)
    strip: Callable[[str | pl.Expr], pl.Expr] = getattr(value.str, _STRIPS[side])
    if not characters:
        return strip(" ")
    if isinstance(characters, exp.Literal):
        return strip(characters.name) if characters.name else value
    taken = t.value(characters)
    return _known(strip(taken), value, taken)


def _replace(t: Translator, node: exp.Expr) -> pl.Expr | None:
    text, old, new = (t.value(part) for part in node.expressions)
    wanted, put = node.expressions[1:]
    if isinstance(wanted, exp.Literal) and isinstance(put, exp.Literal) and wanted.name:
        return text.str.replace_all(wanted.name, put.name, literal=True)
    replaced = _along(text, old, new).str.split(old).list.join(new)
    return _known(pl.when(old == "").then(text).otherwise(replaced), text, old, new)


def _along(text: pl.Expr, *others: pl.Expr) -> pl.Expr:
    """Return a text with a value for each row of others, by adding nothing.

    Polars joins the parts of a constant once for each chunk of a column, not for each row.
    """
    return pl.concat_str(text, *[other.str.slice(0, 0) for other in others])


def _split_part(t: Translator, node: exp.Expr) -> pl.Expr | None:
    text, separator = (t.value(part) for part in node.expressions[:2])
    place = _number(t, node.expressions[2])
    whole = _along(text, separator)
    split = whole.str.split(separator)
    parts = pl.when(separator == "").then(pl.concat_list(whole)).otherwise(split)
    at = pl.when(place > 0).then(place - 1).otherwise(place)
    found = pl.when(place != 0).then(parts.list.get(at, null_on_oob=True))
    return _known(found.fill_null(""), text, separator, place)


NODES: dict[type[exp.Expr], Builder] = {exp.Substring: _substring, exp.Trim: _trim}
CALLS: dict[str, Builder] = {
    "left": _left,
    "ltrim": _trim_call("LEADING"),
    "replace": _replace,
    "right": _right,
    "rtrim": _trim_call("TRAILING"),
    "split_part": _split_part,
    "substr": _substring,
    "substring": _substring,
}
