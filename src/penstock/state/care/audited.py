"""What an audit found: what was counted, what is there, and where the two disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Two numbers that should be equal and are not.

    Attributes:
        kind: ``input``, ``rows``, ``late``, ``refused``, ``written``, ``output``, ``manifest``; or
            ``missing`` for published rows that are not in their folder any more, which readers may
            move or delete.
        where: The epoch, the folder or the file.
        text: What does not agree, with the numbers.
        epoch: The epoch, if it is about one.
        rows: How many rows are missing, if that is known.
    """

    kind: str
    where: str
    text: str
    epoch: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochAudit:
    """The numbers of one epoch; None where nobody knows any more.

    Attributes:
        epoch: The epoch.
        files: How many files Spark has handed out.
        handed_out: How many rows they have.
        read: How many rows were read.
        processed: How many of them were processed.
        late: How many were late.
        refused: How many were refused.
        written: How many results were written.
        in_folders: How many rows of results and late rows are in their folders.
        state: ``published``, ``waiting`` or ``missing``.
    """

    epoch: int
    files: int | None = None
    handed_out: int | None = None
    read: int | None = None
    processed: int | None = None
    late: int | None = None
    refused: int | None = None
    written: int | None = None
    in_folders: int = 0
    state: str = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAudit:
    """The numbers of one output since its beginning.

    Attributes:
        output: Its folder, or the name of a sink that has none.
        epochs: How many epochs had rows.
        rows: How many rows.
        epochs_there: How many epochs are in the folder; None without a folder.
        rows_there: How many rows.
        waiting: How many rows wait to be published.
    """

    output: str
    epochs: int
    rows: int
    epochs_there: int | None = None
    rows_there: int | None = None
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The outcome of an audit."""

    checkpoint: str
    newest: int
    epochs: Sequence[EpochAudit]
    outputs: Sequence[OutputAudit]
    partings: Sequence[Parting]
    missing: Sequence[Parting]

    @property
    def agrees(self) -> bool:
        """Whether everything agrees, apart from what readers may have taken."""
        return not self.partings

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"ok": self.agrees} | asdict(self)
