"""One life of a storm's driver: `python -m faults.storm_child EVENTS SETTINGS`.

It starts Spark on a cluster that is there, runs the query, and does what it is told on its standard
input, one JSON object a line; see `faults.storm`. Law: as for all children, it does not outlive its
parent.
"""

from __future__ import annotations

import json
import queue
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from faults.kill_child import Teller, listen
from faults.storm_workload import build_query
from penstock.base.errors import ConfigError
from penstock.driver.driver import Driver, EpochResult, Execute
from penstock.plan.changes import PROTOCOLS, MoveProtocol
from penstock.testing.cluster import Cluster, cluster_session

QUIET_SECONDS = 600.0
"""A parent that says nothing for so long has forgotten us."""


def main(handle: str, settings: str) -> None:
    """Start Spark on the cluster, run the query, obey."""
    tell, lines, given = Teller(int(handle)), listen(), json.loads(settings)
    cluster = Cluster(Path(given["cluster"]), cores=1, memory="1g")
    cluster.master = given["master"]
    with cluster_session(
        cluster, "penstock storm", executors=given["executors"], settings=given["settings"]
    ) as spark:
        tell("ready")
        try:
            with watched(tell):
                Life(spark, given, tell).run(lines)
        except Exception as error:
            tell("error", kind=type(error).__name__, text=str(error)[:2000])
    tell("ended")


@contextmanager
def watched(tell: Teller) -> Iterator[None]:
    """Let the query's driver tell when an epoch begins and when it has been committed."""

    class Watched(Driver):
        def run_epoch(self, epoch: int, execute: Execute, *, final: bool = False) -> EpochResult:
            tell("begun", epoch=epoch)
            result = super().run_epoch(epoch, execute, final=final)
            records = [
                {"kind": record.kind, "protocol": record.protocol}
                for record in result.manifest.reconfigured
            ]
            tell(
                "epoch",
                epoch=epoch,
                replayed=result.replayed,
                seconds=result.seconds,
                records=[] if result.replayed else records,
            )
            return result

    with mock.patch("penstock.spark.start.Driver", Watched):
        yield


class Life:
    """The query of one driver, and what is done to it."""

    def __init__(self, spark: Any, given: Mapping[str, Any], tell: Teller) -> None:
        """Start the query where it was."""
        from penstock.spark.executors import SparkExecutors

        self.spark, self.given, self.tell = spark, given, tell
        self.rng = random.Random(given["seed"])
        self.executors = SparkExecutors(spark.sparkContext)
        folder = Path(given["folder"])
        self.sinks = build_query(folder / "calls", folder / "run" / "out")
        self.checkpoint = folder / "run" / "checkpoint"
        self.query = self.sinks.start(spark, checkpoint=self.checkpoint)
        tell("started")

    def run(self, lines: queue.SimpleQueue[str]) -> None:
        """Obey until the word to finish, or until the query has ended by itself."""
        until = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < until and self.query.isActive:
            try:
                order = json.loads(lines.get(timeout=0.2))
            except queue.Empty:
                continue
            until = time.monotonic() + QUIET_SECONDS
            if order["kind"] == "finish":
                self._finish()
                return
            done = getattr(self, order["kind"])()
            self.tell("asked", number=order["number"], **done)
        self.query.awaitTermination(1)
        raise RuntimeError("the query has ended, or nobody said anything")

    def _finish(self) -> None:
        """Process what is there, close all windows, and end."""
        self.query.stop()
        last = self.sinks.start(
            self.spark, checkpoint=self.checkpoint, available_now=True, finish=True
        )
        last.awaitTermination()
        self.tell("done", totals=last.totals)

    def rescale(self) -> dict[str, Any]:
        """Give a subquery another number of instances."""
        layout = self.query._driver.layout
        free = [
            s.id for s in self.query._driver.query.subqueries if not layout.query.is_fixed(s.id)
        ]
        subquery, instances = self.rng.choice(free), self.rng.randint(1, self.given["instances"])
        for protocol in self._protocols():
            try:
                self.query.rescale(subquery, instances, protocol=protocol)
            except ConfigError:  # not every operator has windows to recreate
                continue
            return {"protocol": protocol, "what": f"{subquery} to {instances}"}
        raise AssertionError("no protocol was allowed")

    def move(self) -> dict[str, Any]:
        """Give some buckets of a subquery to other instances."""
        layout = self.query._driver.layout
        movable = [
            s.id for s in self.query._driver.query.subqueries if layout.query.is_movable(s.id)
        ]
        several = [number for number in movable if layout.maps[number].instances > 1]
        subquery = self.rng.choice(several or movable)
        owners = layout.maps[subquery]
        for protocol in self._protocols():
            buckets = self.rng.sample(range(len(owners.owners)), self.rng.choice([1, 8, 200]))
            moves = {bucket: self.rng.randrange(owners.instances) for bucket in buckets}
            try:
                self.query.move(subquery, moves, protocol=protocol)
            except ConfigError:  # or the instance is about to go
                continue
            return {"protocol": protocol, "what": f"{len(moves)} buckets of {subquery}"}
        self.query.move(subquery, dict.fromkeys(buckets, 0), protocol="auto")
        return {"protocol": "auto", "what": f"{len(buckets)} buckets of {subquery} to instance 0"}

    def _protocols(self) -> list[MoveProtocol]:
        first = self.rng.choice(PROTOCOLS)
        return list(dict.fromkeys([first, "auto"]))

    def provision(self) -> dict[str, Any]:
        """Ask for one more executor."""
        total = len(self.executors.registered()) + 1
        wanted = min(total, self.given["executors"])
        return {"granted": self.executors.request(wanted), "what": f"{wanted} executors"}

    def decommission(self) -> dict[str, Any]:
        """Give an executor back, unless it is the last but one."""
        live = [e for e in self.executors.registered() if not self.executors.decommissioning(e)]
        if len(live) < 3:
            return self.provision() | {"instead": "provision"}
        self.executors.request(len(live) - 1)
        gone = self.rng.choice(live)
        return {"granted": self.executors.release(gone), "what": f"executor {gone}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
