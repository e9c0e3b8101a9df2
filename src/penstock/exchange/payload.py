"""Payloads: what one task sends to another, as one opaque value for Spark to shuffle.

A payload is a JSON header and an Arrow IPC body. Law: what is unpacked is what was packed, and a
payload that was cut short, or whose header is not one, is never taken for a whole one.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import polars as pl

from penstock.base.encoding import to_json
from penstock.base.errors import TaskError

_LENGTHS = struct.Struct("<4sIQ")
_MAGIC = b"PNS1"


class _Header(msgspec.Struct, array_like=True):
    """All of a payload but its body."""

    kind: str
    stage: int
    task: int
    edge: int
    seen: Mapping[int, int]
    marks: Mapping[int, int]
    facts: Mapping[str, Any]


_DECODER = msgspec.json.Decoder(_Header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Rows of one edge for one task, or a report on its way to the driver.

    ``stage`` and ``task`` say where it goes; stage -1 is the driver. ``seen`` has the highest event
    time of each source that the sender knows of, ``marks`` how far the sender's own operators are,
    so that the receiver can tell the watermark even when there are no rows.
    """

    kind: str
    stage: int
    task: int
    edge: int = -1
    seen: Mapping[int, int] = field(default_factory=dict)
    marks: Mapping[int, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def pack(self) -> bytes:
        """Return the payload as bytes."""
        header = to_json(
            _Header(self.kind, self.stage, self.task, self.edge, self.seen, self.marks, self.facts)
        )
        return _LENGTHS.pack(_MAGIC, len(header), len(self.body)) + header + self.body

    @classmethod
    def unpack(cls, data: bytes) -> Payload:
        """Return the payload of bytes made by `pack`.

        Raises:
            TaskError: The bytes are not those of a payload.

        >>> Payload.unpack(Payload(kind="rows", stage=1, task=0, seen={0: 5}).pack()).seen
        {0: 5}
        """
        whole = len(data) >= _LENGTHS.size
        magic, header_bytes, body_bytes = _LENGTHS.unpack_from(data) if whole else (b"", 0, 0)
        start = _LENGTHS.size + header_bytes
        if magic != _MAGIC or len(data) != start + body_bytes:
            raise TaskError(where="exchange", reason="a payload was damaged on its way")
        try:
            header = _DECODER.decode(data[_LENGTHS.size : start])
        except msgspec.MsgspecError as error:
            reason = f"the header of a payload was damaged on its way: {error}"
            raise TaskError(where="exchange", reason=reason) from error
        return cls(
            kind=header.kind,
            stage=header.stage,
            task=header.task,
            edge=header.edge,
            seen=header.seen,
            marks=header.marks,
            facts=header.facts,
            body=data[start:],
        )


def to_bytes(frame: pl.DataFrame) -> bytes:
    """Return a frame as an Arrow IPC stream."""
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer)
    return buffer.getvalue()


def to_frame(body: bytes) -> pl.DataFrame:
    """Return the frame of an Arrow IPC stream."""
    return pl.read_ipc_stream(io.BytesIO(body))
