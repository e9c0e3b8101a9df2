"""Made-up streams as Parquet files.

Law: a file appears whole or not at all, and modification times ascend with the event time, because
file sources read in that order. A folder holds one stream; another one is refused.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol

import polars as pl

_ROW_GROUPS = 4


class Made(Protocol):
    """A made-up stream: a frozen dataclass whose rows depend on its fields alone."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def rows(self) -> int:
        """How many rows there are."""

    def frame(self, offset: int, rows: int) -> pl.DataFrame:
        """Return rows `offset` to `offset + rows`, cut at the end of the stream."""

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write the stream as Parquet files in event-time order; skip those already there."""


class Several(Protocol):
    """Several made-up streams that belong together, by name."""

    @property
    def rows(self) -> int:
        """How many rows there are in all."""

    @property
    def parts(self) -> Mapping[str, Made]:
        """The streams; each is written to a folder of its name."""

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write each stream as Parquet files in order of arrival; skip those already there."""


def parts_of(made: Made | Several) -> dict[str, Made]:
    """Return the streams of an input by the folder that each is in, below the input's own.

    Where there is one stream, it has no name, and the folder is the input's own.
    """
    parts: Mapping[str, Made] | None = getattr(made, "parts", None)
    return dict(parts) if parts is not None else {"": made}  # type: ignore[dict-item]  # a Made


def delay_of(made: Made) -> str:
    """Return how far behind the highest time a row of a stream may come."""
    return str(getattr(made, "delay", "0 seconds"))


def write_stream(made: Made, folder: Path | str, files: int, *, name: str) -> list[Path]:
    """Write a stream as Parquet files in event-time order; skip those already there.

    Raises:
        FileExistsError: the folder holds a stream made with other fields.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _claim(made, folder, files, name)
    cuts = [made.rows * i // files for i in range(files + 1)]
    paths = [folder / f"{name}-{i:05d}.parquet" for i in range(files)]
    oldest = time.time() - files
    for i, path in enumerate(paths):
        if not path.exists():
            frame = made.frame(cuts[i], cuts[i + 1] - cuts[i])
            write_atomically(frame, path, modified=oldest + i)
    return paths


def write_atomically(frame: pl.DataFrame, path: Path, *, modified: float | None = None) -> None:
    """Write under a hidden name, which no source lists, then rename."""
    hidden = path.with_name(f".{path.name}.tmp")
    group = max(1, -(-frame.height // _ROW_GROUPS))
    frame.write_parquet(hidden, row_group_size=group)
    if modified is not None:
        os.utime(hidden, (modified, modified))
    hidden.replace(path)


def _claim(made: Made, folder: Path, files: int, name: str) -> None:
    """Mark the folder as holding this stream in this many files, or refuse it."""
    mine = json.dumps({**asdict(made), "files": files}, default=str, indent=1)
    marker = folder / f"_{name}.json"
    if marker.exists():
        if marker.read_text() != mine:
            raise FileExistsError(f"other {name} are in folder={str(folder)!r}")
    else:
        hidden = folder / f".{name}.json.tmp"
        hidden.write_text(mine)
        hidden.replace(marker)
