"""The handle of a running query: PySpark's ``StreamingQuery``, by the same names, and more."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.compiler import explain
from penstock.driver.again import give_back
from penstock.driver.driver import Driver
from penstock.driver.inspect import read_state
from penstock.driver.outputs import read_side_output
from penstock.driver.sizing.sizes import read_first
from penstock.driver.steering import by_hand
from penstock.observe import history
from penstock.plan.changes import MoveProtocol
from penstock.sinks.memory import read_table
from penstock.spark.failures import clear_error
from penstock.spark.progress import ProgressBook

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_LOG = logging.getLogger(__name__)
_UNREAD = {
    "source": pl.String,
    "path": pl.String,
    "status": pl.String,
    "reason": pl.String,
    "since": pl.Float64,
    "tries": pl.Int64,
}


class Query:
    """A query that runs on Spark; made by ``start``."""

    def __init__(
        self,
        spark_query: StreamingQuery,
        driver: Driver,
        book: ProgressBook,
        *,
        finish: Callable[[], None] | None,
        close: Callable[[], None],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch a streaming query until it ends; then finish it, if asked, and clean up."""
        self._spark_query, self._driver = spark_query, driver
        self._book = book
        self._finish, self._close, self._wake = finish, close, wake
        self._error: BaseException | None = None
        self._stopping = False
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="penstock-watch", daemon=True)
        self._watcher.start()

    def __repr__(self) -> str:
        """Return what the query is, whether it runs and how far it is."""
        last = self._driver.last
        how = "running" if self.isActive else "failed" if self._error is not None else "ended"
        reached = "no epoch yet" if last is None else f"epoch {last.epoch}"
        name = f" {self.name!r}" if self.name else ""
        return f"<Query{name}: {how}, {reached}; checkpoint {self.checkpoint}>"

    def _watch(self) -> None:
        try:
            while not self._spark_query.awaitTermination(1):
                with suppress(OSError):  # statistics wait for an epoch that may not come
                    self._driver.steering.events.flush()
                with suppress(OSError):  # another time
                    self._wake()
            if self._finish is not None and not self._stopping:
                self._finish()
        except Exception as error:  # kept for exception() and awaitTermination()
            self.failed(error)
        finally:
            try:
                self._clean_up()
            finally:
                _LOG.info("checkpoint %s: the query has ended", self.checkpoint)
                self._ended.set()

    def _clean_up(self) -> None:
        """Give back what the run held; a JVM that has died has nothing to take back."""
        with suppress(Exception):
            self._close()
        self._driver.close()

    def failed(self, error: BaseException) -> None:
        """Remember the error that ended the query; stopping it is no error."""
        if not self._stopping and self._error is None:
            self._error = clear_error(error, self.checkpoint)
            _LOG.error("checkpoint %s: the query has failed: %s", self.checkpoint, self._error)

    @property
    def id(self) -> str:
        """The query's id, the same after a restart from its checkpoint."""
        return str(self._spark_query.id)

    @property
    def runId(self) -> str:
        """The id of this run."""
        return str(self._spark_query.runId)

    @property
    def name(self) -> str | None:
        """The query's name."""
        return self._spark_query.name

    @property
    def isActive(self) -> bool:
        """Whether the query still runs."""
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """What the query is doing now."""
        return dict(self._spark_query.status)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """The progress of the newest epoch, or None before the first."""
        last = self._spark_query.lastProgress
        return None if last is None else self._book.join(_as_dict(last))

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The progress of the newest epochs; ours is under the key ``penstock``."""
        return [self._book.join(_as_dict(p)) for p in self._spark_query.recentProgress]

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query ends; raise its error, if it failed.

        Args:
            timeout: Seconds to wait at most; then return whether the query has ended.
        """
        ended = self._ended.wait(timeout)
        if ended and self._error is not None:
            raise self._error
        return ended if timeout is not None else None

    def processAllAvailable(self) -> None:
        """Wait until everything that is there now has been processed."""
        try:
            self._spark_query.processAllAvailable()
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise

    def stop(self, patience_seconds: float = 60.0) -> None:
        """Stop the query after the epoch that is running, and wait until it has ended.

        Args:
            patience_seconds: How long the running epoch may take; then it is cut off. It was not
                committed and is run again after a restart.
        """
        self._stopping = True
        self._driver.stop(patience_seconds)
        if self.isActive:
            self._spark_query.stop()
        self._ended.wait()

    def exception(self) -> BaseException | None:
        """Return the error that ended the query, or None."""
        return self._error

    def explain(self, *, mermaid: bool = False) -> str:
        """Return how the query runs now, and what its first sizes came from, if measured."""
        text, sizes = explain(self._driver.query, mermaid=mermaid), read_first(self._driver.root)
        return text if mermaid or sizes is None else f"{text}\n\n{sizes.describe()}"

    @property
    def totals(self) -> dict[str, Any]:
        """Rows read, processed, late, refused and written since the query's first epoch.

        If the query reads files, ``files`` is how many were seen, read and refused, and how many
        wait to be complete.
        """
        last = self._driver.last
        if last is None:
            return {}
        return dict(last.totals) | ({"files": last.file_totals} if last.files_seen else {})

    @property
    def files(self) -> dict[str, dict[str, int]]:
        """How many files of each source were seen, read and refused, and how many wait."""
        last, names = self._driver.last, self._driver.query.source_names
        found = last.file_accounts.by_source() if last else {}
        return {names[number]: counts for number, counts in found.items()}

    @property
    def unread_files(self) -> pl.DataFrame:
        """The files that wait or were refused: source, path, status, reason, since, tries."""
        last, names = self._driver.last, self._driver.query.source_names
        kinds = {"waiting": last.waiting_files, "refused": last.refused_files} if last else {}
        return pl.DataFrame(
            [
                (names[file.source], file.path, kind, file.reason, file.since, file.tries)
                for kind, files in kinds.items()
                for file in files
            ],
            schema=_UNREAD,
            orient="row",
        )

    def retry(self, file: str | Path, *, source: str = "") -> None:
        """Give a refused file back to the query: it is read with the next epoch.

        ``query.retry("calls/7.parquet")``, after the file was mended.

        Args:
            file: Its path, or its name if that is enough.
            source: The name or number of its source, if several have refused it.

        Raises:
            ConfigError: The query has not refused such a file.
        """
        give_back(self._driver.root, str(file), source=source)

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """Penstock's own progress of the newest epochs, the closing one of ``finish`` included."""
        return self._book.all()

    def table(self, name: str = "results") -> pl.DataFrame:
        """Return the rows of a memory sink."""
        return read_table(self._driver.outputs.sinks.values(), name)

    def late(self) -> dict[str, pl.DataFrame]:
        """Return the late rows of each source, with the epoch in which they came.

        They have all columns of the source, unless it says ``late="needed"``. Of several sources
        with one name, all but the first have a number: ``calls``, ``calls #2``.
        """
        return self._side_output("late")

    def dead_letters(self) -> pl.DataFrame:
        """Return the refused rows with their reasons."""
        found = read_side_output(self._driver.root, "dead")
        if not found:
            from penstock.task.dead_letters import SCHEMA

            return pl.DataFrame(schema=SCHEMA | {"epoch": pl.Int64()})
        return pl.concat(found.values())

    def _side_output(self, kind: str) -> dict[str, pl.DataFrame]:
        names = self._driver.query.source_names
        found = read_side_output(self._driver.root, kind)
        return {names[number]: frame for number, frame in found.items()}

    def rescale(
        self, subquery: int | str, instances: int, *, protocol: MoveProtocol = "auto"
    ) -> None:
        """Give a subquery another number of instances from the next epoch on, without a stop.

        ``query.rescale("aggregate-0", 4)``; `reconfigurations` has the record once it is done.

        Args:
            subquery: The subquery's number, as `explain` shows it, or its name.
            instances: How many instances it shall have.
            protocol: How state comes to its new owners: ``state``, ``window`` or ``auto``.

        Raises:
            ConfigError: There is no such subquery, or it cannot have so many instances.
        """
        by_hand.rescale(self._driver.layout, subquery, instances, protocol=protocol)

    def move(
        self, subquery: int | str, buckets: Mapping[int, int], *, protocol: MoveProtocol = "auto"
    ) -> None:
        """Give buckets of a subquery to other instances from the next epoch on.

        ``query.move("aggregate-0", {17: 0, 18: 0})`` gives two buckets to instance 0.

        Args:
            subquery: The subquery's number or name.
            buckets: The new owner of each bucket that is to move.
            protocol: How state comes to its new owners: ``state``, ``window`` or ``auto``.

        Raises:
            ConfigError: There is no such subquery, bucket or instance, or buckets cannot move.
        """
        by_hand.move(self._driver.layout, subquery, buckets, protocol=protocol)

    def rebalance(
        self, subquery: int | str | None = None, *, protocol: MoveProtocol = "auto"
    ) -> list[str]:
        """Even out the load of a subquery's instances now, by the loads of the last epoch.

        ``query.rebalance()`` does it for all subqueries.

        Args:
            subquery: The subquery's number or name; all unless given.
            protocol: How state comes to its new owners: ``state``, ``window`` or ``auto``.

        Returns:
            A sentence about each subquery: what moves with the next epoch, or why nothing does.

        Raises:
            ConfigError: There is no such subquery.
        """
        driver = self._driver
        _, sentences = by_hand.rebalance(
            driver.layout, driver.steering.statistics, subquery, protocol=protocol
        )
        return list(sentences)

    @property
    def reconfigurations(self) -> pl.DataFrame:
        """Every change of sizes and bucket maps in the checkpoint's history, oldest first.

        The columns are those of `penstock.plan.changes.Reconfiguration`.
        """
        return history.reconfigurations(self._driver.root)

    @property
    def statistics(self) -> pl.DataFrame:
        """What the newest epochs cost: a row for each epoch, subquery and instance."""
        self._driver.steering.events.flush()
        return history.statistics(self._driver.root)

    @property
    def decisions(self) -> pl.DataFrame:
        """What the policy decided: epoch, policy, what was proposed, accepted, refused, and why."""
        return history.decisions(self._driver.root)

    def state(
        self, operator: str | None = None, *, key: Any = None, epoch: int | None = None
    ) -> pl.DataFrame:
        """Return what a stateful operator keeps after an epoch; also while the query runs.

        Args:
            operator: Its name, such as ``aggregate-0``; may be left out if there is one.
            key: One key: a value, or a tuple or a dict for several key columns. A null key is
                given as a dict.
            epoch: A past epoch that is still kept; the newest unless given.

        Raises:
            StateError: There is no such operator, key column or epoch; it names those there are.
            CheckpointError: A file is damaged, or was retired while it was read.
        """
        if self._driver.last is None and epoch is None:
            return pl.DataFrame()
        return read_state(self._driver.root, operator, key, epoch)

    @property
    def dashboardUrl(self) -> str | None:
        """Where the query's dashboard is; None, since this version has none."""
        return None

    @property
    def checkpoint(self) -> str:
        """The checkpoint's path or URI."""
        return str(self._driver.root.parent)


def _as_dict(progress: Any) -> dict[str, Any]:
    if isinstance(progress, dict):
        return dict(progress)
    found: dict[str, Any] = json.loads(progress.json)
    return found
