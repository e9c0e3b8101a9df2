"""The row groups of a Parquet file: what they announce before they are read.

Law: what is announced of a row group is what reading it gives, with statistics in the footer or
without.
"""

from __future__ import annotations

import polars as pl
import pyarrow.parquet as pq

from penstock.query.nodes import Source
from penstock.sources.admission import event_times
from penstock.sources.files import fits, read_one
from penstock.sources.formats import Schema


def announce_groups(path: str, source: Source, schema: Schema) -> list[tuple[int, int | None]]:
    """Return the rows and highest time of each row group, from its statistics or its columns.

    Where types are not as declared, rows may be refused, and what they hold says nothing: then the
    rows that are read tell the highest time.

    Args:
        path: The file.
        source: Its source.
        schema: The columns that are read from it.
    """
    metadata = pq.read_metadata(path)
    as_declared = fits(pl.read_parquet_schema(path), schema)
    groups: list[tuple[int, int | None]] = []
    offset = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        highest = _highest(group, source) if as_declared else None
        if highest is None:
            part = (offset, group.num_rows)
            rows = read_one("parquet", path, schema, limit=0, part=part).rows
            highest = event_times(source, rows).highest
        groups.append((group.num_rows, highest))
        offset += group.num_rows
    return groups


def _highest(group: pq.RowGroupMetaData, source: Source) -> int | None:
    """Return the highest time that the statistics of a row group tell; None if they do not."""
    if source.moment is not None:
        return None
    columns = [group.column(i) for i in range(group.num_columns)]
    time = next(column for column in columns if column.path_in_schema == source.time)
    if time.statistics is None or not time.statistics.has_min_max:
        return None
    dtype = source.schema[source.time]
    highest = pl.Series([time.statistics.max], dtype=dtype, strict=False)
    return event_times(source, highest.to_frame(source.time)).highest
