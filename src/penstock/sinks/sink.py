"""What a kind of sink is: how its rows are staged, published and verified, and what it is called.

A sink of a query is a value (`penstock.query.nodes.Sink`); what is done with its rows is said by
its kind, which `penstock.sinks.registry` finds. Laws: what a task stages is seen by nobody until
the epoch is committed; publishing a committed epoch may be interrupted anywhere and repeated by any
number of drivers, and a kind whose epochs last then shows every row once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from penstock.files.place import Place
from penstock.plan.epoch import Output, SinkPlan, StagedFile
from penstock.query.nodes import Sink
from penstock.sinks.staged import parquet_bytes, write_staged


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options by which SQL declares a sink of a kind, beside ``format`` and ``ordered``.

    Attributes:
        target: The option that is the sink's target.
        default: The target if that is not given; None if it must be.
        options: Further options, which are those of `Stream.write_to`.
    """

    target: str
    default: Any = None
    options: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        """All options that a table may have."""
        return {"format", "ordered", self.target, *self.options}

    def is_enough(self, given: Mapping[str, Any]) -> bool:
        """Return whether some options are enough to write to a table."""
        return self.target in given or self.default is not None

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return some options as arguments of `Stream.write_to`."""
        target = given.get(self.target, self.default)
        kind = str if self.default is None else type(self.default)
        return {"target": kind(target)} | {n: str(given[n]) for n in self.options if n in given}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a sink is told when its query starts.

    Attributes:
        number: The sink's number in the query.
        target: Its name, by which staged files and manifests know it; no two have the same.
        root: Penstock's folder in the checkpoint.
        owner: The query's own word.
        next_epoch: The first epoch that may come.
        known: What the newest manifest says of the sink, if anything.
        waits: Whether an epoch waits to be published there.
        fsync: Whether files are synced.
        session: The session of the engine, for kinds that give rows to it.
    """

    number: int
    target: str
    root: Place
    owner: str
    next_epoch: int = 0
    known: Output | None = None
    waits: bool = False
    fsync: bool = True
    session: object = None

    def plan(self, sink: Sink) -> SinkPlan:
        """Return the plan of a sink whose files wait in the checkpoint."""
        return SinkPlan(kind=sink.kind, target=self.target, staging=f"{self.root}/staged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What a committed epoch has for one sink.

    Attributes:
        epoch: The epoch.
        number: The number by which the sink knows it.
        files: What tasks have staged; nothing if the epoch has no rows for the sink.
        recovered: Whether a driver finds it at its start. The files may have been damaged by the
            crash before, and must be looked at before anybody sees them.
    """

    epoch: int
    number: int
    files: tuple[StagedFile, ...]
    recovered: bool = False


class OpenSink(ABC):
    """A sink of a query that runs."""

    def __init__(self, plan: SinkPlan) -> None:
        """Keep the plan by which tasks stage its rows."""
        self.plan = plan

    @abstractmethod
    def publish(self, committed: Committed) -> None:
        """Make an epoch visible; called for every epoch, in order, with or without rows.

        It is called again for an epoch if the driver died before it could write down that this was
        done, perhaps in another process, and by two drivers at once if two run. The staged files
        are there until the next epoch is published, unless this took them away.

        Raises:
            CheckpointError: A staged file is missing or damaged.
            OutputError: The place is no longer this query's, or cannot be written.
        """

    def close(self) -> None:  # noqa: B027 - most kinds have nothing to give back
        """Give back what was opened, when the query ends."""


class SinkKind(ABC):
    """A kind of sink. One object does for all sinks of the kind, so it keeps nothing of them."""

    table_options: ClassVar[TableOptions | None] = None
    """By what options SQL declares such a sink; None if it cannot."""

    def place(self, sink: Sink) -> str | None:
        """Return the place that a sink has to itself, so that a query has no two there.

        Called by the compiler, which touches no file system; different spellings of a place must
        give the same text.

        Returns:
            The place; None if sinks of this kind do not get into each other's way.
        """
        return None

    def name(self, sink: Sink) -> str:
        """Return what a sink is called from one run to the next.

        The checkpoint pins it, and counts rows by it, so a sink with another name is another sink.
        """
        return f"{sink.kind} {sink.target}"

    def stage(
        self, plan: SinkPlan, word: str, epoch: int, frame: pl.DataFrame, *, fsync: bool
    ) -> StagedFile:
        """Write some of an epoch's rows where nobody looks; called in tasks.

        An attempt may die at any moment and be made again, so the file must have a name that no
        other attempt uses (`write_staged`). As Parquet, unless a kind says otherwise.

        Args:
            plan: Where the files of the sink wait.
            word: ``output``; or ``late`` or ``dead`` for rows of the side outputs.
            epoch: The epoch.
            frame: The rows.
            fsync: Whether files are synced.
        """
        data = parquet_bytes(frame)
        return write_staged(plan, word, epoch, data, ".parquet", rows=frame.height, fsync=fsync)

    @abstractmethod
    def open(self, sink: Sink, opening: Opening) -> OpenSink:
        """Open a sink at the start of a query, before anything is published.

        Raises:
            OutputError: The place belongs to another query, or cannot be written.
        """

    def take_over(self, target: str, *, owner: str, fsync: bool) -> OpenSink | None:
        """Return who publishes files whose sink the query does not have, or not any more.

        So are late rows and dead letters, and the last epoch of a sink that was taken out.

        Args:
            target: Where the files were to go when they were staged.
            owner: The query's own word.
            fsync: Whether files are synced.

        Returns:
            The sink; None if only a running query could have used them.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """Something that is wrong with a published epoch.

    Attributes:
        path: The file or folder.
        reason: What is wrong with it.
        lost: Whether rows are missing, as they are where a repair has set a file aside.
    """

    path: str
    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at a published epoch has found."""

    rows: int = 0
    wrong: tuple[Wrong, ...] = ()


class LastingKind(SinkKind):
    """A kind whose published epochs stay as files, so that others can read and verify them.

    Its `OpenSink.publish` makes an epoch appear in one step and then removes the staged files. So
    an epoch that its readers have taken can be told from one that still waits.
    """

    @abstractmethod
    def where(self, target: str, number: int) -> Place:
        """Return the file or folder that an epoch is, or would be, by the sink's number for it."""

    @abstractmethod
    def find(self, target: str, owner: str, output: Output) -> Mapping[int, Place]:
        """Return the epochs of a query that are there, by epoch.

        Args:
            target: The sink's name.
            owner: The query's own word; epochs of others do not count.
            output: What a manifest says of the sink.
        """

    @abstractmethod
    def verify(self, place: Place, files: Sequence[StagedFile] | None) -> Look:
        """Read a published epoch and compare it with what it was made of.

        Args:
            place: Where it is.
            files: The staged files that became it; None if no manifest knows any more, and then
                it is verified as far as it goes by itself.
        """

    @abstractmethod
    def count(self, place: Place) -> Look:
        """Count the rows of a published epoch, as cheaply as that can be done."""

    @abstractmethod
    def read(self, target: str) -> dict[int, pl.DataFrame]:
        """Return all published rows by the sink's number for their epoch, verified.

        Raises:
            CheckpointError: A file is damaged.
        """


Kinds = Callable[[str], SinkKind]
"""Finds a kind by its key."""
