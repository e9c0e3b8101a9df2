"""The policy that changes nothing: the size is what the user says."""

from __future__ import annotations

from penstock.control.bounds import Bounds
from penstock.control.decision import Decision, Memory, Parameters
from penstock.control.view import View


class Fixed:
    """Leaves everything as it is."""

    name = "fixed"
    parameters = Parameters

    def __init__(self, bounds: Bounds, parameters: Parameters) -> None:
        """Decide by nothing."""

    def decide(self, view: View, memory: Memory) -> Decision:
        """Return that nothing is to be changed."""
        return Decision(memory=memory, reasons=("the policy is fixed: sizes change by hand only",))
