"""Sealed files: small JSON files that carry the hash of their own bytes.

Law: a sealed file that can be opened has exactly the bytes that were sealed, and is of the kind
that it was opened as; so what it holds has the fields and types of that kind.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.base.encoding import to_json
from penstock.base.errors import CheckpointError
from penstock.files.place import Place, sha256

FORMAT = 3
T = TypeVar("T")


def seal(kind: str, value: object) -> bytes:
    """Return a value as the bytes of a sealed file.

    Args:
        kind: What the value is called.
        value: A dataclass, or anything else that msgspec writes as JSON.

    >>> seal("manifest", {"epoch": 3}).splitlines()[1]
    b'{"epoch":3}'
    """
    body = to_json(value)
    return f"penstock {kind} {FORMAT} {sha256(body)}\n".encode() + body


def unseal(kind: str, place: Place, shape: type[T]) -> T:
    """Return the value of a sealed file.

    Args:
        kind: What the value is called.
        place: The file.
        shape: The type of the value.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: It is damaged, of another kind, of another version of Penstock, or what it
            holds is not of the type.
    """
    head, _, body = place.read().partition(b"\n")
    words = head.decode(errors="replace").split(" ")
    if len(words) != 4 or words[0] != "penstock":
        raise CheckpointError(path=str(place), reason=f"damaged: not a {kind} of Penstock")
    if words[3] != sha256(body):
        raise CheckpointError(path=str(place), reason="damaged: its bytes have another SHA-256")
    if words[1:3] != [kind, str(FORMAT)]:
        reason = f"a {words[1]} of format {words[2]} where a {kind} of format {FORMAT} belongs"
        raise CheckpointError(path=str(place), reason=reason)
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, RecursionError) as error:
        reason = f"damaged: not what a {kind} holds: {error}"
        raise CheckpointError(path=str(place), reason=reason) from error
