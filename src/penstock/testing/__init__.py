"""The testing kit: a reference evaluator, an in-process runner, test streams."""

from penstock.testing.reference import Reference, evaluate
from penstock.testing.runner import LocalRun
from penstock.testing.streams import TestStream

__all__ = ["LocalRun", "Reference", "TestStream", "evaluate"]
