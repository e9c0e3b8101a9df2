"""Process: the operator that runs a user's class; its name in plans and checkpoints is process-N.

Law: a process that exists has types for its state and its output, none of them a Python object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import polars as pl

from penstock.query import processes
from penstock.query.expressions import UNKNOWN
from penstock.query.keys import Names, key_problems, names_of
from penstock.query.nodes import Keyed, Node

Processor = processes.Process | processes.BatchProcess
Types = dict[str, pl.DataType]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Process(Keyed):
    """Runs a user's class per key, in stream order."""

    processor: Processor
    state: Types
    settings: dict[str, str]

    @property
    def name(self) -> str:
        """What the user calls it."""
        return type(self.processor).__name__

    @property
    def note(self) -> str:
        """How the operator works, for plans."""
        form = "row by row" if isinstance(self.processor, processes.Process) else "in batches"
        return f"{form}, in stream order"

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        return f"process {self.name}" + (f" by {', '.join(self.by)}" if self.by else "")

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        return {
            "class": self.name,
            "by": {key: str(self.schema[key]) for key in self.by},
            "keys": list(self.by),  # buckets depend on their order
            "state": {name: str(dtype) for name, dtype in self.state.items()},
            "output": {name: str(dtype) for name, dtype in self.schema.items()},
            "settings": self.settings,
            "rows": {name: str(dtype) for name, dtype in self.inputs[0].schema.items()},
        }


def process_node(stream: Node, processor: Any, by: Names) -> tuple[Node, list[str]]:
    """Return the operator that runs a user's class, and what is wrong with it."""
    keys = names_of(by)
    verb = f"process {type(processor).__name__}"
    found = key_problems(f"{verb} by", keys, stream.schema, nested=True)
    if not isinstance(processor, Processor):
        found.append(_no_process(processor))
        nothing = Process(
            inputs=(stream,), schema={}, by=(), processor=_Nothing(), state={}, settings={}
        )
        return nothing, found
    found += _find_undefined(verb, processor)
    state = _check_declared(verb, processor, "state", keys, found)
    output = _check_declared(verb, processor, "output", keys, found)
    if isinstance(processor, processes.BatchProcess) and not state and not found:
        found.append(f"{verb}: declare at least one column in 'state'")
    schema = {key: stream.schema.get(key, UNKNOWN) for key in keys} | output
    if not schema and not found:
        found.append(f"{verb}: results would have no columns; declare some in 'output'")
    node = Process(
        inputs=(stream,),
        schema=schema,
        by=keys,
        processor=processor,
        state=state,
        settings=_settings(processor),
    )
    return node, found


class _Nothing(processes.Process):
    state: processes.Schema = {}  # noqa: RUF012  # read only
    output: processes.Schema = {}  # noqa: RUF012  # read only


def _no_process(processor: Any) -> str:
    kinds = (processes.Process, processes.BatchProcess)
    if isinstance(processor, type) and issubclass(processor, kinds):
        name = processor.__name__
        return f"process: {name} is a class; give an object of it: {name}()"
    return (
        "process: an object of a class that derives from ps.Process or ps.BatchProcess is needed; "
        f"got {type(processor).__name__}"
    )


def _settings(processor: object) -> dict[str, str]:
    """Return the plain values that a user's object holds, such as a limit given to it."""
    found = getattr(processor, "__dict__", {})
    return {name: repr(found[name]) for name in sorted(found) if _is_plain(found[name])}


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    return value is None or isinstance(value, str | bytes | int | float | date | timedelta)


def _find_undefined(verb: str, processor: Processor) -> list[str]:
    base, method = (
        (processes.Process, "on_row")
        if isinstance(processor, processes.Process)
        else (processes.BatchProcess, "on_rows")
    )
    same = getattr(type(processor), method) is getattr(base, method)
    return [f"{verb}: {method} is not defined"] if same else []


def _check_declared(
    verb: str, processor: Processor, part: str, keys: tuple[str, ...], found: list[str]
) -> Types:
    """Return the types of the state or the output; what is wrong is added to what was found."""
    declared = getattr(processor, part, None)
    if not isinstance(declared, Mapping):
        found.append(f"{verb}: declare {part!r} as a dict of names and Polars types")
        return {}
    types: Types = {}
    for name, given in declared.items():
        where = f"{verb}: {part} column {name!r}"
        if not isinstance(name, str) or name.startswith("__"):
            found.append(f"{where} has no name of its own; names that begin with '__' are reserved")
        elif name in keys:
            found.append(f"{where} clashes with a key column")
        dtype = _dtype(given)
        if dtype is None or _has_objects(dtype):
            found.append(f"{where} has no Arrow type; it is {given!r}")
        types[str(name)] = dtype or UNKNOWN
    return types


def _dtype(given: Any) -> pl.DataType | None:
    """Return a type; None if it is none. No frame is made of it: Polars aborts on some."""
    try:
        if isinstance(given, pl.DataType):
            return given
        if isinstance(given, type) and issubclass(given, pl.DataType):
            return given()
        found = pl.DataType.from_python(given)
        return found if isinstance(found, pl.DataType) else found()
    except Exception:  # whatever Polars says of something that is no type
        return None


def _has_objects(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_has_objects(_dtype(f.dtype) or pl.Object()) for f in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return _has_objects(_dtype(dtype.inner) or pl.Object())
    return dtype in (pl.Object(), UNKNOWN)
