"""The grammar: what a value of a kind can be made of.

A form is a text with holes, and the kinds that go into them. Where DuckDB only spells it in another
way, ``judge`` is its spelling. Where it means something else, ``meant`` names the difference, and
``alike`` is a spelling by which DuckDB gives what Penstock promises. An aggregate that ``keeps``
its rows has no value for a group in which its argument fails.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPARED = ("int", "float", "decimal", "text", "bool", "date", "time", "zoned", "span")
"""The kinds of values that can be compared."""

KEPT = "kept"
"""The name of what aggregates do that keep their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to make a value of a kind."""

    kind: str
    text: str
    parts: tuple[str, ...]
    judge: str = ""
    meant: str = ""
    alike: str = ""
    keeps: bool = False

    @property
    def always(self) -> int:
        """How many of its parts are computed for every row; a choice leaves out the others."""
        for words, count in _CHOICES.items():
            if self.text.startswith(words):
                return count
        return len(self.parts)


_CHOICES = {
    "CASE WHEN": 1, "CASE {} WHEN": 2, "coalesce(": 1, "ifnull(": 1, "if(": 1, "({} AND {})": 1,
    "({} OR {})": 1,
}  # fmt: skip


def form(
    kind: str, text: str, *parts: str, judge: str = "", meant: str = "", alike: str = ""
) -> Form:
    """Return a form; the grammar is written down as a list of them."""
    return Form(kind=kind, text=text, parts=parts, judge=judge, meant=meant, alike=alike)
