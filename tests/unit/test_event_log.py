"""The event log: what was written is read again, after a restart too, and it stays small."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import CheckpointError
from penstock.files.place import Place, place_of
from penstock.observe.events import KINDS, Event, ExecutorEvent, decode, encode
from penstock.observe.log import EventLog, read_events
from penstock.plan.changes import USER, Reconfiguration
from penstock.plan.statistics import EpochStatistics, InstanceLoad, SubqueryLoad


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def statistics(epoch: int) -> EpochStatistics:
    instance = InstanceLoad(
        instance=0, host="a", rows=epoch, busy_seconds=0.5, cpu_seconds=0.25, queue_seconds=0.0,
        memory_bytes=1, state_bytes=2, restored_bytes=3,
    )  # fmt: skip
    load = SubqueryLoad(
        subquery=1, name="aggregate-0", instances=(instance,), bucket_rows=(epoch, 0)
    )
    return EpochStatistics(
        epoch=epoch, at=float(epoch), seconds=0.1, interval_seconds=1.0, rows=epoch, written=0,
        latency_seconds=1.0, subqueries=(load,),
    )  # fmt: skip


CHANGE = Reconfiguration(
    id="3.0", epoch=3, at=3.0, subquery=1, name="aggregate-0", kind="rescale", cause=USER,
    protocol="state", before=1, after=2, buckets=512, bytes=10, seconds=0.2, outcome="done",
    sentence="the user did it",
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Place:
    return place_of(tmp_path, fsync=False) / "penstock"


@pytest.mark.parametrize(
    "event",
    [statistics(4), CHANGE, ExecutorEvent(at=1.0, executor="0", host="h", what="lost")],
    ids=["statistics", "reconfiguration", "executor"],
)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    assert decode(encode(event), "here") == event


def test_statistics_wait_a_second_and_changes_do_not(root: Place) -> None:
    clock = Clock()
    log = EventLog(root, clock=clock)
    log.add(statistics(0))
    assert read_events(root, "statistics") == []
    clock.now = 1.0
    log.add(statistics(1))
    assert read_events(root, "statistics") == [statistics(0), statistics(1)]
    log.add(CHANGE)
    assert read_events(root, "reconfiguration") == [CHANGE]


def test_history_survives_a_restart(root: Place) -> None:
    for epoch in range(3):
        log = EventLog(root, clock=Clock())
        log.add(statistics(epoch))
        log.flush()
    assert read_events(root, "statistics", last=2) == [statistics(1), statistics(2)]


def test_the_number_of_files_is_bounded_and_the_newest_stay(root: Place) -> None:
    log = EventLog(root, clock=Clock(), flush_seconds=0.0)
    for epoch in range(400):
        log.add(statistics(epoch))
    names = [entry.name for entry in (root / "events" / "statistics").list()]
    assert len(names) < 140
    assert any("-merged-" in name for name in names)
    assert read_events(root, "statistics") == [statistics(epoch) for epoch in range(400)]


def test_a_damaged_file_is_named(root: Place) -> None:
    (root / "events" / "statistics" / "000000000000-x.jsonl.gz").write_new(b"nonsense")
    with pytest.raises(CheckpointError, match=r"000000000000-x.jsonl.gz"):
        read_events(root, "statistics")


def test_a_kind_of_a_later_version_is_passed_over() -> None:
    assert decode(b'{"event": "weather", "value": {"rain": true}}', "here") is None
    with pytest.raises(CheckpointError, match="not an event"):
        decode(b'{"event": "executor", "value": {"rain": true}}', "here")
    assert "weather" not in KINDS
