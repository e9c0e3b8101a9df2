"""Two drivers on one checkpoint, each a process with a Spark session of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from faults.kill_child import Job
from faults.kill_family import Child, Household, scratch_folder
from faults.kill_workload import batch_outcome, judge, run_outcome, write_files
from penstock.base.errors import TaskError
from penstock.spark.failures import clear_error

pytestmark = pytest.mark.spark

_SETTINGS = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch_folder() as found:
        yield found


def ended(child: Child) -> bool:
    return child.wait(lambda told: any(e["event"] in ("done", "error") for e in told), 200)


def test_of_two_drivers_one_is_fenced_and_the_other_finishes(folder: Path) -> None:
    write_files(folder / "calls", 10)
    settings = {**_SETTINGS, "spark.local.dir": str(folder / "local")}
    with Household(folder / "lives", settings, standbys=1) as house:
        both = [house.take(), house.take(more=False)]
        for child in both:
            child.give(
                Job(
                    calls=str(folder / "calls"),
                    out=str(folder / "out"),
                    checkpoint=str(folder / "checkpoint"),
                )
            )
        assert all(ended(child) for child in both), [child.last_words() for child in both]
        errors = [error for child in both for error in child.told("error")]
        assert [error["kind"] for error in errors] == ["FencedError"], errors
        assert "two of them run on" in errors[0]["text"]
        assert "stop one of the two for good" in errors[0]["text"]
        assert sum(len(child.told("done")) for child in both) == 1
        assert all(child.gone(30) for child in both)
    found = run_outcome(folder / "checkpoint", folder / "out")
    verdict = judge(found, batch_outcome(folder / "calls"), None, ordered=False)
    assert verdict.right, verdict.remarks
    assert found.totals["epoch"] == 10


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs",
        "SparkConcurrentModificationException: Multiple streaming queries are concurrently using",
    ],
)
def test_what_spark_says_of_two_drivers_is_a_fence(text: str) -> None:
    error = clear_error(RuntimeError(text), "/checkpoint")
    assert isinstance(error, ps.FencedError)
    assert "stop one of the two for good" in str(error)


def test_a_dead_jvm_is_named_and_other_errors_stay() -> None:
    lost = clear_error(ConnectionRefusedError(111, "Connection refused"), "/checkpoint")
    assert isinstance(lost, TaskError)
    assert "Spark's JVM is gone" in str(lost)
    other = ValueError("x")
    assert clear_error(other, "/checkpoint") is other
