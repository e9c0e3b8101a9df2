"""Files that Spark has listed and then passed over, because they were empty when it looked.

Spark takes note of an empty file as read, and hands out nothing for it. Law: every file that Spark
notes as read is a split of its epoch, so it is counted, and waits or is refused if it is not
complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.files.place import Place
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.plan.splits import Split
from penstock.sources.files import local_path
from penstock.sources.partitions import below
from penstock.sources.registry import reader_of
from penstock.state.spark_log import Listed, list_files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def find_passed_over(
    query: CompiledQuery,
    plan: EpochPlan,
    batch: DataFrame,
    reports: Sequence[TaskReport],
    spark_log: Place,
) -> list[Split]:
    """Return the files of an epoch that its tasks have not heard of.

    Args:
        query: The compiled query.
        plan: The plan of the epoch.
        batch: The epoch's part of the query's streaming DataFrame, which is asked only if files
            are missing.
        reports: What the tasks have reported.
        spark_log: Spark's checkpoint folder.
    """
    noted: dict[tuple[int, str], Split] = {}
    with suppress(FileNotFoundError):
        for file in list_files_of(spark_log, plan.epoch):
            noted |= {(s.source, str(s.path)): s for s in _splits_of(query, file)}
    seen = sum(count.seen for report in reports for count in report.file_counts.values())
    if len(noted) <= seen - len(plan.again):
        return []
    rows = batch.select("source", "path").collect()
    there = {(row["source"], form) for row in rows for form in _forms(row["path"] or "")}
    return [
        split
        for (source, path), split in noted.items()
        if not any((source, form) in there for form in _forms(path))
    ]


def _splits_of(query: CompiledQuery, file: Listed) -> Iterator[Split]:
    """Yield a file as a split of each source whose folder it is in."""
    path, came_us = _as_in_rows(file.path), file.modified_ms * 1000
    for number, source in query.sources:
        reader = reader_of(source)
        listing = reader.list_in("") if reader.patience_us is not None else None
        if listing is None or below(listing.folder, path) is None:
            continue
        split = Split(source=number, ordinal=(came_us, path), path=path, came_us=came_us)
        if reader.owns(split) and path.lower().endswith(listing.endings):
            yield split


def _as_in_rows(path: str) -> str:
    """Return a path of Spark's log as its rows have it: a local one has one slash, not three."""
    return "file:/" + path.removeprefix("file:///") if path.startswith("file:///") else path


def _forms(path: str) -> set[str]:
    """Return the ways in which a file may be named; signs may be escaped in one and not in another.

    >>> sorted(_forms("file:/a%20b.csv"))
    ['/a b.csv', '/a%20b.csv']
    """
    return {local_path(path), path.removeprefix("file:")}
