"""One engine on many of Nexmark's queries: Penstock from files, native, or DuckDB over all rows.

The law this module keeps: an engine's time runs from the start of a query to its end, with the
process up and the same query warmed on other data. A query that fails has its reason and no time.
"""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("POLARS_MAX_THREADS", "2")  # counts only before the import

import polars as pl
import polars.selectors as cs

from bench.batch import nexmark as judge
from penstock.workloads.auctions import Market
from penstock.workloads.files import delay_of, parts_of, write_atomically
from penstock.workloads.nexmark import QUERIES, House
from penstock.workloads.nexmark_sql import UNSAID, in_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bench.engines.nexmark_native import Tables

ENGINES = ("penstock-files", "native", "duckdb")
JUDGE = "duckdb"
LEAST_SECONDS = 100
"""Event time that the events take at least, so that short runs have windows to close."""
CLOSING = timedelta(days=10)
"""How far behind the last event the row comes that closes native's windows."""


def market_of(events: int, seed: int = 0) -> Market:
    """Return the streams of so many events, at Nexmark's 10 000 a second or slower."""
    return Market(rows=events, seed=seed, per_second=min(10_000.0, events / LEAST_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketJob:
    """One timed run of queries on files, in a folder that is the engine's own."""

    engine: str
    queries: tuple[str, ...]
    sql: bool
    events: int
    folder: Path
    warm: Path
    warm_events: int
    work: Path
    files_per_epoch: int

    @property
    def name(self) -> str:
        """What the job is called in errors."""
        return "nexmark"

    @property
    def market(self) -> Market:
        """What the files hold, in all that a query needs to know of it."""
        return market_of(self.events)

    def out(self, query: str) -> Path:
        """Return where the results of a query go."""
        return self.work / "out" / query

    def warmed(self) -> "MarketJob":
        """Return the same job on the small warm-up input, with its own output and state."""
        return replace(
            self, folder=self.warm, events=self.warm_events, work=self.work / "warm",
            files_per_epoch=1,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` takes."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}

    @staticmethod
    def from_json(values: dict[str, Any]) -> "MarketJob":
        """Return the job that `to_json` was given."""
        paths = {name: Path(values[name]) for name in ("folder", "warm", "work")}
        return MarketJob(**values | paths | {"queries": tuple(values["queries"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTimes:
    """What one query took, or why it gave nothing."""

    query: str
    seconds: float | None = None
    epoch_ms: tuple[float, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketTimes:
    """What each query took."""

    queries: tuple[QueryTimes, ...]


class _UnableError(Exception):
    """An engine can't say a query."""


def run(job: MarketJob) -> MarketTimes:
    """Run the queries of a job on its engine, one after the other."""
    if job.engine == JUDGE:
        return _each(job, _run_judge)
    from bench.engines.session import session

    if job.engine == "native":
        from bench.engines.native import STATE

        spark, start = session(job.work, STATE), _start_native
    else:
        spark, start = session(job.work, {}), _start_penstock
    try:
        return _each(job, lambda query, part: _await(start(spark, query, part)))
    finally:
        spark.stop()


def _each(job: MarketJob, work: Callable[[str, MarketJob], tuple[float, ...]]) -> MarketTimes:
    return MarketTimes(queries=tuple(_timed(job, query, work) for query in job.queries))


def _timed(
    job: MarketJob, query: str, work: Callable[[str, MarketJob], tuple[float, ...]]
) -> QueryTimes:
    """Run a query on the small input, then on the large one; a failure is told, not raised."""
    try:
        work(query, job.warmed())
        begun = time.perf_counter()
        epochs = work(query, job)
        seconds = time.perf_counter() - begun
    except _UnableError as unable:
        return QueryTimes(query=query, reason=str(unable))
    except Exception as error:  # another query may well work
        return QueryTimes(query=query, reason=f"failed: {_first_line(error)}")
    return QueryTimes(query=query, seconds=seconds, epoch_ms=epochs)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _run_judge(query: str, job: MarketJob) -> tuple[float, ...]:
    files = {name: sorted((job.folder / name).glob("*.parquet")) for name in parts_of(job.market)}
    job.out(query).mkdir(parents=True, exist_ok=True)
    judge.answer_files(query, files, job.market.reach, job.out(query) / "all.parquet")
    return ()


def _await(query: Any) -> tuple[float, ...]:
    from bench.engines.session import epoch_times

    query.awaitTermination()
    return epoch_times(query)


def _start_penstock(spark: "SparkSession", query: str, job: MarketJob) -> Any:
    """Start a query in Python or SQL over all files that are there now; it ends by itself."""
    import penstock as ps

    if job.sql and query in UNSAID:
        raise _UnableError(UNSAID[query])
    streams = {
        name: ps.read_parquet(
            str(job.folder / name), time="ts", delay=delay_of(part),
            max_files_per_epoch=job.files_per_epoch,
        )
        for name, part in parts_of(job.market).items()
    }  # fmt: skip
    house = House(**streams, within=job.market.reach)
    result = in_sql(query, house) if job.sql else QUERIES[query](house)
    checkpoint = str(job.work / "checkpoint" / query)
    return result.write_parquet(str(job.out(query))).start(
        spark, checkpoint=checkpoint, available_now=True, finish=True
    )


def _start_native(spark: "SparkSession", query: str, job: MarketJob) -> Any:
    """Start a native query; one that has windows or state gets a last row that closes them."""
    from bench.engines import nexmark_native as native

    if query in native.UNABLE:
        raise _UnableError(native.UNABLE[query])
    folder = job.folder if query in native.STATELESS else _with_closing_rows(job)
    return (
        native.QUERIES[query](_tables(spark, folder, job))
        .writeStream.outputMode("append")
        .format("parquet")
        .option("checkpointLocation", str(job.work / "checkpoint" / query))
        .trigger(availableNow=True)
        .start(str(job.out(query)))
    )


def _tables(spark: "SparkSession", folder: Path, job: MarketJob) -> "Tables":
    from bench.engines.nexmark_native import Tables

    def table(name: str, delay: str) -> "DataFrame":
        one = next((folder / name).glob("*.parquet"))
        fields = pl.read_parquet_schema(one).items()
        kinds = {pl.Int64(): "bigint", pl.String(): "string", pl.Datetime("us"): "timestamp"}
        return (
            spark.readStream.schema(", ".join(f"{n} {kinds[kind]}" for n, kind in fields))
            .option("maxFilesPerTrigger", job.files_per_epoch)
            .parquet(str(folder / name))
            .withWatermark("ts", delay)
        )

    tables = {name: table(name, delay_of(part)) for name, part in parts_of(job.market).items()}
    return Tables(**tables, within=job.market.reach)


def _with_closing_rows(job: MarketJob) -> Path:
    """Return the input with one more file in each stream: a row long after all the others.

    Structured Streaming closes only what its watermark has passed. The row's numbers are negative
    and other ones in each stream, so it pairs with none, and its own windows stay open. They are
    not null, since Spark would drop the row before it sees its time.
    """
    folder = job.work / "closed"
    if folder.exists():
        return folder
    for number, (name, part) in enumerate(parts_of(job.market).items(), start=1):
        (folder / name).mkdir(parents=True)
        for file in (job.folder / name).glob("*.parquet"):
            (folder / name / file.name).hardlink_to(file)
        last = part.frame(part.rows - 1, 1)
        after = last.with_columns(pl.col("ts") + CLOSING, cs.integer() * 0 - number)
        write_atomically(after, folder / name / "closing.parquet")
    return folder
