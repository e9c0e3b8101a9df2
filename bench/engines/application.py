"""One engine on one question of an application: Penstock from files, or the batch job.

The law this module keeps: Penstock's time runs from the start of the query to its end, with the
session up and warmed on other data; the batch job's from the scan to the written files.
"""

import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("POLARS_MAX_THREADS", "2")  # counts only before the import

import polars as pl

from bench.suites import SUITES, Question

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.handle import Query

ENGINES = ("penstock-files", "polars")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppJob:
    """One timed run of a question on files, in a folder that is the engine's own."""

    engine: str
    suite: str
    name: str
    rows: int
    folder: Path
    warm: Path
    work: Path
    files_per_epoch: int

    @property
    def question(self) -> Question:
        """What is asked."""
        return SUITES[self.suite][self.name]

    @property
    def out(self) -> Path:
        """Where the results go, a folder for each stream."""
        return self.work / "out"

    def warmed(self) -> "AppJob":
        """Return the same job on the small warm-up input, with its own output and state."""
        return AppJob(
            engine=self.engine,
            suite=self.suite,
            name=self.name,
            rows=self.rows,
            folder=self.warm,
            warm=self.warm,
            work=self.work / "warm",
            files_per_epoch=1,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` takes."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}

    @staticmethod
    def from_json(values: dict[str, Any]) -> "AppJob":
        """Return the job that `to_json` was given."""
        return AppJob(**values | {k: Path(values[k]) for k in ("folder", "warm", "work")})


@dataclass(frozen=True, slots=True, kw_only=True)
class AppTimes:
    """Seconds from start to end, milliseconds of each epoch, and what tasks spent on what."""

    seconds: float
    epoch_ms: tuple[float, ...]
    phases: dict[str, float] = field(default_factory=dict)


def run(job: AppJob) -> AppTimes:
    """Run the job on its engine."""
    return run_batch(job) if job.engine == "polars" else run_penstock(job)


def run_batch(job: AppJob) -> AppTimes:
    """Run the batch job, after a small one."""
    _write_batch(job.warmed())
    begun = time.perf_counter()
    _write_batch(job)
    seconds = time.perf_counter() - begun
    return AppTimes(seconds=seconds, epoch_ms=(seconds * 1000,))


def _write_batch(job: AppJob) -> None:
    rows = pl.scan_parquet(sorted(job.folder.glob("*.parquet")))
    for name, frame in job.question.batch(rows, job.question.input(job.rows)).items():
        (job.out / name).mkdir(parents=True, exist_ok=True)
        frame.write_parquet(job.out / name / "all.parquet")


def run_penstock(job: AppJob) -> AppTimes:
    """Run the query on Spark in local mode, after a small one."""
    from bench.engines.session import epoch_times, session

    spark = session(job.work, {})
    try:
        _start(spark, job.warmed()).awaitTermination()
        begun = time.perf_counter()
        query = _start(spark, job)
        query.awaitTermination()
        seconds = time.perf_counter() - begun
        times = epoch_times(query)
        return AppTimes(seconds=seconds, epoch_ms=times, phases=_phases(query))
    finally:
        spark.stop()


def _start(spark: "SparkSession", job: AppJob) -> "Query":
    import penstock as ps

    rows = ps.read_parquet(str(job.folder), time="ts", max_files_per_epoch=job.files_per_epoch)
    streams = job.question.streams(rows, job.question.input(job.rows))
    sinks = [stream.write_parquet(str(job.out / name)) for name, stream in streams.items()]
    return (
        sinks[0]
        .also(*sinks[1:])
        .start(spark, checkpoint=str(job.work / "checkpoint"), available_now=True, finish=True)
    )


def _phases(query: "Query") -> dict[str, float]:
    """Return the seconds that tasks spent on each phase, and those that epochs took in all."""
    spent: dict[str, float] = {}
    for epoch in query.epochs:
        for phase, seconds in epoch["taskSeconds"].items():
            spent[phase] = spent.get(phase, 0.0) + seconds
    epochs = sum(epoch["epochSeconds"] for epoch in query.epochs)
    return {name: round(value, 3) for name, value in {**spent, "epochs": epochs}.items()}
