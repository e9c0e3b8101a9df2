"""Splits: the units of input of an epoch, as one value with one wire form.

Law: what is decoded is what was encoded; a split of whatever source crosses processes in no other
form.
"""

from __future__ import annotations

import msgspec
import polars as pl


class Split(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One unit of input: a file, a part of one, or rows that come along.

    Without a path or a body it is news of another instance's split.

    Attributes:
        source: The number of its source.
        ordinal: Its place in the order of the source.
        path: What its reader finds it by: a file, or whatever else the reader has named.
        offset: The first row of the part that is meant; all of it unless given.
        rows: How many rows it has, if that is announced before it is read.
        highest: The highest event time of these, if there is one.
        came_us: When the input came to be, in microseconds since 1970, if that is known. A file
            that is tried again came with an earlier epoch, and does not say.
        problem: Why it could not be read when splits were assigned. It is not tried again in the
            same epoch, since the others know that it has no rows.
        body: Its rows as an Arrow stream.
    """

    source: int
    ordinal: tuple[int | str, ...]
    path: str | None = None
    offset: int | None = None
    rows: int | None = None
    highest: int | None = None
    came_us: int | None = None
    problem: str = ""
    body: bytes = b""

    @property
    def mine(self) -> bool:
        """Whether this instance has to read it."""
        return self.path is not None or bool(self.body)

    @property
    def news(self) -> Split:
        """The split as the others hear of it."""
        return msgspec.structs.replace(self, path=None, body=b"")

    def encode(self) -> bytes:
        """Return the split as bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Split:
        """Return the split of bytes made by `encode`.

        >>> Split.decode(Split(source=0, ordinal=(5, "/a"), path="/a").encode()).ordinal
        (5, '/a')
        """
        return _DECODER.decode(data)


_DECODER = msgspec.msgpack.Decoder(Split)


class SplitAtHand(Split, frozen=True, kw_only=True):
    """Rows that are in the task already; such a split is never sent, and has no wire form."""

    frame: pl.DataFrame

    @property
    def mine(self) -> bool:
        """Whether this instance has to read it."""
        return True


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """How far a source was read.

    Attributes:
        rows: How many of its rows have come in all.
        newest_us: When the newest input that was read came to be, in microseconds since 1970; None
            if nothing was read that tells.
    """

    rows: int = 0
    newest_us: int | None = None
