"""The statements of an SQL text, and what is wrong with a text that is none.

Law: what cannot be read is complained about at its line and column.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.base.errors import QueryError
from penstock.query.dialect import PenstockSql
from penstock.query.functions import unknown_function
from penstock.sql.places import Text

_STATEMENTS = ("SELECT", "WITH", "CREATE", "INSERT", "VALUES", "FROM")
_OTHER_STATEMENTS = (
    "DROP", "DELETE", "UPDATE", "ALTER", "MERGE", "SET", "USE", "SHOW", "DESCRIBE", "DESC",
    "EXPLAIN", "BEGIN", "COMMIT", "ROLLBACK", "COPY", "TRUNCATE", "PRAGMA", "GRANT", "CACHE",
    "REFRESH", "ANALYZE", "REPLACE", "CALL",
)  # fmt: skip
_CLAUSES = {word: word for word in ("FROM", "WHERE", "HAVING", "LIMIT", "JOIN", "SELECT")}
_CLAUSES |= {word: f"{word} BY" for word in ("GROUP", "ORDER")}
_CLAUSES |= {"GROUPBY": "GROUP BY", "ORDERBY": "ORDER BY", "UNION": "UNION ALL"}
"""Words that clauses begin with, right or wrong, and how they are written."""
_FORGOTTEN = "is a comma, an operator or a quote missing before it?"
_OPENING = (TokenType.L_PAREN, TokenType.SEMICOLON)


def parse_statements(sql: str) -> tuple[Text, list[exp.Expr]]:
    """Return the statements of an SQL text, and the text for finding places in it.

    Raises:
        QueryError: It is not SQL.

    >>> [type(s).__name__ for s in parse_statements("SELECT a FROM t; SELECT b FROM t")[1]]
    ['Select', 'Select']
    """
    try:
        tokens = sqlglot.tokenize(sql, read=PenstockSql)
        _check_statements(tokens, sql)
        statements = sqlglot.parse(sql, read=PenstockSql)
    except sqlglot.errors.ParseError as error:
        raise QueryError(problems=[_complaint(found) for found in error.errors]) from error
    except sqlglot.errors.TokenError as error:
        place = Text(sql=sql, tokens=()).place(_find_unclosed(sql))
        problem = f"cannot read the SQL: what begins here has no end; {place}"
        raise QueryError(problems=(problem,)) from error
    text = Text(sql=sql, tokens=tuple(_words(tokens)))
    for offset, sign in _find_unpaired(text):
        problem = f"cannot read the SQL: {sign!r} has no partner; {text.place(offset)}"
        raise QueryError(problems=(problem,))
    found = [s for s in statements if s is not None and not isinstance(s, exp.Semicolon)]
    return text, found


def _check_statements(tokens: list[Token], sql: str) -> None:
    """Raise `QueryError` for statements that begin with a word that begins none."""
    found = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        begins = before is None or before.token_type == TokenType.SEMICOLON
        said = _explain_misbegun(token) if begins else None
        if said:
            found.append(f"{said}; {Text(sql=sql, tokens=()).place(token.start)}")
    if found:
        raise QueryError(problems=found)


def _explain_misbegun(token: Token) -> str | None:
    """Return what is wrong with the first word of a statement."""
    word = token.text.upper().split(" ")[0]
    if word in _OTHER_STATEMENTS:
        return f"{word} is not supported: write SELECT, or in a file CREATE, INSERT INTO or SELECT"
    if word in _STATEMENTS or token.token_type in _OPENING:
        return None
    near = difflib.get_close_matches(word, _STATEMENTS, n=1)
    hint = f"did you mean {near[0]}?" if near else "write SELECT"
    return f"unknown statement {token.text!r}; {hint}"


def _find_unpaired(text: Text) -> list[tuple[int, str]]:
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


def _find_unclosed(sql: str) -> int:
    """Return where the quote or comment begins that is never closed."""
    begins = [i for i, c in enumerate(sql) if c in "'\"`$/" and sql[i - 1 : i] != c]
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
    near = f" at {seen!r}" if seen else ""
    what = _in_words(str(found["description"]), seen, str(found["start_context"]))
    return f"cannot read the SQL{near}: {what}; line {found['line']}, column {column}"


def _in_words(said: str, seen: str, before: str) -> str:
    """Return what sqlglot complains about, in words of SQL; ``before`` is the text before."""
    if re.search(r"\bwindow\s*\([^()]*$", before, re.IGNORECASE):
        return unknown_function("window")
    if found := re.match(r"Expecting ([()\]])", said):
        return f"a {found[1]!r} is missing"
    if said.startswith("Required keyword"):
        return "something is missing here"
    if said.startswith("Expected table name"):
        return "the name of a table is missing"
    if found := re.match(r"Expected (\w+) after (\w+)", said):
        return f"{found[2]} needs {found[1]}"
    if seen == ")":
        return "it has no partner"
    word = before.split()[-1].upper() if before.split() else ""
    near = [_CLAUSES[found] for found in difflib.get_close_matches(word, _CLAUSES, n=1, cutoff=0.7)]
    hint = f"did you mean {near[0]} before it?" if near and near[0] != word else _FORGOTTEN
    return f"it is not expected here; {hint}"
