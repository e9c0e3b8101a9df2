"""The input of the state benchmark: many keys in one day, then small epochs over them.

The law this module keeps: the files are a pure function of the fields, and every epoch has rows of
as many different keys, however many keys there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

DAY = datetime(2026, 1, 1)
DELAY_SECONDS = 12 * 3600
"""How late a row may be; times are in the first half of the day, so no row is late."""
PRELOAD_ROWS = 1_000_000
"""Rows of one file, and so of one epoch, while the keys are brought in."""
SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInput:
    """Keys, and epochs of rows that each draw other keys, without replacement."""

    keys: int
    epochs: int
    rows_per_epoch: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.keys < 1 or self.epochs < 1 or not 1 <= self.rows_per_epoch <= self.keys:
            raise ValueError(
                f"no such input; keys={self.keys!r}, epochs={self.epochs!r} (at least 1), "
                f"rows_per_epoch={self.rows_per_epoch!r} (1 to keys)"
            )

    def preload(self) -> Iterator[pl.DataFrame]:
        """Give each key once."""
        rng = np.random.default_rng([self.seed, 0])
        for start in range(0, self.keys, PRELOAD_ROWS):
            ids = np.arange(start, min(start + PRELOAD_ROWS, self.keys))
            yield _rows(ids, rng)

    def measured(self) -> Iterator[pl.DataFrame]:
        """Give the rows of each epoch that is measured."""
        rng = np.random.default_rng([self.seed, 1])
        for _ in range(self.epochs):
            yield _rows(rng.choice(self.keys, self.rows_per_epoch, replace=False), rng)

    def write(self, folder: Path) -> None:
        """Write the files, numbered in the order in which they are to be read."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind, frames in (("preload", self.preload()), ("rows", self.measured())):
            for number, frame in enumerate(frames):
                frame.write_parquet(folder / f"{kind}-{number:05d}.parquet")
        _closing().write_parquet(folder / "closing.parquet")


def _rows(ids: npt.NDArray[np.int64], rng: np.random.Generator) -> pl.DataFrame:
    """Return a row for each key; the first row has the highest time of all.

    So the watermark stays where the first file puts it: native would otherwise run an epoch
    without rows after each one with rows.
    """
    times = rng.integers(0, DELAY_SECONDS, len(ids)) * SECOND
    times[0] = DELAY_SECONDS * SECOND
    start = int((DAY - datetime(1970, 1, 1)) / timedelta(microseconds=1))
    return pl.DataFrame(
        {
            "key": pl.Series(ids).cast(pl.String).str.zfill(10),
            "x": rng.integers(0, 1000, len(ids)),
            "ts": pl.Series(times + start).cast(pl.Datetime("us")),
        }
    ).with_columns(("k" + pl.col("key")).alias("key"))


def _closing() -> pl.DataFrame:
    """Return one row so late that the watermark passes the end of the day."""
    late = DAY + timedelta(days=1, seconds=DELAY_SECONDS + 3600)
    return pl.DataFrame({"key": ["closing"], "x": [0], "ts": [late]}).with_columns(
        pl.col("ts").cast(pl.Datetime("us"))
    )


def expected(folder: Path) -> pl.DataFrame:
    """Return what every engine must give when the day closes, by key."""
    rows = pl.scan_parquet(folder / "*.parquet").filter(pl.col("key") != "closing")
    groups = rows.group_by("key").agg(
        pl.len().cast(pl.Int64).alias("rows"), pl.col("x").sum().alias("total")
    )
    return groups.sort("key").collect(engine="streaming")
