"""What a run of statements has found, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.differ.compare import DIFFERS, EQUAL, REFUSED, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How many statements had which outcome, and those that differ."""

    outcomes: Counter[str]
    differing: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Report:
        """Return the report of findings."""
        outcomes: Counter[str] = Counter()
        differing = []
        for found in findings:
            outcomes[found.outcome] += 1
            if found.outcome == DIFFERS:
                differing.append(found)
        return cls(outcomes=outcomes, differing=tuple(differing))

    @property
    def meant(self) -> dict[str, int]:
        """How often each difference was met that is meant."""
        plain = (EQUAL, REFUSED, DIFFERS)
        return {name: n for name, n in sorted(self.outcomes.items()) if name not in plain}

    def to_text(self) -> str:
        """Return it as lines for people."""
        lines = [
            f"statements {self.outcomes.total()}",
            f"equal {self.outcomes[EQUAL]}",
            f"refused by both {self.outcomes[REFUSED]}",
            *(f"meant: {name} {n}" for name, n in self.meant.items()),
            f"differing {len(self.differing)}",
        ]
        for found in self.differing:
            lines += [
                f"  {found.statement.text}",
                f"    row {found.row}: Penstock {_show(found.ours)}; DuckDB {_show(found.theirs)}",
            ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return it as one JSON object."""
        return json.dumps(
            {
                "statements": self.outcomes.total(),
                "equal": self.outcomes[EQUAL],
                "refused": self.outcomes[REFUSED],
                "meant": self.meant,
                "differing": [
                    {
                        "statement": found.statement.text,
                        "row": str(found.row),
                        "penstock": _show(found.ours),
                        "duckdb": _show(found.theirs),
                    }
                    for found in self.differing
                ],
            }
        )


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{value[0]} {value[1]!r}"
    return "NULL" if value is None else str(value)
