"""What has changed in a query since its checkpoint was made, in the user's words.

Law: every fact that differs is told, itself or by another one that it follows from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from penstock.base.durations import format_duration
from penstock.query.words import plain_words

_FOLLOWS = {"merges": "values", "pane_us": "window", "keys": "by"}
"""Facts that are not told where another one of the same operator is."""


def tell_changes(
    names: Collection[str], pinned: Mapping[str, Any], now: Mapping[str, Any]
) -> list[str]:
    """Return sentences about the facts that differ.

    >>> then, now = {"source 0 delay_us": 0}, {"source 0 delay_us": 1_000_000}
    >>> tell_changes(["source 0 delay_us"], then, now)
    ["source 0 delay was '0s' and is now '1s'"]
    """
    return [
        sentence
        for name in sorted(names)
        if not _follows(name, names)
        for sentence in _tell_fact(name, pinned, now)
    ]


def _follows(name: str, names: Collection[str]) -> bool:
    operator, _, fact = name.rpartition(" ")
    return f"{operator} {_FOLLOWS.get(fact)}" in names


def _tell_fact(name: str, pinned: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    operator, _, fact = name.rpartition(" ")
    if fact in ("values", "merges") and name in pinned and name in now:
        said = f"{operator} said"
        yield from _tell_changed_values(operator, pinned.get(said, {}), now.get(said, {}))
        return
    shown = f"{operator} delay" if fact == "delay_us" else name
    was, value = _show_value(fact, pinned.get(name)), _show_value(fact, now.get(name))
    yield f"{shown} was {was} and is now {value}"


def _tell_changed_values(
    operator: str, was: Mapping[str, str], now: Mapping[str, str]
) -> Iterator[str]:
    told = False
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) == now.get(name):
            continue
        told = True
        if name not in now:
            yield f"{operator} values: {name!r} was {was[name]} and is gone"
        elif name not in was:
            yield f"{operator} values: {name!r} is new, {now[name]}"
        else:
            yield f"{operator} values: {name!r} was {was[name]} and is now {now[name]}"
    if not told:
        yield f"{operator} values: their types or the form of their state have changed"


def _show_value(fact: str, value: Any) -> str:
    if fact in ("delay_us", "pane_us") and value is not None:
        return repr(format_duration(value))
    if fact == "input" and isinstance(value, list):
        return repr(", ".join(map(plain_words, value)))
    return repr(plain_words(value) if isinstance(value, str) else value)
