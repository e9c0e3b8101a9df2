"""Homes: instances keep to their hosts from epoch to epoch, so that the worker's cache hits.

`Homes` decides, a pure value of what was seen; `keep_to` makes Spark follow. Laws: a home is a
wish, never a need: a task whose host is gone or busy for long runs elsewhere and rebuilds its state
from segments; and an instance moves only if its host is gone or has more than its share.
"""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import TaskReport

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

_LOG = logging.getLogger(__name__)
_KEPT_RDDS = 32
_NO_ROWS = pickle.dumps([])
"""An empty batch in the form in which PySpark's RDDs hold theirs; nobody keeps it."""


class Homes:
    """Remembers where the instances of a query ran, and says where they shall run next."""

    def __init__(self) -> None:
        """Begin without a past."""
        self._hosts: dict[tuple[int, int], str] = {}

    def saw(self, query: CompiledQuery, reports: Iterable[TaskReport]) -> None:
        """Take note of where the instances of an epoch ran; a scan has no state and no home."""
        for report in reports:
            for subquery, load in report.loads.items():
                if query.subqueries[subquery].head is not None:
                    self._hosts[subquery, load.instance] = report.place.host

    def load(self) -> Counter[str]:
        """Return how many instances each host has, over all subqueries."""
        return Counter(self._hosts.values())

    def choose_hosts(
        self, query: CompiledQuery, stage: int, slots: Mapping[str, int]
    ) -> tuple[str, ...]:
        """Return a host for each task of a stage; nothing if the stage needs none.

        Args:
            query: The compiled query.
            stage: The stage.
            slots: How many tasks each live host can run at the same time.
        """
        units = [unit for unit in query.units if unit.stage == stage]
        heads = [query.subqueries[s].head for unit in units for s in unit.subqueries]
        shuffled = any(head is not None for head in heads)
        if not shuffled or not slots or (stage == 0 and query.scattered):
            return ()
        self._forget(query)
        before = [
            self._hosts.get((unit.subqueries[-1], instance))
            for unit in sorted(units, key=lambda unit: unit.first_task)
            for instance in range(unit.instances)
        ]
        return choose_hosts(before, slots, self.load())

    def _forget(self, query: CompiledQuery) -> None:
        sizes = {s.id: s.instances for s in query.subqueries}
        self._hosts = {
            (subquery, instance): host
            for (subquery, instance), host in self._hosts.items()
            if instance < sizes.get(subquery, 0)
        }


def choose_hosts(
    before: Sequence[str | None], slots: Mapping[str, int], load: Mapping[str, int]
) -> tuple[str, ...]:
    """Return a host for each task of a stage: its last one if it can be, else the least loaded.

    No host gets more tasks than it can run while the others run theirs, so that a stage never takes
    more rounds than it must.

    Args:
        before: Where each task ran last; None for a new one.
        slots: How many tasks each live host can run at the same time.
        load: How many instances each host has in all, to choose among equals.

    >>> choose_hosts(["a", "b", None], {"a": 1, "b": 1, "c": 1}, {})
    ('a', 'b', 'c')
    >>> choose_hosts(["a", "gone"], {"a": 1, "b": 1}, {})
    ('a', 'b')
    >>> choose_hosts(["a", "a", "a"], {"a": 1, "b": 2}, {})
    ('a', 'b', 'b')
    """
    rounds = -(-len(before) // sum(slots.values()))
    room = {host: rounds * count for host, count in slots.items()}
    placed: list[str | None] = []
    for host in before:
        stays = host is not None and room.get(host, 0) > 0
        placed.append(host if stays else None)
        if host is not None and stays:
            room[host] -= 1

    def new() -> str:
        least = min(
            (host for host in room if room[host] > 0),
            key=lambda host: (-room[host] / slots[host], load.get(host, 0), host),
        )
        room[least] -= 1
        return least

    return tuple(new() if host is None else host for host in placed)


class Keeper:
    """Makes Spark run the partitions of an RDD on given hosts.

    The partitions of an RDD that holds nothing but preferred hosts are put beside those of the
    data, in one of Spark's unions that pair partitions by number. Spark asks such a union for the
    host that most of its parents prefer; the home names its host twice and so outvotes the data. It
    costs no job, no task and no stored block.
    """

    def __init__(self, context: SparkContext) -> None:
        """Find the union in Spark."""
        self.context = context
        jvm: Any = context._jvm
        self._union = jvm.org.apache.spark.rdd.SQLPartitioningAwareUnionRDD
        self._seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._made: dict[tuple[str, ...], Any] = {}
        self.able = callable(self._union) and type(self._union).__name__ == "JavaClass"
        if not self.able:
            _LOG.warning("this Spark has no union that pairs partitions; instances have no homes")

    def keep_to(self, rdd: RDD[Any], hosts: Sequence[str]) -> RDD[Any]:
        """Return the same rows with a preferred host for each partition; no hosts, no preference.

        Args:
            rdd: The rows; as many partitions as there are hosts.
            hosts: The host of each partition.
        """
        import pyspark

        if not hosts or not self.able:
            return rdd
        jvm: Any = self.context._jvm
        data, tag = rdd._jrdd.rdd(), rdd._jrdd.classTag()
        homes = self._homes(tuple(hosts), tag)
        union = self._union(self.context._jsc.sc(), self._seq([homes, data]), len(hosts), tag)
        jrdd = jvm.org.apache.spark.api.java.JavaRDD(union, tag)
        return pyspark.RDD(jrdd, self.context, rdd._jrdd_deserializer)

    def _homes(self, hosts: tuple[str, ...], tag: Any) -> Any:
        if hosts not in self._made:
            if len(self._made) >= _KEPT_RDDS:
                self._made.clear()
            pair = self.context._jvm.scala.Tuple2  # type: ignore[union-attr]  # Spark runs
            rows = [pair(_NO_ROWS, self._seq([host, host])) for host in hosts]
            self._made[hosts] = self.context._jsc.sc().makeRDD(self._seq(rows), tag)
        return self._made[hosts]
