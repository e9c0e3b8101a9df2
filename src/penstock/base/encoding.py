"""JSON as it is written everywhere: by msgspec, also for kinds of the builtin types.

Law: a value that is a text or a number is written as one, whatever its class: a sentence that knows
its place, a number of NumPy's.
"""

from __future__ import annotations

from typing import Any

import msgspec


def to_json(value: object) -> bytes:
    """Return a value as JSON.

    >>> class Sentence(str): ...
    >>> to_json({"why": Sentence("too late"), 3: (1, None)})
    b'{"why":"too late","3":[1,null]}'
    """
    return _ENCODER.encode(value)


def _to_builtin(value: Any) -> Any:
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise NotImplementedError(f"JSON has nothing for {type(value).__name__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_to_builtin)
