"""Clauses that SQL has and Penstock has not, refused by name.

Law: a clause that is not on the list of those that are translated is refused; a new clause in
sqlglot's grammar can't slip through.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.query.dialect import WINDOW_TABLES
from penstock.sql.places import Mistakes

_TRANSLATED: dict[type[exp.Expr], set[str]] = {
    exp.Select: {"expressions", "from_", "joins", "where", "group", "having", "with_"},
    exp.Union: {"this", "expression", "distinct", "with_"},
    exp.Table: {"this", "alias"},
    exp.Subquery: {"this", "alias"},
}
_WORDS = {
    "windows": "WINDOW",
    "locks": "FOR",
    "laterals": "LATERAL",
    "sample": "TABLESAMPLE",
    "db": "a table with a schema",
    "with_": "WITH",
    "by_name": "BY NAME",
    "pivots": "PIVOT",
}
_HINTS = {
    "distinct": "use Stream.dedup, or GROUP BY with a window",
    "order": "a stream has no end to sort; put ordered=True on the sink, or LIMIT with a window",
    "limit": "it goes with ORDER BY, over GROUP BY with TUMBLE or HOP, in the outermost SELECT",
    "qualify": "use ORDER BY with LIMIT over a window",
}


def refuse_clauses(node: exp.Expr, mistakes: Mistakes, *, top: bool) -> None:
    """Note the clauses of a query that aren't supported.

    Args:
        node: The query.
        mistakes: Where to note them.
        top: Whether ORDER BY with LIMIT means the first rows of each window here.
    """
    allowed = _TRANSLATED.get(type(node), set())
    ranked = top and node.args.get("order") is not None and node.args.get("limit") is not None
    if ranked:
        allowed = allowed | {"order", "limit"}
        _check_top(node, mistakes)
    for name, value in node.args.items():
        if value and name not in allowed:
            _refuse(node, name, value, mistakes)


def _refuse(node: exp.Expr, name: str, value: object, mistakes: Mistakes) -> None:
    part = value[0] if isinstance(value, list) else value
    word = _WORDS.get(name, name.strip("_").upper())
    if name in ("order", "group"):
        word = f"{word} BY"
    known = isinstance(part, exp.Expr) and any("start" in n.meta for n in part.walk())
    if known and isinstance(part, exp.Expr):
        mistakes.refuse(word, part, _HINTS.get(name, ""))
    else:
        mistakes.refuse(word, mistakes.text.after(node, word), _HINTS.get(name, ""))


def _check_top(node: exp.Expr, mistakes: Mistakes) -> None:
    order, limit = node.args["order"], node.args["limit"]
    if len(order.expressions) > 1:
        mistakes.refuse("ORDER BY with several expressions", order.expressions[1], "write one")
    if order.expressions[0].args.get("nulls_first"):
        mistakes.refuse("NULLS FIRST", mistakes.text.after(order, "NULLS"))
    if not isinstance(limit, exp.Limit):
        mistakes.refuse("FETCH", limit, "write LIMIT")
    elif not (isinstance(limit.expression, exp.Literal) and limit.expression.is_int):
        mistakes.add("LIMIT takes a whole number", limit)


def refuse_from(node: exp.Expr, mistakes: Mistakes) -> bool:
    """Note what a table in FROM asks for that isn't supported; return whether there is any."""
    before = len(mistakes)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        mistakes.refuse("a JOIN in parentheses", node.this)
    elif not isinstance(node, exp.Table | exp.Subquery):
        mistakes.refuse(f"{type(node).__name__.upper()} in FROM", node)
    elif isinstance(node.this, exp.Anonymous):
        called = node.this.sql().upper()
        windowed = any(name in called for name in WINDOW_TABLES)
        hint = "windows are written in GROUP BY: TUMBLE(time, size)" if windowed else ""
        mistakes.refuse("a table function", node.this, hint)
    else:
        for name, value in node.args.items():
            if value and name not in _TRANSLATED[type(node)] | {"with_"}:
                _refuse(node, name, value, mistakes)
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            mistakes.refuse("a list of columns in an alias", alias, "name them with AS")
    return len(mistakes) > before
