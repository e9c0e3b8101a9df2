"""A streaming DataFrame of the user's as a source: Spark reads it, and brings its rows to tasks.

PySpark is not imported here, since every query may name such a source. Law: the rows of a
micro-batch come after those of the one before, and otherwise all at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from penstock.query.nodes import Reader
from penstock.sources.reader import SampleError, Schema, SourceReader
from penstock.sources.registry import add_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as SparkFrame

Value = TypeVar("Value", bound=Reader)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame(Reader):
    """A streaming DataFrame of Spark; it lives in the driver, and tasks get its rows as splits."""

    frame: SparkFrame | None

    @property
    def native(self) -> bool:
        """Whether tasks read it themselves: no, Spark does."""
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        return _frame_elsewhere, ()


def _frame_elsewhere() -> Frame:
    return Frame(frame=None)


class SparkReader(SourceReader[Value], ABC):
    """What can be done with input that only Spark can read."""

    def list_in(self, home: str) -> None:
        """Return that there is nothing to list: Spark has the rows."""

    @abstractmethod
    def stream(self, columns: Schema) -> SparkFrame:
        """Return the streaming DataFrame of the input, with some of its columns."""

    def sample(self, rows: int) -> pl.DataFrame:
        """Raise, since rows cannot be had before the query runs."""
        raise SampleError(reason=f"source {self.source.name} is a streaming DataFrame of Spark")


class FrameReader(SparkReader[Frame]):
    """What can be done with a DataFrame of the user's."""

    def stream(self, columns: Schema) -> SparkFrame:
        """Return the DataFrame with some of its columns."""
        assert self.value.frame is not None, "a DataFrame stays in the driver"
        return self.value.frame.select(*[f"`{name}`" for name in columns])


add_kind(Frame, FrameReader)
