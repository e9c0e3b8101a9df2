"""A soak: a query at a steady rate for a long time, to see that nothing of it grows.

``python -m faults.soak [--minutes 30] [--rate 20000] [--json] [--out DIR]``. A generator writes a
file every second, a consumer reads the output and deletes it, old input is deleted, and every ten
seconds the memory of each process, the files of the checkpoint, the epochs' durations and the lag
are taken down. Law: what was generated is what was consumed, window by window, and a series is
called flat only if its last third is no higher than its middle one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

from faults.kill_family import READY_SECONDS, Child, scratch_folder
from faults.report import percentile
from faults.soak_child import ADVANCE, DELAY, SCHEMA, SIZE
from penstock.files.place import place_of
from penstock.sinks.epochs import epoch_name
from penstock.sinks.publish import read_published
from penstock.testing.faults.oracle import parted

SAMPLE_SECONDS = 10.0
LONG_MINUTES = 20
"""From here on a series has had the time to rest: Spark cleans its list of files after ten."""
KEPT_EPOCHS = 20
KEYS = 5_000
_LATE_SHARE = 0.001
_DRAIN_SECONDS = 240.0
_MICROS = 1_000_000
_SETTINGS = {
    # A heap with a lid, so that it comes to rest.
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}
_SLACK = {
    "driver_mb": 10.0, "jvm_mb": 40.0, "heap_mb": 15.0, "workers_mb": 25.0, "ours_files": 20.0,
    "ours_mb": 2.0, "spark_files": 20.0, "spark_mb": 0.5, "late_files": 20.0, "late_mb": 0.5,
    "epoch_p50_ms": 50.0, "epoch_p95_ms": 250.0, "lag_seconds": 1.0,
}  # fmt: skip
"""The series, and what counts as noise in each, in its own unit; a tenth is noise in any.

Late rows are kept for the user until he removes them, so they grow by what is late; that series is
shown, but does not decide.
"""


@dataclass(slots=True)
class Generator:
    """Writes a file every second, and knows what must come of it.

    Event time is the wall clock's. A row in a thousand is two minutes late.
    """

    folder: Path
    rate: int
    keep_seconds: float
    made: int = 0
    read: int = 0
    late: int = 0
    panes: Counter[int] = field(default_factory=Counter)
    sums: Counter[int] = field(default_factory=Counter)
    highest: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Write until stopped; a slow second is made up for, so the rate holds."""
        rng = np.random.default_rng(0)
        begun, number = time.monotonic(), 0
        while not self.stop.wait(max(0.0, begun + number - time.monotonic())):
            self._write(rng, number)
            number += 1
            self._delete_old()

    def _write(self, rng: np.random.Generator, number: int) -> None:
        ts = time.time_ns() // 1000 + np.sort(rng.integers(0, _MICROS, self.rate))
        ts = np.where(rng.random(self.rate) < _LATE_SHARE, ts - 120 * _MICROS, ts)
        keys = pl.Series("k", rng.integers(0, KEYS, self.rate)).cast(pl.String)
        x = rng.integers(0, 1000, self.rate)
        frame = pl.DataFrame({"k": keys, "x": x, "ts": ts}).cast(SCHEMA)  # type: ignore[arg-type]
        self._count(frame)
        hidden = self.folder / f".{number:07d}.tmp"
        frame.write_parquet(hidden)
        hidden.replace(self.folder / f"{number:07d}.parquet")
        self.made += frame.height

    def _count(self, frame: pl.DataFrame) -> None:
        """Take down what counts, by pane; late is what is too far behind the rows before."""
        ts = frame["ts"].to_physical()
        reached = ts.cum_max().shift(1).fill_null(self.highest).clip(lower_bound=self.highest)
        late = ts < reached - DELAY * _MICROS
        self.highest = max(self.highest, int(ts.max()))  # type: ignore[arg-type]  # never empty
        self.late += int(late.sum())
        pane = pl.col("ts").to_physical() // (ADVANCE * _MICROS)
        counted = frame.filter(~late).group_by(pane.alias("pane"))
        for number, n, total in counted.agg(n=pl.len(), total=pl.col("x").sum()).iter_rows():
            self.panes[number] += n
            self.sums[number] += total

    def _delete_old(self) -> None:
        """Delete input that is old and was read; Spark fails for good on a file that is gone."""
        for path in sorted(self.folder.glob("*.parquet"))[: -int(self.keep_seconds)]:
            if (int(path.stem) + 1) * self.rate <= self.read:
                path.unlink()

    def windows(self, watermark: int) -> dict[int, tuple[int, int]]:
        """Return rows and sum of each window that a watermark has closed, by its end in seconds."""
        per = SIZE // ADVANCE
        ends = {pane + 1 + i for pane in self.panes for i in range(per)}
        found = {}
        for end in ends:
            if end * ADVANCE * _MICROS <= watermark:
                parts = range(end - per, end)
                n, total = (sum(c[p] for p in parts) for c in (self.panes, self.sums))
                found[end * ADVANCE] = (n, total)
        return found


@dataclass(slots=True)
class Consumer:
    """Reads each epoch's output once, and deletes it when it is old, as a user would."""

    folder: Path
    taken: int = -1
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, *, keep: int = KEPT_EPOCHS) -> None:
        """Read what is new, and delete all but the newest epochs."""
        for epoch, rows in read_published(place_of(self.folder)).items():
            if epoch > self.taken:
                self.taken = epoch
                self._add(rows)
        names = sorted(p for p in self.folder.glob("epoch=*") if p.name <= epoch_name(self.taken))
        for old in names[: len(names) - keep]:
            shutil.rmtree(old)

    def _add(self, rows: pl.DataFrame) -> None:
        ends = pl.col("window_end").to_physical() // _MICROS
        sums = rows.group_by(ends.alias("end")).agg(
            n=pl.col("n").sum(), total=pl.col("total").sum()
        )
        for end, n, total in sums.iter_rows():
            before = self.windows.get(end, (0, 0))
            self.windows[end] = (before[0] + n, before[1] + total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How a series went: the medians of its middle and last third, and its slope."""

    series: str
    middle: float
    last: float
    per_hour: float
    flat: bool


def trend(series: str, seconds: Sequence[float], values: Sequence[float]) -> Trend:
    """Return the trend of a series from its middle third on; the first is for warming up.

    The slope is the median of the slopes of all pairs (Theil and Sen), which outliers do not move.

    >>> trend("lag_seconds", range(30), [5.0] * 10 + [1.0, 1.2] * 10).flat
    True
    >>> trend("ours_files", range(30), [10.0 * i for i in range(30)]).flat
    False
    """
    third = len(values) // 3
    middle = statistics.median(values[third : 2 * third])
    last = statistics.median(values[2 * third :])
    points = list(zip(seconds, values, strict=True))[third:]
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0])
        for i, a in enumerate(points)
        for b in points[i + 1 :]
        if b[0] > a[0]
    ]
    return Trend(
        series=series,
        middle=round(middle, 2),
        last=round(last, 2),
        per_hour=round(3600 * statistics.median(slopes), 2) if slopes else 0.0,
        flat=last <= middle + max(0.1 * middle, _SLACK[series]),
    )


def tree_size(folder: Path) -> tuple[int, int]:
    """Return the number and the bytes of the files below a folder, while others change it."""
    files = total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
            files += 1
    return files, total


class Soak:
    """One soak, from its start to its verdict."""

    def __init__(self, folder: Path, out: Path, *, minutes: float, rate: int) -> None:
        """Prepare the folders."""
        self.folder, self.out, self.seconds, self.rate = folder, out, 60 * minutes, rate
        self.calls, self.results = folder / "calls", folder / "results"
        self.checkpoint = folder / "checkpoint"
        self.calls.mkdir()
        keep = max(30.0, min(180.0, self.seconds / 5))
        self.generator = Generator(self.calls, rate, keep)
        self.consumer = Consumer(self.results)
        self.samples: list[dict[str, float]] = []

    def run(self) -> dict[str, Any]:
        """Run it, and return what was found."""
        settings = {**_SETTINGS, "spark.local.dir": str(self.folder / "local")}
        child = Child(self.folder / "c", settings, module="faults.soak_child")
        try:
            if not child.wait_for("ready", READY_SECONDS):
                raise RuntimeError(f"the query did not get ready:\n{child.last_words()}")
            job = {"calls": str(self.calls), "out": str(self.results)}
            child.say(json.dumps({**job, "checkpoint": str(self.checkpoint)}) + "\n")
            with _running(self.generator):
                self._watch(child)
            child.say("stop\n")
            child.wait_for("ended", _DRAIN_SECONDS)
            gone = child.gone(30)
        finally:
            child.end()
        if not child.told("done"):
            words = child.told("error") or child.last_words()
            return {"passed": False, "remarks": [f"the query ended: {words}"]}
        return self._verdict(child, gone)

    def _watch(self, child: Child) -> None:
        since = time.monotonic()
        until = since + self.seconds
        with (self.out / "samples.jsonl").open("w") as lines:
            while not child.over and (now := time.monotonic()) < until:
                due = min(until, now + min(SAMPLE_SECONDS, self.seconds / 30))
                child.wait(lambda _: bool(child.told("error")), due - now)
                child.say("memory\n")
                child.wait_for("memory", SAMPLE_SECONDS, len(child.told("memory")) + 1)
                if child.told("error"):
                    return
                self.generator.read = max((e["read"] for e in child.told("memory")), default=0)
                self.consumer.take()
                sample = self._sample(child, since)
                if sample is not None:
                    self.samples.append(sample)
                    lines.write(json.dumps(sample) + "\n")
                    lines.flush()

    def _sample(self, child: Child, since: float) -> dict[str, float] | None:
        now, family = time.monotonic(), child.family
        epochs = [e for e in child.told("epoch") if e["at"] > now - 60]
        memory = child.told("memory")
        if not epochs or not memory or family.jvm is None:
            return None
        durations = [1000 * e["seconds"] for e in epochs]
        ours, late, spark = (
            tree_size(self.checkpoint / name) for name in ("penstock", "penstock/late", "spark")
        )
        own = [p for p in family.all if p.pid == family.driver]
        return {
            "seconds": round(now - since, 1),
            "driver_mb": _rss_mb(own),
            "jvm_mb": _rss_mb([family.jvm]),
            "heap_mb": round(memory[-1]["heap"] / 1e6, 1),
            "workers_mb": _rss_mb(family.workers),
            "ours_files": ours[0] - late[0],
            "ours_mb": round((ours[1] - late[1]) / 1e6, 3),
            "late_files": late[0],
            "late_mb": round(late[1] / 1e6, 3),
            "spark_files": spark[0],
            "spark_mb": round(spark[1] / 1e6, 3),
            "epoch_p50_ms": round(percentile(durations, 0.5) or 0.0, 1),
            "epoch_p95_ms": round(percentile(durations, 0.95) or 0.0, 1),
            "lag_seconds": round((self.generator.made - memory[-1]["read"]) / self.rate, 2),
            "epochs": epochs[-1]["epoch"] + 1,
        }

    def _verdict(self, child: Child, gone: bool) -> dict[str, Any]:
        self.consumer.take(keep=0)
        done = child.told("done")[0]
        remarks = self._differences(done["totals"], done["watermark"])
        remarks += parted(self.checkpoint, taken=True)
        if not gone:
            remarks.append("processes were left behind")
        seconds = [s["seconds"] for s in self.samples]
        trends = [trend(name, seconds, [s[name] for s in self.samples]) for name in _SLACK]
        return {
            "passed": not remarks,
            "flat": all(t.flat for t in trends if not t.series.startswith("late")),
            "remarks": remarks,
            "totals": done["totals"],
            "windows": len(self.consumer.windows),
            "epochs": child.told("epoch")[-1]["epoch"] + 1,
            "samples": len(self.samples),
            "trends": [asdict(t) for t in trends],
        }

    def _differences(self, totals: Mapping[str, int], watermark: int) -> list[str]:
        made = self.generator
        remarks = [
            f"{name}: {totals[name]} instead of {right}"
            for name, right in (("read", made.made), ("late", made.late))
            if totals[name] != right
        ]
        right = made.windows(watermark)
        for end in sorted(right.keys() | self.consumer.windows.keys()):
            found = self.consumer.windows.get(end)
            if found != right.get(end):
                remarks.append(f"window to {end}: {found} instead of {right.get(end)}")
        return remarks


def _rss_mb(processes: Sequence[psutil.Process]) -> float:
    total = 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return round(total / 1e6, 1)


@contextmanager
def _running(generator: Generator) -> Iterator[None]:
    thread = threading.Thread(target=generator.run, name="generator", daemon=True)
    thread.start()
    try:
        yield
    finally:
        generator.stop.set()
        thread.join(timeout=30)


def run(*, minutes: float, rate: int, out: Path) -> dict[str, Any]:
    """Run a soak; samples and summary go to a folder."""
    out.mkdir(parents=True, exist_ok=True)
    with scratch_folder() as folder:
        found = Soak(folder, out, minutes=minutes, rate=rate).run()
    (out / "summary.json").write_text(json.dumps(found, indent=1))
    return found


def _print(found: Mapping[str, Any]) -> None:
    for remark in found["remarks"]:
        print(f"not right: {remark}")
    for t in found.get("trends", ()):
        print(
            f"{t['series']:>14}  middle {t['middle']:>10}  last {t['last']:>10}  "
            f"{t['per_hour']:>+10} an hour  {'flat' if t['flat'] else 'NOT FLAT'}"
        )
    print("outputs are right" if found["passed"] else "outputs are NOT right")
    if "flat" in found:
        print("nothing grows" if found["flat"] else "something grows")


def main() -> None:
    """Take the options, run, print; fail if outputs differ, or if a long run does not rest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=20_000, help="rows a second")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("soak"))
    options = parser.parse_args()
    found = run(minutes=options.minutes, rate=options.rate, out=options.out)
    if options.json:
        print(json.dumps(found))
    else:
        _print(found)
    grows = options.minutes >= LONG_MINUTES and not found.get("flat", False)
    sys.exit(0 if found["passed"] and not grows else 1)


if __name__ == "__main__":
    main()
