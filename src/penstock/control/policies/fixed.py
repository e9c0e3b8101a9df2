"""The policy that changes nothing: the size is what the user says."""

from __future__ import annotations

from penstock.control.decision import Decision, Memory
from penstock.control.view import View


class Fixed:
    """Leaves everything as it is."""

    name = "fixed"

    def decide(self, view: View, memory: Memory) -> Decision:
        """Return that nothing is to be changed."""
        return Decision(memory=memory, reasons=("the policy is fixed: sizes change by hand only",))
