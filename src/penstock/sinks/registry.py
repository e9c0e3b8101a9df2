"""The kinds of sinks by their keys, one line each.

`penstock.query.nodes.Sink.kind` is such a key, and so is the kind in plans and manifests. Kinds
that need an engine are registered by it. A process that runs tasks, or that looks after a
checkpoint, has to know the kinds that it meets there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from penstock.base.errors import ConfigError
from penstock.sinks.console import Console
from penstock.sinks.folder import Folder
from penstock.sinks.memory import Memory
from penstock.sinks.sink import SinkKind

_KINDS: dict[str, SinkKind] = {
    "parquet": Folder(),
    "memory": Memory(),
    "console": Console(),
}
KINDS: Mapping[str, SinkKind] = MappingProxyType(_KINDS)
"""All kinds that this process knows."""


def register(key: str, kind: SinkKind) -> None:
    """Make a kind known to this process; one that was known by the same key is forgotten."""
    _KINDS[key] = kind


def find_kind(key: str) -> SinkKind:
    """Return a kind by its key.

    >>> from penstock.query.nodes import Sink
    >>> find_kind("memory").name(Sink(schema={}, kind="memory", target="results"))
    'memory results'

    Raises:
        ConfigError: This process knows no such kind.
    """
    if key not in _KINDS:
        raise ConfigError(name="kind of sink", value=key, allowed=", ".join(sorted(_KINDS)))
    return _KINDS[key]
