"""What a checkpoint pins: the meaning of the query that it belongs to.

Law: a query that would read the state of another query as its own is refused, naming what changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.errors import CheckpointError
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Aggregate
from penstock.state.files import write_new

FORMAT = 1


def meaning(query: CompiledQuery) -> dict[str, Any]:
    """Return the facts about a query that its checkpoint depends on."""
    facts: dict[str, Any] = {"format": FORMAT, "buckets": query.buckets}
    for number, source in query.sources:
        facts[f"source {number} time"] = source.time
        facts[f"source {number} delay_us"] = source.delay_us
    for number in query.stateful:
        node, name = query.nodes[number], query.operator_name(number)
        if isinstance(node, Aggregate):
            facts[f"{name} by"] = {key: str(node.schema[key]) for key in node.by}
            facts[f"{name} window"] = str(node.window)
            facts[f"{name} values"] = _values(node)
        else:
            facts[f"{name} columns"] = {key: str(dtype) for key, dtype in node.schema.items()}
    return facts


def _values(node: Aggregate) -> list[str]:
    calls = node.aggregation.calls
    if calls is None:
        return [str(expression) for expression in node.aggregation.outer]
    return [
        f"{call.function}({call.argument}) where {call.keep} [{call.parameter}] {call.dtype}"
        for call in calls
    ]


def pin(root: Path, query: CompiledQuery) -> None:
    """Pin the meaning of a query in a new checkpoint, or check it against the pinned one.

    Raises:
        CheckpointError: The checkpoint belongs to a query with another meaning.
    """
    path, now = root / "query.json", json.loads(json.dumps(meaning(query)))
    try:
        write_new(path, json.dumps(now, indent=1).encode())
        return
    except FileExistsError:
        pass
    try:
        pinned = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(path=str(path), reason=f"not readable: {error}") from error
    changed = [
        f"{name} was {pinned.get(name)!r} and is now {now.get(name)!r}"
        for name in sorted({*pinned, *now})
        if pinned.get(name) != now.get(name)
    ]
    if changed:
        raise CheckpointError(
            path=str(root),
            reason="it belongs to another query: "
            + "; ".join(changed)
            + "; use a new checkpoint folder",
        )
