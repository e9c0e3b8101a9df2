"""Headers: what an instance has been told of times, and what it tells those after it.

Law: the watermark that a stateful head works with never goes back, and is not above that of any
sender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.exchange.merger import input_watermark, merge_marks, merge_seen
from penstock.exchange.payload import Payload
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan


class Headers:
    """The times that an instance knows of.

    Attributes:
        seen: The highest event time of each source.
        marks: How far operators are: those of senders, and the own ones.
        watermarks: The watermarks of what came into the own heads, by operator.
    """

    def __init__(self, query: CompiledQuery, plan: EpochPlan, payloads: Sequence[Payload]) -> None:
        """Merge what all senders have said."""
        self._query, self._plan = query, plan
        self.seen = merge_seen([plan.seen, *[p.seen for p in payloads]])
        self.marks = merge_marks([p.marks for p in payloads])
        self.watermarks: dict[str, int] = {}

    def see(self, seen: Mapping[int, int]) -> None:
        """Take up the highest event times of rows that were read here."""
        self.seen = merge_seen([self.seen, seen])

    def watermark(self, head: int) -> int:
        """Return the watermark of what comes into a stateful head."""
        plan, name = self._plan, self._query.operator_name(head)
        idle = frozenset(n for n in plan.idle if self.seen.get(n) == plan.seen.get(n))
        mark = input_watermark(
            self._query, self.seen, head, idle=idle, final=plan.final, marks=self.marks
        )
        self.watermarks[name] = max(mark, plan.watermarks.get(name, mark))
        return self.watermarks[name]

    def reach(self, head: int, mark: int) -> None:
        """Say how far a head will be, before its results leave."""
        self.marks[head] = mark
