"""What a source can do: the protocol between the engine and a kind of input.

A kind is a value (a subclass of `penstock.query.nodes.Reader`) and a subclass of `SourceReader`
that says how such input is found, cut, read, sampled, counted and pinned. Laws: who reads a split
changes nothing about its rows; reading it again gives the same rows in the same order; what is
announced of a split is what reading it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeVar

import polars as pl

from penstock.base.errors import PenstockError
from penstock.exchange.payload import to_bytes, to_frame
from penstock.files.place import Place
from penstock.plan.splits import Reached, Split, SplitAtHand
from penstock.query.nodes import Reader, Source
from penstock.sources.admission import event_times
from penstock.sources.files import Rejected, conform
from penstock.sources.lines import Record

Schema = Mapping[str, pl.DataType]
Places = Sequence[int]
Value = TypeVar("Value", bound=Reader)


class SampleError(PenstockError):
    """A query that cannot be sampled, and why."""

    def __str__(self) -> str:
        return f"no sample could be taken: {self.fields['reason']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A folder whose files are splits, each once, in the order of their times and names.

    Spark passes over empty files of readers without a patience.

    Attributes:
        folder: The folder, at every depth; `SourceReader.owns` says which files count.
        endings: What the names of data files end with, in small letters.
        limit: How many files an epoch takes at most.
    """

    folder: str
    endings: tuple[str, ...]
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What reading gave.

    Attributes:
        rows: The rows that can be read, in their order, with the columns that were asked for.
        rejected: What cannot be read.
        whole: Returns some of the rows, by their places, with all columns that can be had.
        lines: Returns the lines of some of the rows in a text file; nothing if they are in none.
        path: The file that the rows are from, if they are from one.
        files: How many files begin with what was read; each file counts once.
    """

    rows: pl.DataFrame
    rejected: tuple[Rejected, ...] = ()
    whole: Callable[[Places], Sequence[pl.DataFrame]] = lambda at: []
    lines: Callable[[Places], Sequence[Record]] = lambda at: []
    path: str = ""
    files: int = 0


class OpenSource:
    """Reads the splits that a task has of one source in one epoch, one after the other.

    A kind whose splits give whole frames overrides `frame`; one that reads otherwise, `read`.
    """

    def __init__(self, columns: Schema, *, limit: int, every: bool) -> None:
        """Read some columns.

        Args:
            columns: The columns to return, and their types.
            limit: How many rows that do not fit to look for at most.
            every: Whether late rows are wanted with the other columns, too.
        """
        self.columns, self.limit, self.every = dict(columns), limit, every

    def frame(self, split: Split) -> pl.DataFrame:
        """Return the rows of a split as they come; here, those that come along with it."""
        return split.frame if isinstance(split, SplitAtHand) else to_frame(split.body)

    def read(self, split: Split) -> Found:
        """Return what a split gives. Rows that do not fit their types are rejected."""
        frame, every = self.frame(split), self.every
        rows, rejected = conform(frame, self.columns, "", self.limit, every=every)
        return Found(
            rows=rows.select(list(self.columns)),
            rejected=tuple(rejected),
            whole=lambda at: [rows[list(at)]],
        )

    def read_together(self, splits: Sequence[Split]) -> Found | None:
        """Return what all splits of the epoch give if they can be read at once, else None."""
        return None


class SourceReader(Generic[Value]):
    """What can be done with the input of a source.

    It is made whenever it is needed, on the driver and in tasks, and keeps nothing.
    """

    unit: ClassVar[Literal["files", "rows", ""]] = ""
    """What `count_waiting` counts; empty if it cannot tell."""

    def __init__(self, source: Source, value: Value) -> None:
        """Use a source of a query.

        Args:
            source: The source.
            value: Its reader, which says where the input is.
        """
        self.source, self.value = source, value

    @property
    def patience_us(self) -> int | None:
        """For how long a file that is not complete is tried again; None if splits are no files.

        The files of a source that has a patience are counted: each is read, refused or waits.
        """
        return None

    def find_problems(self) -> list[str]:
        """Return what is wrong with the input when a query starts; it does not start then."""
        return []

    def pin(self) -> str:
        """Return what the checkpoint depends on; a query with another text is refused there."""
        return self.value.kind

    def prepare(self, home: Place) -> None:
        """Write what is read later, at each start; what is there already must stay as it is.

        Args:
            home: The source's folder in the checkpoint.
        """

    def list_in(self, home: str) -> Listing | None:
        """Return the folder that the engine watches; None if the engine itself has the rows.

        Args:
            home: The source's folder in the checkpoint, as the engine names it.
        """
        return Listing(folder=home, endings=("",))

    def owns(self, split: Split) -> bool:
        """Return whether a file that was listed is input of the source."""
        return True

    def cut(self, split: Split, columns: Schema) -> list[Split]:
        """Return a split as several, so that several instances can read it.

        A part announces its rows and their highest time: all instances hear of it and one reads it.
        A split that does not tell its rows is left to one instance together with all others of the
        source, since what is late in them depends on what came before.

        Args:
            split: The split. It is cut where it is first handled, and once.
            columns: The columns that the query reads.
        """
        return [split]

    def open(self, columns: Schema, *, limit: int, every: bool) -> OpenSource:
        """Return what reads splits in a task; the arguments are those of `OpenSource`."""
        return OpenSource(columns, limit=limit, every=every)

    def sample(self, rows: int) -> pl.DataFrame:
        """Return up to so many of the first rows, all columns of them.

        Raises:
            SampleError: They cannot be had before the query runs.
        """
        raise SampleError(reason=f"source {self.source.name} cannot be read beforehand")

    def split_of(self, number: int, rows: pl.DataFrame, place: Path) -> Split:
        """Return rows of a sample as a split that costs about as much to read as the input does.

        Args:
            number: The number of the source.
            rows: The rows.
            place: Where a file may be written.
        """
        return split_of_rows(number, self.source, rows)

    def count_waiting(self, reached: Reached) -> int | None:
        """Return how much input waits beyond what was read; None if that is not known.

        It is called at most once a second, and less often if it takes long.
        """
        return None


def split_of_rows(number: int, source: Source, rows: pl.DataFrame, place: int = 0) -> Split:
    """Return a split that brings its rows along, and announces them.

    Args:
        number: The number of the source.
        source: The source.
        rows: The rows.
        place: The place of the split in the order of the source.
    """
    return Split(
        source=number,
        ordinal=(place,),
        body=to_bytes(rows),
        rows=rows.height,
        highest=event_times(source, rows).highest,
    )
