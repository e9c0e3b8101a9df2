"""``from_spark``: a streaming DataFrame of the user's as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.durations import Duration
from penstock.base.errors import QueryError
from penstock.query.expressions import ExpressionLike
from penstock.query.stream import Stream
from penstock.sources.declare import make_source
from penstock.sources.given import find_same_but_for_case
from penstock.spark.frame import Frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as SparkFrame


def from_spark(
    frame: SparkFrame,
    *,
    time: ExpressionLike,
    delay: Duration = "0 seconds",
    idle: Duration | None = None,
    name: str = "frame",
    late: str = "needed",
) -> Stream:
    """Return the stream of any streaming DataFrame of Spark.

    Args:
        frame: A DataFrame from ``spark.readStream``, with any stateless operators on it.
        time: The column with the event time, of type timestamp or date, or an expression that
            gives it.
        delay: How far behind the highest time seen a row may come; later rows are late.
        idle: After this long without rows, the source no longer holds back the watermark.
        name: What to call the source in plans and errors.
        late: Which columns late rows are kept with: those that are ``"needed"`` by the query, or
            ``"all"``, which then pass through Spark for every row.
    """
    from penstock.spark.batches import frame_schema

    if not frame.isStreaming:
        raise QueryError(
            problems=("from_spark: the DataFrame is not streaming; read it with spark.readStream",)
        )
    schema = frame_schema(frame)
    problems = find_same_but_for_case(schema)
    reader = Frame(frame=frame)
    return make_source(reader, schema, time, delay, idle, name, problems, late=late)
