"""Moves of buckets: tails, switches, records, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import ConfigError
from penstock.base.hashing import BUCKET, bucket_of
from penstock.control import read_speed
from penstock.driver.steering.switch import only_open, open_tail, pass_on
from penstock.exchange.routes import ByLineage
from penstock.files.place import place_of
from penstock.operators.stores.chunks import PANE
from penstock.operators.windows.panes import Panes
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import USER, Reconfiguration
from penstock.plan.epoch import SegmentRef
from penstock.plan.tails import Tail, lineages_of
from penstock.query.stream import Sinks
from penstock.state import compaction
from penstock.state.care.repair import plan_repair
from penstock.state.care.repair_steps import carry_out
from penstock.state.care.verify import verify
from penstock.state.manifests import Manifest, ManifestLog
from penstock.testing.streams import TestStream

SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}
BUCKETS = 8
SECOND = 1_000_000
ONE = Panes(width_us=1, per_window=4, step=2)


def ref(name: str, until: int, *live: tuple[int, int]) -> SegmentRef:
    return SegmentRef(name=name, rows=1, bytes=10, sha256="", until=until, live=live)


def tail(epoch: int, before_us: int, until_us: int, *held: tuple[int, int, int]) -> Tail:
    return Tail(operator="a", epoch=epoch, before_us=before_us, until_us=until_us, held=held)


# Pure parts


def test_the_switch_is_the_first_start_above_all_rows() -> None:
    window = ps.sliding("10 seconds", every="2 seconds")
    refs = [ref("x", 30 * SECOND, (0, 4)), ref("y", 90 * SECOND, (4, 8))]
    found = open_tail("a", 7, window, refs, {1: 0, 2: 0})
    assert found is not None
    # The last window with a row of x is [20, 30), so all rows lie below 22.
    assert (found.before_us, found.until_us) == (22 * SECOND, 30 * SECOND)
    assert found.name == "a~000000000007"
    assert open_tail("a", 7, window, refs[1:], {1: 0}) is None


@pytest.mark.parametrize("days", [1, 2, 7])
def test_a_switch_at_a_day_that_the_clock_skipped_leaves_no_window_without_its_rows(
    days: int,
) -> None:
    """Apia went from 2011-12-29 to 2011-12-31, so the windows that end at the 30th and 31st tie."""
    window = ps.sliding(f"{days} days", every="1 day", zone="Pacific/Apia")
    panes = Panes.of(window)
    skipped = (date(2011, 12, 30) - date(1970, 1, 1)).days
    for end in range(skipped - 3, skipped + 4):
        kept = range(end - 9, end - days + 1)  # the last day with rows begins the last window
        found = open_tail("a", 7, window, [ref("x", panes.start_at(end), (0, 4))], {1: 0})
        assert found is not None
        assert all(panes.start_at(day) < found.before_us for day in kept if day != skipped)
        mine = [d for d in range(end - 9, end + 9) if panes.start_at(d) < found.before_us]
        assert max(panes.start_at(day + days) for day in mine) <= found.until_us


def test_segments_go_to_the_tail_for_its_buckets_alone() -> None:
    segments = {"a": (ref("x", 1, (0, 4)), ref("y", 1, (1, 2)), ref("z", 1, (6, 8))), "b": ()}
    after = pass_on(segments, tail(3, 0, 0, (1, 3, 0)))
    assert {name: [(r.name, r.live) for r in refs] for name, refs in after.items()} == {
        "a": [("x", ((0, 1), (3, 4))), ("z", ((6, 8),))],
        "b": [],
        "a~000000000003": [("x", ((1, 3),)), ("y", ((1, 2),))],
    }
    assert set(only_open(after, [])) == {"a", "b"}
    assert set(only_open(after, [tail(3, 0, 0)])) == set(after)


def test_every_window_has_one_lineage_and_every_row_all_that_need_it() -> None:
    size, every = 4, 2  # windows of four panes that begin every two
    owners = BucketMap(owners=(2, 1), instances=3)
    tails = [tail(1, 10, 12, (0, 1, 0)), tail(2, 16, 18, (0, 1, 1))]
    lineages = lineages_of("a", owners, tails)
    for bucket in (0, 1):
        for start in range(0, 30, every):
            mine = [
                lineage
                for lineage in lineages
                if lineage.owners[bucket] >= 0
                and start >= lineage.since_us.get(bucket, start)
                and (lineage.before_us is None or start < lineage.before_us)
            ]
            assert len(mine) == 1
            needed = set(range(start, start + size)) & set(range(30))
            rows = _rows(bucket)
            at = mine[0].owners[bucket]
            route = ByLineage(keys=("k",), lineages=lineages, instances=3, panes=ONE)
            parts = route.split(rows)
            found = route.rows_for(parts[at], mine[0], mine[0].owned_by(at))
            assert needed <= set(found[PANE])
            assert all(part[PANE].is_unique().all() for part in parts)


def _rows(bucket: int) -> pl.DataFrame:
    keys = pl.DataFrame({"k": [chr(97 + i) for i in range(20)]})
    found = keys.with_columns(bucket_of(["k"], 2)).filter(pl.col(BUCKET) == bucket)
    key = found["k"][0]
    return pl.DataFrame({"k": [key] * 30, PANE: list(range(30))})


def test_a_tail_that_switches_early_takes_nothing_back() -> None:
    """Files of other buckets may make a later move's switch the earlier one."""
    early, late = tail(2, 10, 14, (0, 1, 1)), tail(1, 20, 24, (0, 1, 0))
    main, first, second = lineages_of("a", BucketMap.even(1, 1), [early, late])
    assert (first.name, first.since_us, first.before_us) == (late.name, {}, 20)
    assert (second.since_us, second.before_us) == ({0: 20}, 10)
    assert main.since_us == {0: 20}


def test_manifests_keep_tails(tmp_path: Path) -> None:
    move = Reconfiguration(
        id="3.0", epoch=3, at=1.0, subquery=1, name="a", kind="move", cause=USER,
        protocol="window", before=2, after=2, buckets=4, bytes=0, seconds=0.5, outcome="moving",
        sentence="it moves",
    )  # fmt: skip
    open_one = replace(tail(3, 5, 9, (0, 4, 1)), moves=(move,))
    manifest = Manifest(epoch=3, tails=(open_one,))
    log = ManifestLog(place_of(tmp_path, fsync=False))
    log.commit(manifest)
    found = log.read(3)
    assert found == manifest
    assert found.digest == manifest.digest


# A query that runs


def query(every: int = 2) -> Sinks:
    stream = ps.from_rows([], schema=SCHEMA, time="ts", delay="2 seconds")
    window = ps.sliding("10 seconds", every=timedelta(seconds=every))
    counted = stream.aggregate(by="k", window=window, n="count(*)", t="sum(x)")
    seen = stream.dedup(by="k", within="5 seconds")
    return counted.write_memory("counted").also(seen.write_memory("seen"))


def rows(epoch: int) -> list[dict[str, Any]]:
    start = ps.at("2024-01-01") + timedelta(seconds=4 * epoch)
    return [
        {"k": "abcdefgh"[i % 8], "x": i, "ts": start + timedelta(seconds=i / 8)} for i in range(32)
    ]


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[TestStream]:
    with TestStream(query(), tmp_path, instances=3, buckets=BUCKETS) as found:
        for epoch in range(3):
            found.add(rows(epoch))
        yield found


def away(stream: TestStream, subquery: int = 1) -> dict[int, int]:
    owners = stream.owners[subquery]
    return {b: (owners.owners[b] + 1) % owners.instances for b in range(BUCKETS)}


def test_a_move_is_told_of_twice_and_reads_nothing(stream: TestStream) -> None:
    stream.move(1, away(stream), protocol="window")
    stream.add(rows(3))
    (begun,) = stream.reconfigurations()
    assert (begun.protocol, begun.outcome, begun.buckets, begun.bytes) == ("window", "moving", 8, 0)
    assert "the old owners finish their windows" in begun.sentence
    assert stream.moving == {1: tuple(range(BUCKETS))}
    for epoch in range(4, 8):
        stream.add(rows(epoch))
    (ended,) = stream.reconfigurations()
    assert (ended.id, ended.epoch, ended.outcome) == (begun.id, 3, "done")
    assert ended.seconds > begun.seconds
    assert "closed their last window in epoch" in ended.sentence
    assert stream.moving == {}
    stream.finish()
    stream.expect_reference()


def test_a_state_move_counts_the_bytes_of_its_own_buckets(stream: TestStream) -> None:
    whole = away(stream)
    for bucket in range(4):
        stream.move(1, {bucket: whole[bucket]}, protocol="state")
    stream.move(1, {b: whole[b] for b in range(4, BUCKETS)}, protocol="state")
    stream.add(rows(3))
    parts = [r.bytes for r in stream.reconfigurations()]
    stream.move(1, away(stream), protocol="state")
    stream.add(rows(4))
    all_of_it = stream.reconfigurations()[-1].bytes
    assert len(parts) == 5
    assert 0.5 * all_of_it < sum(parts) < 2 * all_of_it
    assert min(parts) < max(parts)


def test_changes_of_several_subqueries_in_one_epoch(stream: TestStream) -> None:
    stream.move(1, away(stream), protocol="window")
    stream.rescale(2, 2)
    stream.rescale(1, 4, protocol="window")
    stream.add(rows(3))
    found = stream.reconfigurations()
    assert [r.name for r in found] == ["aggregate-0", "dedup-0", "aggregate-0"]
    assert [r.id for r in found] == ["3.0", "3.1", "3.2"]
    assert [r.outcome for r in found] == ["moving", "done", "moving"]
    stream.finish()
    stream.expect_reference()
    assert {r.outcome for r in stream.reconfigurations()} == {"done"}


def test_a_bucket_that_moves_twice_before_an_epoch_is_counted_once(stream: TestStream) -> None:
    home = dict(enumerate(stream.owners[1].owners))
    stream.move(1, away(stream), protocol="window")
    stream.move(1, home, protocol="window")
    stream.add(rows(3))
    assert [(r.protocol, r.outcome) for r in stream.reconfigurations()] == [("", "done")] * 2
    assert stream.moving == {}


@pytest.mark.parametrize("how", ["crash", "restart", "rescale", "one", "finish", "back"])
def test_whatever_happens_in_a_tail(stream: TestStream, how: str) -> None:
    home = dict(enumerate(stream.owners[1].owners))
    stream.move(1, away(stream), protocol="window")
    stream.add(rows(3))
    assert stream.moving
    if how == "crash":
        stream.crash(rows(4))
    elif how == "restart":
        stream.crash(strategy="operator-cloud", instances=2)
    elif how in ("rescale", "one"):
        stream.rescale(1, 1 if how == "one" else 2)
    elif how == "back":
        stream.move(1, home, protocol="window")
    if how != "finish":
        stream.add(rows(5 if how == "crash" else 4))
        assert stream.moving or how == "crash"
        stream.add(rows(6))
    stream.finish()
    stream.expect_reference()
    assert stream.moving == {}
    assert {r.outcome for r in stream.reconfigurations()} == {"done"}


def test_state_shows_main_lineage_and_tails_together(tmp_path: Path) -> None:
    with (
        TestStream(query(), tmp_path / "still", instances=3, buckets=BUCKETS) as still,
        TestStream(query(), tmp_path / "moved", instances=3, buckets=BUCKETS) as moved,
    ):
        for epoch in range(6):
            if epoch in (2, 3):
                moved.move(1, away(moved), protocol="window")
            still.add(rows(epoch))
            moved.add(rows(epoch))
            frames = [s.state("aggregate-0").sort("k", "pane_start") for s in (still, moved)]
            assert frames[0].equals(frames[1])


def test_the_cheaper_protocol_is_taken_unless_one_is_forced(stream: TestStream) -> None:
    with patch.object(read_speed, "READ_BYTES_PER_SECOND", 1):
        stream.move(1, away(stream))
        stream.add(rows(3))
    stream.add(rows(4))
    stream.move(1, away(stream))
    stream.add(rows(5))
    first, second = stream.reconfigurations()
    assert first.protocol == "window"
    assert "since reading 0.0 MB takes" in first.sentence
    assert second.protocol == "state"


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda s: s.move(1, {99: 0}), r"bucket 99 to instance 0.*buckets 0 to 7"),
        (lambda s: s.move(1, {0: 3}), r"instances 0 to 2"),
        (lambda s: s.move(0, {0: 1}), r"one whose rows go by bucket"),
        (lambda s: s.move(1, {0: 1}, protocol="magic"), r"magic.*auto, state, window"),
        (lambda s: s.move(2, {0: 1}, protocol="window"), r"dedup-0 is no aggregate over windows"),
        (lambda s: s.rescale(1, 2, protocol="window"), r"instances 2 go"),
        (lambda s: s.rescale(1, 0), r"1 to 8"),
    ],
)
def test_a_refused_request_leaves_no_trace(stream: TestStream, ask: Any, text: str) -> None:
    before = stream.owners
    with pytest.raises(ConfigError, match=text):
        ask(stream)
    assert stream.owners == before
    stream.add(rows(3))
    assert stream.owners == before
    assert stream.reconfigurations() == []


def test_an_epoch_that_failed_is_run_again_with_the_same_switch(stream: TestStream) -> None:
    driver = stream._run.driver
    plans = []

    def fail(query: object, plan: Any) -> Any:
        plans.append(plan)
        raise RuntimeError("lost")

    stream.move(1, away(stream), protocol="window")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="lost"):
            driver.run_epoch(3, fail)
    assert plans[0].tails == plans[1].tails
    assert plans[0].tails
    assert plans[0].segments == plans[1].segments
    stream.add(rows(3))
    assert driver.last is not None
    assert [t.held for t in driver.last.tails] == [t.held for t in plans[0].tails]
    assert len(stream.reconfigurations()) == 1
    stream.finish()
    stream.expect_reference()


def test_an_instance_without_buckets_is_not_forgotten(tmp_path: Path) -> None:
    with TestStream(query(), tmp_path, instances=3, buckets=BUCKETS) as stream:
        stream.move(1, dict.fromkeys(range(BUCKETS), 0), protocol="state")
        stream.add(rows(0))
        stream.crash()
        assert stream.owners[1].instances == 3
        assert set(stream.owners[1].owners) == {0}


def test_damage_in_a_tail_is_found_and_repaired(tmp_path: Path) -> None:
    with (
        patch.object(compaction, "EAGER", 2),
        patch.object(compaction, "LAZY", 2),
        TestStream(query(1), tmp_path, instances=3, buckets=BUCKETS) as stream,
    ):
        for epoch in range(4):
            if epoch == 2:
                stream.move(1, away(stream), protocol="window")
            stream.add(rows(epoch))
        last = stream._run.driver.last
        assert last is not None
        (open_one,) = last.tails
        merged = [r for r in last.segments[open_one.name] if r.merged]
        assert merged
        assert verify(tmp_path).sound
        before = stream.state("aggregate-0")
        (tmp_path / "penstock/state/aggregate-0" / merged[0].name).write_bytes(b"broken")
        assert [f.kind for f in verify(tmp_path).findings] == ["segment"]
        plan = plan_repair(tmp_path)
        carry_out(plan)
        stream.crash()
        by = ["k", "pane_start"]
        assert stream.state("aggregate-0").sort(by).equals(before.sort(by))
        stream.finish()
        stream.expect_reference()


def test_tails_leave_no_files_behind(stream: TestStream, tmp_path: Path) -> None:
    stream.move(1, away(stream), protocol="window")
    for epoch in range(3, 16):
        stream.add(rows(epoch))
    last = stream._run.driver.last
    assert last is not None
    assert not last.tails
    assert set(last.segments) == {"aggregate-0", "dedup-0"}
    folder = tmp_path / "penstock/state"
    assert sorted(p.name for p in folder.iterdir()) == ["aggregate-0", "dedup-0"]
