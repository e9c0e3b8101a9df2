"""CREATE TABLE: where a table is, and what its columns are.

Law: every option and every part of a declaration is used or refused; none is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.query.dialect import to_text
from penstock.query.expressions import ExpressionProblem, infer, parse
from penstock.sinks.registry import KINDS
from penstock.sinks.sink import TableOptions
from penstock.sql.places import Mistakes

STILL_FORMATS = ("parquet", "csv", "ndjson", "arrow")
_OWN_NAMES = {exp.FileFormatProperty: "format", exp.SchemaCommentProperty: "comment"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A declared table: its columns, empty if none are given, None if they are wrong."""

    name: str
    columns: Mapping[str, pl.DataType] | None
    options: Mapping[str, Any]

    @property
    def format(self) -> str:
        """The format of the table's files, or ``console``."""
        return str(self.options.get("format", "parquet"))

    @property
    def sink(self) -> TableOptions | None:
        """The options of a sink of this format; None if there is no such sink."""
        kind = KINDS.get(self.format)
        return None if kind is None else kind.table_options

    @property
    def is_sink(self) -> bool:
        """Whether the declaration is enough to write to the table."""
        sink = self.sink
        return sink is not None and sink.is_enough(self.options)

    @property
    def is_still(self) -> bool:
        """Whether the declaration is enough to read the table when the query is built."""
        return self.format in STILL_FORMATS and "path" in self.options

    @staticmethod
    def console() -> Declaration:
        """Return the target of a SELECT that stands alone."""
        return Declaration(name="console", columns={}, options={"format": "console"})

    def refuse_options(self, allowed: set[str], node: exp.Expr, mistakes: Mistakes) -> None:
        """Note the options that the table cannot have."""
        for name in self.options:
            if name not in allowed:
                known = ", ".join(sorted(allowed))
                mistakes.add(f"table {self.name!r} has no option {name!r}; options: {known}", node)


def read_declaration(statement: exp.Create, mistakes: Mistakes) -> Declaration:
    """Return what a CREATE TABLE declares, noting what is wrong with it."""
    for name, value in statement.args.items():
        if value and name not in ("this", "kind", "properties", "expression"):
            word = "IF NOT EXISTS" if name == "exists" else name.upper()
            mistakes.refuse(f"{word} in CREATE TABLE", statement)
    if statement.args.get("expression"):
        mistakes.refuse("CREATE TABLE AS", statement, "write CREATE VIEW, or INSERT INTO")
    schema = statement.this
    table = schema.this if isinstance(schema, exp.Schema) else schema
    columns = _columns(schema.expressions if isinstance(schema, exp.Schema) else [], mistakes)
    declared = Declaration(name=table.name, columns=columns, options=_options(statement, mistakes))
    if "time" not in declared.options and (declared.is_sink or declared.is_still):
        known = declared.sink.names if declared.sink else {"format", "path"}
        declared.refuse_options(known, table, mistakes)
    return declared


def _options(statement: exp.Create, mistakes: Mistakes) -> dict[str, Any]:
    properties = statement.args.get("properties")
    found: dict[str, Any] = {}
    for item in properties.expressions if properties else ():
        own = _OWN_NAMES.get(type(item))  # some options have a class of their own in the parser
        value = item.args.get("value") if own is None else item.this
        name = own or item.name.lower()
        if isinstance(value, exp.Literal | exp.Boolean | exp.Neg):
            found[name] = value.to_py()
        elif isinstance(value, exp.Array | exp.Tuple | exp.Paren) and all(
            isinstance(one, exp.Literal) for one in value.expressions or [value.this]
        ):
            found[name] = [one.to_py() for one in value.expressions or [value.this]]
        else:
            mistakes.refuse(f"{type(item).__name__} in CREATE TABLE", item)
    return found


def _columns(parts: list[exp.Expr], mistakes: Mistakes) -> dict[str, pl.DataType] | None:
    found: dict[str, pl.DataType] = {}
    before = len(mistakes)
    for part in parts:
        if not isinstance(part, exp.ColumnDef) or part.args.get("kind") is None:
            mistakes.refuse(
                f"{to_text(part)} in CREATE TABLE", part, "columns have a name and a type"
            )
            continue
        for constraint in part.args.get("constraints") or ():
            mistakes.refuse(f"{to_text(constraint)} in CREATE TABLE", part)
        try:
            found[part.name] = infer(parse(f"CAST(NULL AS {to_text(part.args['kind'])})", {}), {})
        except ExpressionProblem as problem:
            mistakes.add(f"column {part.name!r}: {problem}", part)
    return found if len(mistakes) == before else None
