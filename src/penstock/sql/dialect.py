"""The SQL that Penstock reads: PostgreSQL's grammar, with the functions of Polars.

Law: a call keeps the name and the arguments that the user wrote. sqlglot would translate functions
between databases (``LOG10(x)`` to ``LOG(10, x)``, which Polars reads another way round), so this
dialect knows the names of none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import QueryError
from penstock.sql.places import Text

_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "TRIM", "SUBSTRING")
"""Functions with a grammar of their own."""


class PenstockSql(Postgres):
    """The dialect, for reading and for writing expressions that Polars reads."""

    NULL_ORDERING = "nulls_are_last"

    class Parser(PostgresParser):
        """Keeps function calls as they are written."""

        FUNC_TOKENS = PostgresParser.FUNC_TOKENS | {TokenType.SESSION}
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: PostgresParser.FUNCTION_PARSERS[name] for name in _SYNTAX
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CASE": PostgresParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }

    class Generator(PostgresGenerator):
        """Writes what Polars reads."""

        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **PostgresGenerator.TRANSFORMS,
            exp.TryCast: lambda self, node: self.func("TRY_CAST", _cast_body(self, node)),
        }


def _cast_body(generator: Any, node: exp.TryCast) -> str:
    return f"{generator.sql(node, 'this')} AS {generator.sql(node, 'to')}"


def parse_statements(sql: str) -> tuple[Text, list[exp.Expr]]:
    """Return the statements of an SQL text, and the text for finding places in it.

    Raises:
        QueryError: It is not SQL.

    >>> [type(s).__name__ for s in parse_statements("SELECT a FROM t; SELECT b FROM t")[1]]
    ['Select', 'Select']
    """
    try:
        tokens = sqlglot.tokenize(sql, read=PenstockSql)
        statements = sqlglot.parse(sql, read=PenstockSql)
    except sqlglot.errors.ParseError as error:
        raise QueryError(problems=[_complaint(found) for found in error.errors]) from error
    except sqlglot.errors.TokenError as error:
        place = Text(sql=sql, tokens=()).place(_unclosed(sql))
        problem = f"cannot read the SQL: what begins here has no end; {place}"
        raise QueryError(problems=(problem,)) from error
    text = Text(sql=sql, tokens=tuple(_words(tokens)))
    for offset, sign in _unpaired(text):
        problem = f"cannot read the SQL: {sign!r} has no partner; {text.place(offset)}"
        raise QueryError(problems=(problem,))
    found = [s for s in statements if s is not None and not isinstance(s, exp.Semicolon)]
    return text, found


def _unpaired(text: Text) -> list[tuple[int, str]]:
    """Return the parentheses without a partner, which sqlglot passes over in a few places."""
    open_: list[tuple[int, str]] = []
    for offset, word in text.tokens:
        if word == "(":
            open_.append((offset, word))
        elif word == ")" and not open_:
            return [(offset, word)]
        elif word == ")":
            open_.pop()
    return open_


def _unclosed(sql: str) -> int:
    """Return where the quote or comment begins that is never closed."""
    begins = [i for i, c in enumerate(sql) if c in "'\"$/" and sql[i - 1 : i] != c]
    return max((i for i in begins if _is_whole(sql[:i])), default=0)


def _is_whole(sql: str) -> bool:
    try:
        sqlglot.tokenize(sql, read=PenstockSql)
    except sqlglot.errors.TokenError:
        return False
    return True


def _words(tokens: list[Token]) -> Iterator[tuple[int, str]]:
    for token in tokens:
        if token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER):
            yield token.start, " ".join(token.text.upper().split())


def _complaint(found: dict[str, Any]) -> str:
    seen = found["highlight"] or ""
    column = max(1, found["col"] - len(seen) + 1)
    what = str(found["description"]).rstrip(".").replace("<class 'sqlglot.expressions.", "<'")
    near = f" at {seen!r}" if seen else ""
    return f"cannot read the SQL{near}: {what}; line {found['line']}, column {column}"


def to_text(node: exp.Expr) -> str:
    """Return an expression as SQL text that Polars reads.

    >>> to_text(sqlglot.parse_one("Log10(x)  + 1", read=PenstockSql))
    'Log10(x) + 1'
    """
    return node.sql(dialect=PenstockSql, normalize_functions=False)
