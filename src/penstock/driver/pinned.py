"""What a checkpoint pins: the meaning of the query that it belongs to.

Pinned is everything up to the last stateful operator of each branch: sources, schemas, buckets,
time zone, the stateless operators before a stateful one, and the stateful ones. What comes after
them may change from one run to the next: a new filter on results, a new sink. Law: a query that
would read the state of another query as its own is refused, naming what changed.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.base.errors import CheckpointError
from penstock.driver.pinned_words import tell_changes
from penstock.files.place import Place, sha256
from penstock.operators.rowwise.lookup import table_bytes
from penstock.plan.compiled import CompiledQuery
from penstock.query import processes
from penstock.query.enrich import Lookup
from penstock.query.joins import Pairing
from penstock.query.nodes import (
    Apply,
    Explode,
    Filter,
    Map,
    Sink,
    Source,
    Spread,
    Union,
)
from penstock.query.process import Process
from penstock.sinks.registry import find_kind
from penstock.sources.registry import reader_of
from penstock.state.pinned import FOLDER, Facts, Pin, pin_numbers, read_pin, write_pin


def meaning(query: CompiledQuery, time_zone: str = "UTC") -> Facts:
    """Return the facts about a query that its checkpoint depends on."""
    facts: Facts = {"buckets": query.buckets, "time zone": time_zone}
    for number, source in query.sources:
        facts[f"source {number}"] = reader_of(source).pin()
        facts[f"source {number} time"] = _time(source)
        facts[f"source {number} delay_us"] = source.delay_us
        columns = sorted(query.columns_read(number).items())
        facts[f"source {number} columns"] = {name: str(dtype) for name, dtype in columns}
    for number in query.stateful:
        node, name = query.nodes[number], query.operator_name(number)
        facts[f"{name} input"] = [_text(query, child) for child in query.inputs[number]]
        facts |= {f"{name} {fact}": value for fact, value in node.facts().items()}
        if isinstance(node, Sink):
            facts[f"{name} target"] = find_kind(node.kind).name(node)
        if isinstance(node, Pairing):  # its state has the columns that results need
            facts[f"{name} carries"] = node.kept(query.required[number])
        if isinstance(node, Process):
            facts[f"{name} code"] = _class_code(type(node.processor))
    return facts


def _time(source: Source) -> str:
    return source.time if source.moment is None else str(source.moment)


def _text(query: CompiledQuery, number: int) -> str:
    """Return what happens to rows between the stateful operators or sources before, and here."""
    node = query.nodes[number]
    if isinstance(node, Source):
        return f"source {number}"
    if node.stateful:
        return query.operator_name(number)
    before = ", ".join(_text(query, child) for child in query.inputs[number])
    if isinstance(node, Spread):  # it may come and go
        return before
    if isinstance(node, Union):
        return f"union({before})"
    return f"{before} > {_step(node)}"


def _step(node: Any) -> str:
    if isinstance(node, Map):
        columns = ", ".join(f"{name} = {expression}" for name, expression in node.columns)
        return f"{'map' if node.keep else 'select'} {columns}"
    if isinstance(node, Filter):
        return f"filter {node.predicate}"
    if isinstance(node, Explode):
        return f"explode {node.column}"
    if isinstance(node, Lookup):
        return f"{node.how} lookup on {', '.join(node.on)} [{sha256(table_bytes(node))[:16]}]"
    assert isinstance(node, Apply)
    return f"apply {node.name} [{_code(node.function)}]"


def _code(function: Callable[..., Any]) -> str:
    """Return a fingerprint of a function's source, whatever its layout; its name without source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return "no source"
    return sha256(ast.dump(tree).encode())[:16]


def _class_code(kind: type) -> str:
    """Return a fingerprint of a user's class and of those that it derives from."""
    given = {processes.__name__, *sys.stdlib_module_names}
    return "-".join(_code(base) for base in kind.__mro__ if base.__module__ not in given)


def pin(root: Place, facts: Facts, committed: str | None) -> str:
    """Pin the meaning of a query in a new checkpoint, or check it against the pinned one.

    Until an epoch was committed there is nothing that could be taken for something else, so a
    query whose first start failed may be mended and started again.

    Args:
        root: Penstock's folder in the checkpoint.
        facts: The meaning.
        committed: The own word of the query that has committed epochs; None if none has.

    Returns:
        The query's own word, by which the folders of its sinks know it. It stays with the
        checkpoint, wherever that is moved.

    Raises:
        CheckpointError: The checkpoint belongs to a query with another meaning.
    """
    while True:
        numbers = pin_numbers(root)
        query, now = committed or root.files.unique(), facts
        pinned = _that_counts([read_pin(root, number) for number in numbers], committed)
        if pinned is not None and (committed or not _find_differing(pinned.facts, facts)):
            _check(root, pinned.facts, facts)
            query, now = pinned.query, _join_facts(pinned.facts, facts)
            if now == pinned.facts:
                (root / FOLDER).sync()  # its writer may have died before its name would last
                return query
        try:
            write_pin(root, numbers[-1] + 1 if numbers else 0, Pin(query=query, facts=now))
            return query
        except FileExistsError:  # another driver has begun; see whether it runs the same query
            continue


def _that_counts(pins: Sequence[Pin], committed: str | None) -> Pin | None:
    """Return the newest pin of the query that has committed epochs, or the newest of all.

    Of two drivers that begin with different queries, one commits; the other may have pinned last.
    """
    own = [pin for pin in pins if pin.query == committed]
    return next(reversed(own or pins), None)


def read_pinned_facts(root: Place) -> Facts:
    """Return what a checkpoint has pinned.

    Raises:
        CheckpointError: Nothing is pinned there, or the newest pin is damaged.
    """
    pins = pin_numbers(root)
    if not pins:
        raise CheckpointError(path=str(root), reason="no query has run on it")
    return read_pin(root, pins[-1]).facts


def _check(root: Place, pinned: Facts, now: Facts) -> None:
    odd = _find_differing(pinned, now)
    if odd:
        raise CheckpointError(
            path=str(root),
            reason="it belongs to another query: "
            + "; ".join(tell_changes(odd, pinned, now))
            + "; use a new checkpoint folder",
        )


def _find_differing(pinned: Facts, now: Facts) -> set[str]:
    """Return the facts by which two queries differ in meaning."""
    added = [name for name in now if name not in pinned and not _is_new_sink(name, pinned)]
    changed = [name for name in pinned if not _fits(name, pinned[name], now.get(name))]
    return {name for name in (*changed, *added) if not name.endswith(" said")}


def _fits(fact: str, pinned: Any, now: Any) -> bool:
    if fact.endswith(" said"):
        return True
    if fact.startswith("source ") and fact.endswith(" columns"):
        # A branch without state may come or go, and with it columns that no other needs.
        return now is not None and all(pinned[name] == now[name] for name in pinned.keys() & now)
    return bool(pinned == now)


def _join_facts(pinned: Facts, now: Facts) -> Facts:
    """Return everything that is known of a query from now on."""
    return {
        name: pinned[name] | fact if name.endswith(" columns") and name in pinned else fact
        for name, fact in now.items()
    }


def _is_new_sink(fact: str, pinned: Mapping[str, Any]) -> bool:
    operator = fact.partition(" ")[0]
    return operator.startswith("sink-") and f"{operator} columns" not in pinned
