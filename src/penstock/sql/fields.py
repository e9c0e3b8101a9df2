"""Fields of structs in SQL: which names before a dot are tables, and which are columns.

Law: a table wins. ``st.a`` is the column ``a`` of a table ``st`` if there is such a table, and the
field ``a`` of a column ``st`` if there is none; ``(st).a`` always is the field.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.scope import Table

_PARTS = ("catalog", "db", "table", "this")


def split_fields(node: exp.Expr, tables: tuple[Table, ...]) -> None:
    """Change names that stand for fields into columns with fields, in place."""
    for dot in list(node.find_all(exp.Dot)):
        if isinstance(dot.this, exp.Paren) and isinstance(dot.this.this, exp.Column):
            dot.this.replace(dot.this.this)
    for column in list(node.find_all(exp.Column)):
        parts = [column.args[part] for part in _PARTS if column.args.get(part)]
        known = 2 if any(t.alias == parts[0].name for t in tables) else 1
        owned = known == 2 or any(parts[0].name in t.columns for t in tables)
        if len(parts) > known and owned and not isinstance(column.this, exp.Star):
            column.replace(_dotted(parts, known))


def _dotted(parts: list[exp.Expr], known: int) -> exp.Expr:
    names = [part.copy() for part in parts]
    made: exp.Expr = exp.Column(this=names[known - 1], table=names[0] if known == 2 else None)
    for name in names[known:]:
        made = exp.Dot(this=made, expression=name)
    return made
