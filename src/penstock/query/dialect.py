"""The SQL that Penstock reads: PostgreSQL's grammar, with functions that keep their names.

Law: a call keeps the name and the arguments that the user wrote. sqlglot would translate functions
between databases (``LOG10(x)`` to ``LOG(10, x)``, which Polars reads another way round), so this
dialect knows the names of none.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "TRIM", "SUBSTRING")
"""Functions with a grammar of their own."""
WINDOW_TABLES = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
"""Flink's table functions."""


class PenstockSql(Postgres):
    """The dialect, for reading and for writing expressions that Polars reads."""

    NULL_ORDERING = "nulls_are_last"

    class Tokenizer(Postgres.Tokenizer):
        """Knows ``//``, which divides integers, and names in backticks."""

        IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]
        KEYWORDS: ClassVar[dict[str, Any]] = {
            **Postgres.Tokenizer.KEYWORDS,
            "//": TokenType.DIV,
        }

    class Parser(PostgresParser):
        """Keeps function calls as they are written."""

        FUNC_TOKENS = PostgresParser.FUNC_TOKENS | {TokenType.SESSION, TokenType.WINDOW}
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: PostgresParser.FUNCTION_PARSERS[name] for name in _SYNTAX
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CASE": PostgresParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }
        FACTOR: ClassVar[dict[Any, Any]] = {**PostgresParser.FACTOR, TokenType.DIV: exp.IntDiv}

        def _parse_interval_span(self, this: exp.Expr, *args: Any, **kwargs: Any) -> exp.Interval:
            """Keep the whole text of an interval; sqlglot drops what it does not know."""
            made = super()._parse_interval_span(this, *args, **kwargs)
            known = this.is_string and exp.INTERVAL_STRING_RE.search(this.name)
            if known and exp.INTERVAL_STRING_RE.sub("", this.name).strip(" ,"):
                made.set("this", exp.Literal.string(this.name))
                made.set("unit", None)
            return made

        def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            return self._parse_window_table() or super()._parse_table(*args, **kwargs)

        def _parse_window_table(self) -> exp.Expr | None:
            """Return Flink's ``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size))``, or None.

            It is the table with what is done to it in ``window``, a call with the table left out.
            """
            start = self._index
            wrapped = self._match_text_seq("TABLE", "(")
            call = self._curr
            word = call.text.upper()
            if word not in WINDOW_TABLES or not self._match_text_seq(word, "("):
                self._retreat(start)
                return None
            self._match_text_seq("DATA", "=>")
            self._match_text_seq("TABLE")
            table = self._parse_table_parts()
            partition = self._parse_partition_by()
            if table is None or not isinstance(table.this, exp.Identifier):
                self._retreat(start)
                return None
            times = [i for i, part in enumerate(partition) if part.name.upper() == "DESCRIPTOR"]
            keys = partition[: times[0]] if times else partition
            made = exp.Anonymous(this=call.text, expressions=partition[len(keys) :])
            made.update_positions(call)
            made.set("partition", keys)
            while self._match(TokenType.COMMA):
                made.append("expressions", self._parse_lambda())
            self._match_r_paren()
            if wrapped:
                self._match_r_paren()
            table.set("window", made)
            table.set("alias", self._parse_table_alias())
            return table

    class Generator(PostgresGenerator):
        """Writes what Polars reads."""

        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **PostgresGenerator.TRANSFORMS,
            exp.TryCast: lambda self, node: self.func("TRY_CAST", _cast_body(self, node)),
            exp.IntDiv: lambda self, node: self.binary(node, "//"),
            exp.Ordered: lambda self, node: _ordered(self, node),
        }


def _cast_body(generator: Any, node: exp.TryCast) -> str:
    return f"{generator.sql(node, 'this')} AS {generator.sql(node, 'to')}"


def _ordered(generator: Any, node: exp.Ordered) -> str:
    """Say where NULL goes: what Polars takes for granted is not what this dialect does."""
    way = " DESC" if node.args.get("desc") else ""
    nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
    return f"{generator.sql(node, 'this')}{way} NULLS {nulls}"


def to_text(node: exp.Expr) -> str:
    """Return an expression as SQL text that Polars reads.

    >>> import sqlglot
    >>> to_text(sqlglot.parse_one("Log10(x)  + 1", read=PenstockSql))
    'Log10(x) + 1'
    """
    return node.sql(dialect=PenstockSql, normalize_functions=False)
