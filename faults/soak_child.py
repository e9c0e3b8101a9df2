"""The query of a soak: `python -m faults.soak_child EVENTS SETTINGS`; see `faults.soak`."""

from __future__ import annotations

import json
import queue
import sys
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from faults.kill_child import Teller, end_session, listen, watched
from penstock.query.stream import Sinks

SCHEMA = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}
DELAY = 2
SIZE, ADVANCE = 60, 10
WAIT_SECONDS = 300.0


def build_query(calls: Path, out: Path) -> Sinks:
    """Return the query: sums per key over a minute, every ten seconds."""
    stream = ps.read_parquet(calls, time="ts", schema=SCHEMA, delay=f"{DELAY} seconds")
    return stream.aggregate(
        by="k",
        window=ps.sliding(f"{SIZE} seconds", every=f"{ADVANCE} seconds"),
        n="count(*)",
        total="sum(x)",
    ).write_parquet(str(out))


def main(handle: str, settings: str) -> None:
    """Run the query; tell of the JVM's memory on every line, and end on the line ``stop``."""
    tell, lines = Teller(int(handle)), listen()
    from penstock.spark.session import local_session

    spark = local_session("penstock soak", cores=2, settings=json.loads(settings))
    tell("ready")
    job = json.loads(lines.get())
    try:
        with watched(tell):
            query = build_query(Path(job["calls"]), Path(job["out"])).start(
                spark, checkpoint=job["checkpoint"], every="1 second"
            )
            while query.isActive and not _stops(lines):
                tell("memory", heap=_heap_after_collection(spark), read=query.totals.get("read", 0))
            if query.isActive:
                query.processAllAvailable()
                query.stop()
            query.awaitTermination()
        last = query.epochs[-1]
        tell("done", totals=query.totals, watermark=min(last["watermarks"].values()))
    except Exception as error:
        tell("error", kind=type(error).__name__, text=str(error)[:2000])
    end_session(spark)
    tell("ended")


def _stops(lines: queue.SimpleQueue[str]) -> bool:
    """Wait for the parent's next line: to tell of memory, or to stop."""
    try:
        return lines.get(timeout=WAIT_SECONDS).strip() == "stop"
    except queue.Empty:
        return True


def _heap_after_collection(spark: Any) -> int:
    """Return the bytes that were in use after each heap pool's last collection."""
    beans = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    used = 0
    for bean in beans:
        usage = bean.getCollectionUsage()
        if usage is not None:
            used += int(usage.getUsed())
    return used


if __name__ == "__main__":
    main(*sys.argv[1:])
