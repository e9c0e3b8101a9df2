"""The reference evaluator: what a query means, tuple by tuple, in plain Python."""

from penstock.testing.reference.evaluate import Reference, evaluate

__all__ = ["Reference", "evaluate"]
