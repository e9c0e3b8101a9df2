"""Dedup: the first row of each key, for some time or for ever.

Law: of the rows of a key, in stream order, the first stays, and then each that comes ``within`` or
more after the last one that stayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.base.durations import Duration, format_duration, parse_duration
from penstock.query.keys import Names, key_problems, names_of
from penstock.query.nodes import Keyed, Node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dedup(Keyed):
    """Keeps a row unless one of its key was kept less than ``within_us`` before it, or ever."""

    within_us: int | None

    @property
    def note(self) -> str:
        """How the operator works, for plans."""
        return "keeps a time per key"

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        by = f" by {', '.join(self.by)}" if self.by else ""
        within = "" if self.within_us is None else f" within {format_duration(self.within_us)}"
        return f"dedup{by}{within}"

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        return {
            "by": {key: str(self.schema[key]) for key in self.by},
            "keys": list(self.by),
            "within_us": self.within_us,
            "rows": {name: str(dtype) for name, dtype in self.schema.items()},
        }


def dedup_node(stream: Node, by: Names, within: Duration | None) -> tuple[Node, list[str]]:
    """Return the operator that drops repeated rows, and what is wrong with it."""
    keys = names_of(by)
    found = key_problems("dedup by", keys, stream.schema, nested=True)
    within_us = None
    if within is not None:
        try:
            within_us = parse_duration(within)
        except ValueError as error:
            found.append(f"dedup: {error}")
        if within_us is not None and within_us <= 0:
            found.append(f"dedup: within must be positive; within={within!r}")
    node = Dedup(inputs=(stream,), schema=stream.schema, by=keys, within_us=within_us)
    return node, found
