"""Expressions in the user's words, for messages."""

from __future__ import annotations

import re

import polars as pl

_SAID = (
    (re.compile(r'col\("([^"]*)"\)'), r"\1"),
    (re.compile(r"dyn (?:int|float): "), ""),
    (re.compile(r"\((\w+(?:\.\d+)?)\)(?= [-+*/<>=&|%!])"), r"\1"),
    (re.compile(r"(?<=[-+*/<>=&|%!] )\((\w+(?:\.\d+)?)\)"), r"\1"),
    (re.compile(r"\(\[([^][]*)\]\)"), r"(\1)"),
    (re.compile(r"\[([^][]*)\](?:\.fill_null\(false\))?$"), r"\1"),
)


def in_words(expression: pl.Expr) -> str:
    """Return an expression as one would write it, as far as that is easy.

    >>> in_words(pl.col("x") * 2 + pl.col("y"))
    '(x * 2) + y'
    """
    return plain_words(str(expression))


def plain_words(text: str) -> str:
    """Return the text of expressions as one would write them."""
    for written, said in _SAID:
        text = written.sub(said, text)
    return text
