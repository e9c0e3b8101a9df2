"""One function of the expression language, as it is documented and checked.

Law: an entry's example gives its value, and its words about types and nulls are true of it; a test
runs every entry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

STRICT = "NULL if an argument is"
FIRST = "NULL if the first argument is"
SKIPS = "skips NULL; NULL if nothing is left"
SAME = "as x"
"""The type of the first argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function or an operator.

    Attributes:
        signature: How it is called; ``[, x]`` can be left out, ``...`` goes on.
        gives: The type of its value, or `SAME`, or words.
        nulls: What it makes of NULL.
        example: An expression. Those of aggregates are over `ROWS`.
        value: What the example gives, as `show` writes it.
        differs: How PostgreSQL does it, where that is different.
        aliases: Other names of it.
        aggregate: Whether it takes the rows of a group.
    """

    signature: str
    gives: str
    nulls: str
    example: str
    value: str
    differs: str = ""
    aliases: tuple[str, ...] = ()
    aggregate: bool = False

    @property
    def name(self) -> str:
        """Its name; empty for an operator or a form such as CASE."""
        found = re.match(r"([a-z_0-9]+)\(", self.signature)
        return found.group(1) if found else ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that it is called by."""
        return (self.name, *self.aliases) if self.name else ()

    @property
    def arguments(self) -> tuple[int, int | None]:
        """How many arguments it takes, at least and at most; None: any number.

        >>> Function(signature="f(a, b[, c])", gives="", nulls="", example="", value="").arguments
        (2, 3)
        """
        inside = self.signature[self.signature.index("(") + 1 : -1].replace("[DISTINCT] ", "")
        needed, _, optional = inside.partition("[")
        least = len([part for part in needed.split(",") if part.strip(" .")])
        if "..." in inside:
            return least, None
        return least, least + optional.count(",")

    def misuse(self, given: int) -> str | None:
        """Return the complaint about a number of arguments, or None if it is right."""
        least, most = self.arguments
        if given >= least and (most is None or given <= most):
            return None
        return f"{self.name} takes other arguments: {self.signature}; found {given}"


def row(
    signature: str,
    gives: str,
    nulls: str,
    example: str,
    value: str,
    differs: str = "",
    *,
    also: Sequence[str] = (),
) -> Function:
    """Return an entry; the functions are written down as a table."""
    return Function(
        signature=signature,
        gives=gives,
        nulls=nulls,
        example=example,
        value=value,
        differs=differs,
        aliases=tuple(also),
    )
