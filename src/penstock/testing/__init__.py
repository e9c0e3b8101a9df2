"""The testing kit: a reference evaluator, an in-process runner, test streams."""
