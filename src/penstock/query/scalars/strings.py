"""Texts: patterns and places in them.

Law: null in, null out; characters are those of Unicode, never bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator

_HELD = {"escape": "\ue000", "percent": "\ue001", "underscore": "\ue002"}
"""Stand in a pattern for characters that are meant literally, while it is turned to a regex."""


def _like(t: Translator, node: exp.Expr) -> pl.Expr | None:
    return _matches(t, node, "\\")


def _escape(t: Translator, node: exp.Expr) -> pl.Expr | None:
    mark = node.expression.name if isinstance(node.expression, exp.Literal) else None
    if mark is None or len(mark) > 1:
        raise ValueError(f"ESCAPE takes one character or none; found {node.expression.sql()}")
    return _matches(t, node.this, mark)


def _matches(t: Translator, node: exp.Expr, mark: str) -> pl.Expr | None:
    if not isinstance(node, exp.Like | exp.ILike) or isinstance(node.expression, exp.Any | exp.All):
        return None
    text, pattern = t.value(node.this), node.expression
    folded = isinstance(node, exp.ILike)
    if isinstance(pattern, exp.Literal):
        found = _literal_match(text, list(_pieces(pattern.name, mark)), folded)
    else:
        regex = _to_regex(t.value(pattern), mark, "(?is)" if folded else "(?s)")
        found = text.str.contains(t.wanted(regex))
    return ~found if node.args.get("negate") else found


def _pieces(pattern: str, mark: str) -> Iterator[tuple[str, bool]]:
    """Return the characters of a pattern, each with whether it is a wildcard.

    >>> list(_pieces("a%!%", "!"))
    [('a', False), ('%', True), ('%', False)]
    """
    characters = iter(pattern)
    for character in characters:
        if mark and character == mark:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError(f"a LIKE pattern ends with its escape; pattern={pattern!r}")
            yield escaped, False
        else:
            yield character, character in "%_"


def _literal_match(text: pl.Expr, pieces: list[tuple[str, bool]], folded: bool) -> pl.Expr:
    wild = [i for i, (_, is_wild) in enumerate(pieces) if is_wild]
    plain = "".join(character for character, is_wild in pieces if not is_wild)
    if not folded and not wild:
        return text == plain
    if not folded and all(pieces[i][0] == "%" for i in wild) and plain:
        if wild == [len(pieces) - 1]:
            return text.str.starts_with(plain)
        if wild == [0]:
            return text.str.ends_with(plain)
        if wild == [0, len(pieces) - 1]:
            return text.str.contains(plain, literal=True)
    regex = "".join(
        {"%": ".*", "_": "."}[character] if is_wild else re.escape(character)
        for character, is_wild in pieces
    )
    return text.str.contains(f"(?is)^{regex}$" if folded else f"(?s)^{regex}$")


def _to_regex(pattern: pl.Expr, mark: str, flags: str) -> pl.Expr:
    """Return the regular expressions of a column of patterns."""
    if mark:
        at = re.escape(mark)
        pattern = pattern.str.replace_all(at + at, _HELD["escape"])
        pattern = pattern.str.replace_all(at + "%", _HELD["percent"])
        pattern = pattern.str.replace_all(at + "_", _HELD["underscore"])
        pattern = pattern.str.replace_all(f"(?s){at}(.)", "$1")
    pattern = pattern.str.replace_all(r"([\\.+*?()|\[\]{}^$#&\-~])", r"\$1")
    pattern = pattern.str.replace_all("%", ".*", literal=True)
    pattern = pattern.str.replace_all("_", ".", literal=True)
    for name, meant in (("escape", re.escape(mark)), ("percent", "%"), ("underscore", "_")):
        pattern = pattern.str.replace_all(_HELD[name], meant, literal=True)
    return pl.concat_str(pl.lit(flags + "^"), pattern, pl.lit("$"))


def _position(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if isinstance(node, exp.StrPosition):
        text, part = t.value(node.this), t.value(node.args["substr"])
    elif len(node.expressions) == 2:
        text, part = (t.value(argument) for argument in node.expressions)
    else:
        return None
    return _find(text, part)


def _find(text: pl.Expr, part: pl.Expr) -> pl.Expr:
    """Return where a part begins in a text, from 1; 0 if it is not there."""
    before = text.str.split(part).list.first().str.len_chars().cast(pl.Int64)
    found = pl.when(text.str.contains(part, literal=True)).then(before + 1).otherwise(0)
    return pl.when(text.is_not_null() & part.is_not_null()).then(
        pl.when(part == "").then(1).otherwise(found)
    )


def _initcap(t: Translator, node: exp.Expr) -> pl.Expr | None:
    """Return words with a capital; digits belong to them, so that ``7b`` stays."""
    words = t.value(node.expressions[0]).str.extract_all(r"[\p{L}\p{N}]+|[^\p{L}\p{N}]+")
    word = pl.element().str
    capital = word.slice(0, 1).str.to_uppercase() + word.slice(1).str.to_lowercase()
    return words.list.eval(capital).list.join("")


NODES: dict[type[exp.Expr], Builder] = {
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.StrPosition: _position,
}
CALLS: dict[str, Builder] = {"initcap": _initcap, "instr": _position, "strpos": _position}
