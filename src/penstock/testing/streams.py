"""Test streams: run a query in this process, epoch by epoch, through crashes and rescaling.

Law: whatever is done to a test stream between its rows, `TestStream.expect_reference` holds; if it
does not, that is a defect of Penstock.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import polars as pl

from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.driver.inspect import read_state
from penstock.driver.outputs import read_side_output
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.changes import MoveProtocol, Reconfiguration
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Sink
from penstock.query.stream import Sinks
from penstock.sinks.registry import find_kind
from penstock.sinks.sink import LastingKind
from penstock.task.worker import Worker
from penstock.testing.compare import difference
from penstock.testing.crashes import CrashingRun
from penstock.testing.reference import Reference, evaluate
from penstock.testing.runner import Batch

Rows = Iterable[Mapping[str, Any]]
BySource = Mapping[int, Rows] | Mapping[str, Rows] | Mapping[int | str, Rows]


class TestStream:
    """A query that is fed by hand, without Spark.

    It runs the engine's own plans, tasks, state and commits. Sources and sinks are told apart by
    their number, which is their place in the query, or by their name; where there is one, it need
    not be named.

    >>> import penstock as ps
    >>> def call(second, src):
    ...     return {"src": src, "ts": ps.at(f"2024-01-01 00:00:{second:02d}")}
    >>> calls = ps.from_rows([], schema={"src": pl.String, "ts": pl.Datetime}, time="ts")
    >>> busy = calls.aggregate(by="src", window=ps.tumbling("10 seconds"), n="count(*)")
    >>> with TestStream(busy.select("src", "n").write_memory(), instances=3) as stream:
    ...     stream.add([call(1, "ann"), call(4, "bob")])
    ...     stream.crash()
    ...     stream.add([call(9, "ann"), call(12, "ann"), call(3, "bob")])
    ...     stream.expect([{"src": "ann", "n": 2}, {"src": "bob", "n": 1}])
    ...     stream.late()[0]["src"].to_list()
    ...     stream.finish()
    ...     stream.expect_reference()
    ['bob']
    """

    __test__ = False  # for pytest: this is a tool, not a test

    def __init__(
        self,
        sinks: Sinks | tuple[Sink, ...],
        folder: Path | None = None,
        *,
        instances: int | Mapping[int, int] = 1,
        strategy: str = "operator-set-cloud",
        buckets: int = 1024,
        workers: int = 1,
    ) -> None:
        """Compile a query and begin it.

        Args:
            sinks: The query.
            folder: Where its checkpoint goes; a temporary folder unless given.
            instances: How many instances each subquery has, or a number for some of them.
            strategy: How to split the query into subqueries.
            buckets: How many buckets keys are hashed to.
            workers: How many worker processes take turns, each with what it has cached.
        """
        self.sinks = sinks.sinks if isinstance(sinks, Sinks) else sinks
        self._query = compile_query(
            self.sinks, strategy=strategy, instances=instances, buckets=buckets
        )
        self._temporary = tempfile.mkdtemp(prefix="penstock-test-") if folder is None else None
        self._folder = Path(self._temporary or str(folder))
        self._config = Config(fsync=False)
        self._held: dict[str, BucketSet] = {}
        self._workers = [Worker() for _ in range(workers)]
        self._run = self._begin(self._query)
        self._before: dict[int, list[pl.DataFrame]] = {}
        self._added: dict[int, list[Mapping[str, Any]]] = {n: [] for n, _ in self._query.sources}
        self._finished = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources that the query reads."""
        return tuple(source.name for _, source in self._query.sources)

    @property
    def subqueries(self) -> int:
        """How many subqueries there are; `rescale` takes their numbers."""
        return len(self._query.subqueries)

    def add(self, rows: Rows | BySource, *, splits: int = 1) -> None:
        """Run one epoch on some rows.

        Args:
            rows: The rows, in the order in which they arrive; for several sources by source.
            splits: Into how many splits to cut each source's rows; instances share them.
        """
        self._take_turns()
        self._run.epoch(self._batch(rows, splits))

    def advance(self) -> None:
        """Run an empty epoch."""
        self._take_turns()
        self._run.epoch({})

    def crash(
        self,
        rows: Rows | BySource | None = None,
        *,
        committed: bool = False,
        lose_workers: bool = True,
        instances: int | Mapping[int, int] | None = None,
        strategy: str | None = None,
    ) -> None:
        """Lose the driver, start again from the checkpoint.

        Args:
            rows: If given, the crash comes in the middle of an epoch on these rows, which Spark
                then asks for again.
            committed: Whether that epoch was committed when the driver died, but not published.
            lose_workers: Whether the workers' caches are lost as well.
            instances: How many instances each subquery has from now on, if not as many as before.
            strategy: How the query is split from now on, if not as before.
        """
        epoch = self._run.next_epoch
        batch = None if rows is None else self._batch(rows, 1)
        self._take_turns()
        if batch is not None:
            self._run.die_in(batch, committed=committed)
        if lose_workers:
            self._forget()
        self._reopen(instances, strategy)
        if batch is not None:
            self._run.again(epoch, batch)

    def rescale(self, subquery: int, instances: int, *, protocol: MoveProtocol = "auto") -> None:
        """Give a subquery another number of instances from the next epoch on."""
        self._run.driver.rescale(subquery, instances, protocol=protocol)

    def move(
        self, subquery: int, moves: Mapping[int, int], *, protocol: MoveProtocol = "auto"
    ) -> None:
        """Give some buckets of a subquery to other instances from the next epoch on."""
        self._run.driver.move(subquery, moves, protocol=protocol)

    def hold(self, operator: str, buckets: Iterable[int]) -> None:
        """Let some buckets of an operator, and no others, stay behind from the next epoch on.

        They take their rows and close nothing until they are let go, by no buckets here or by the
        end of the input. Other buckets go on; what comes after the operator waits for the last one.
        """
        self._held[operator] = BucketSet.of(buckets)

    @property
    def stateful(self) -> tuple[str, ...]:
        """The names of the operators that keep state; `hold` takes them."""
        query = self._run.driver.query
        return tuple(query.operator_name(number) for number in query.stateful)

    @property
    def movable(self) -> tuple[int, ...]:
        """The subqueries whose single buckets can move."""
        query = self._run.driver.query
        return tuple(s.id for s in query.subqueries if query.is_movable(s.id))

    @property
    def owners(self) -> dict[int, BucketMap]:
        """Who owns the buckets of each subquery from the next epoch on."""
        layout = self._run.driver.layout
        return {subquery: layout.upcoming(subquery) for subquery in layout.maps}

    @property
    def moving(self) -> dict[int, tuple[int, ...]]:
        """The buckets of each subquery whose old owners still finish windows."""
        return self._run.driver.layout.moving()

    def reconfigurations(self) -> list[Reconfiguration]:
        """Return the newest record of every change, oldest first."""
        return self._run.driver.steering.reconfigurations()

    def state(self, operator: str | None = None) -> pl.DataFrame:
        """Return what an operator keeps."""
        return read_state(self._run.driver.root, operator)

    def finish(self) -> None:
        """End the input: close every window."""
        self._finished = True
        self._take_turns()
        self._run.finish()

    def rows(self, sink: int | str | None = None) -> list[dict[str, Any]]:
        """Return what a sink has got; all of it, in the order in which it came."""
        number = self._sink(sink)
        node = self._query.nodes[number]
        assert isinstance(node, Sink)
        kind = find_kind(node.kind)
        if isinstance(kind, LastingKind):
            epochs = kind.read(kind.name(node)).values()
            return pl.concat([pl.DataFrame(schema=dict(node.schema)), *epochs]).to_dicts()
        frames = [*self._before.get(number, []), self._run.table(number)]
        return pl.concat(frames).to_dicts()

    def late(self) -> dict[int, pl.DataFrame]:
        """Return the late rows of each source that has any, with all its columns."""
        return read_side_output(self._run.driver.root, "late")

    def dead_letters(self) -> pl.DataFrame:
        """Return the refused rows with the reasons."""
        letters = read_side_output(self._run.driver.root, "dead")
        return pl.concat(letters.values(), how="diagonal") if letters else pl.DataFrame()

    def counts(self) -> dict[str, int]:
        """Return how many rows were read, processed, late, refused and written so far."""
        last = self._run.driver.last
        return dict(last.totals) if last else {}

    def reference(self) -> Reference:
        """Return what the reference evaluator makes of all rows so far."""
        return evaluate(self.sinks, self._added, self._finished)

    def expect(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        sink: int | str | None = None,
        ordered: bool = False,
    ) -> None:
        """Fail unless a sink has exactly these rows; in this order if asked.

        Raises:
            AssertionError: It has not; the text says how they differ.
        """
        odd = difference(self.rows(sink), rows, ordered=ordered)
        assert not odd, odd

    def expect_reference(self) -> None:
        """Fail unless sinks, late rows and counts are those of the reference evaluator.

        Raises:
            AssertionError: Something differs; the text says what.
        """
        reference = self.reference()
        for number, node in self._query.sinks:
            odd = difference(self.rows(number), reference.rows[number], ordered=node.ordered)
            assert not odd, f"sink {number} ({node.title}): {odd}"
        late = self.late()
        for number, source in self._query.sources:
            found = late.get(
                number,
                pl.DataFrame(schema={name: source.schema[name] for name in source.time_columns}),
            )
            columns = [name for name in source.schema if name in found.columns]
            expected = [{name: row[name] for name in columns} for row in reference.late[number]]
            odd = difference(found.select(columns).to_dicts(), expected)
            assert not odd, f"late rows of source {number}: {odd}"
        self._expect_counts(reference)

    def _expect_counts(self, reference: Reference) -> None:
        counts = self.counts()
        if not counts:
            return
        found = {name: counts[name] for name in ("read", "late", "refused", "refusedResults")}
        assert found == {
            "read": reference.read,
            "late": reference.late_count,
            "refused": reference.refused,
            "refusedResults": reference.refused_results,
        }, (
            f"counts: {found}, reference: {reference.read}, {reference.late_count}, "
            f"{reference.refused}, {reference.refused_results}"
        )
        assert counts["read"] == counts["processed"] + counts["late"] + counts["refused"], counts

    def _take_turns(self) -> None:
        """Let the next worker work."""
        self._run.worker = self._workers[self._run.next_epoch % len(self._workers)]

    def _forget(self) -> None:
        self._workers = [Worker() for _ in self._workers]

    def close(self) -> None:
        """Remove the temporary folder and what the workers cached."""
        self._forget()
        self._take_turns()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> TestStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _batch(self, rows: Rows | BySource, splits: int) -> Batch:
        by_source = rows if isinstance(rows, Mapping) else {self._query.sources[0][0]: rows}
        batch: dict[int, list[pl.DataFrame]] = {}
        for key, given in by_source.items():
            number, schema = self._source(key)
            taken = list(given)
            self._added[number] += taken
            cuts = [len(taken) * i // splits for i in range(splits + 1)]
            batch[number] = [
                pl.DataFrame(taken[a:b], schema=schema) for a, b in pairwise(cuts) if a < b
            ]
        return batch

    def _source(self, key: int | str) -> tuple[int, dict[str, pl.DataType]]:
        for number, source in self._query.sources:
            if key in (number, source.name):
                return number, dict(source.schema)
        known = [f"{number} ({source.name})" for number, source in self._query.sources]
        raise ValueError(f"no source {key!r}; sources: {', '.join(known)}")

    def _sink(self, key: int | str | None) -> int:
        for number, sink in self._query.sinks:
            if key is None or key in (number, sink.target):
                return number
        known = [f"{number} ({sink.target})" for number, sink in self._query.sinks]
        raise ValueError(f"no sink {key!r}; sinks: {', '.join(known)}")

    def _reopen(self, instances: int | Mapping[int, int] | None, strategy: str | None) -> None:
        for number, sink in self._query.sinks:
            if not isinstance(find_kind(sink.kind), LastingKind):
                self._before.setdefault(number, []).append(self._run.table(number))
        query = self._run.driver.query
        if instances is not None or strategy is not None:
            sizes = {s.id: s.instances for s in query.subqueries} if strategy is None else 1
            query = compile_query(
                self.sinks,
                strategy=strategy or query.strategy,
                instances=sizes if instances is None else instances,
                buckets=query.buckets,
            )
        self._query = query
        self._run = self._begin(query)
        self._take_turns()

    def _begin(self, query: CompiledQuery) -> CrashingRun:
        return CrashingRun(query, self._folder, self._config, hold=lambda epoch: self._held)
