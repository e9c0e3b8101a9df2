"""Sealed files: small JSON files that carry the hash of their own bytes.

Law: a sealed file that can be opened has exactly the bytes that were sealed, and is of the kind
that it was opened as.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.base.errors import CheckpointError
from penstock.files.place import Place, sha256

FORMAT = 2


def seal(kind: str, value: Mapping[str, Any]) -> bytes:
    """Return a value as the bytes of a sealed file.

    >>> seal("manifest", {"epoch": 3}).splitlines()[1]
    b'{"epoch": 3}'
    """
    body = json.dumps(value, sort_keys=True).encode()
    return f"penstock {kind} {FORMAT} {sha256(body)}\n".encode() + body


def unseal(kind: str, place: Place) -> dict[str, Any]:
    """Return the value of a sealed file.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: It is damaged, of another kind or of another version of Penstock.
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
    value: dict[str, Any] = json.loads(body)
    return value
