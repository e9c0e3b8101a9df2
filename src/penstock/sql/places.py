"""Where in an SQL text something is, and the mistakes found there.

Law: every mistake names a line and a column, counted from 1, of the text that the user gave.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

CLOCKS: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "CURRENT_DATE",
    exp.CurrentTime: "CURRENT_TIME",
    exp.CurrentTimestamp: "CURRENT_TIMESTAMP",
    exp.Localtime: "LOCALTIME",
    exp.Localtimestamp: "LOCALTIMESTAMP",
}
_KEYWORDS: dict[type[exp.Expr], str] = {
    **CLOCKS,
    exp.Case: "CASE",
    exp.Cast: "CAST",
    exp.TryCast: "TRY_CAST",
    exp.Extract: "EXTRACT",
    exp.Trim: "TRIM",
    exp.Substring: "SUBSTRING",
    exp.StrPosition: "POSITION",
    exp.Interval: "INTERVAL",
    exp.Not: "NOT",
    exp.Exists: "EXISTS",
    exp.Select: "SELECT",
    exp.Subquery: "SELECT",
    exp.Insert: "INSERT",
    exp.Create: "CREATE",
    exp.Drop: "DROP",
    exp.With: "WITH",
    exp.Where: "WHERE",
    exp.Group: "GROUP",
    exp.Having: "HAVING",
    exp.Order: "ORDER",
    exp.Limit: "LIMIT",
    exp.Offset: "OFFSET",
    exp.Fetch: "FETCH",
    exp.Qualify: "QUALIFY",
    exp.Join: "JOIN",
    exp.Values: "VALUES",
    exp.Unnest: "UNNEST",
    exp.Lateral: "LATERAL",
    exp.Distinct: "DISTINCT",
    exp.Rollup: "ROLLUP",
    exp.Cube: "CUBE",
    exp.GroupingSets: "GROUPING",
    exp.TableSample: "TABLESAMPLE",
}
"""The words that begin what has no place of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """An SQL text and its words, in upper case, with the offsets at which they begin."""

    sql: str
    tokens: tuple[tuple[int, str], ...]

    def start(self, node: exp.Expr) -> int:
        """Return the offset at which a node begins, or the nearest one that is known."""
        here: exp.Expr | None = node
        while here is not None:
            starts = [n.meta["start"] for n in here.walk() if "start" in n.meta]
            if starts:
                return self._back_to(_KEYWORDS.get(type(node)), min(starts))
            here = here.parent
        return 0

    def after(self, node: exp.Expr, word: str) -> int:
        """Return the offset of a keyword at or after the beginning of a node."""
        begin = self.start(node)
        return next((at for at, text in self.tokens if at >= begin and text == word), begin)

    def before(self, node: exp.Expr, word: str) -> int:
        """Return the offset of the last keyword before a node."""
        return self._back_to(word, self.start(node))

    def _back_to(self, word: str | None, offset: int) -> int:
        before = [at for at, text in self.tokens if text.split(" ")[0] == word and at <= offset]
        return before[-1] if before else offset

    def place(self, offset: int) -> str:
        """Return the line and column of an offset, in words."""
        line = self.sql.count("\n", 0, offset) + 1
        return f"line {line}, column {offset - self.sql.rfind(chr(10), 0, offset)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistakes:
    """The mistakes found so far; a translation that fails adds to it and gives nothing."""

    text: Text
    found: dict[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """The mistakes as sentences, in the order of the text."""
        return sorted(self.found, key=lambda sentence: self.found[sentence])

    def __len__(self) -> int:
        return len(self.found)

    def add(self, problem: str, at: exp.Expr | int) -> None:
        """Note a mistake at a node or an offset."""
        offset = at if isinstance(at, int) else self.text.start(at)
        self.found.setdefault(f"{problem}; {self.text.place(offset)}", offset)

    def refuse(self, what: str, at: exp.Expr | int, hint: str = "") -> None:
        """Note that something is not supported, and what to write instead."""
        self.add(f"{what} is not supported" + (f": {hint}" if hint else ""), at)
