"""From what a user says of a source to a stream of it; all readers end here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from penstock.base.durations import Duration, parse_duration
from penstock.base.problems import locate
from penstock.query import nodes
from penstock.query.expressions import ExpressionLike
from penstock.query.stream import Stream
from penstock.sources.event_time import read_time

_LATE = ("all", "needed")


def make_source(
    reader: nodes.Reader,
    schema: Mapping[str, pl.DataType],
    time: ExpressionLike,
    delay: Duration,
    idle: Duration | None,
    name: str,
    found: Sequence[str] = (),
    *,
    late: str = "all",
) -> Stream:
    """Return the stream of a reader.

    Args:
        reader: What is read.
        schema: Its columns.
        time: The event time: a column or an expression.
        delay: How far behind the highest time a row may come.
        idle: After this long without rows it no longer holds back the watermark.
        name: What to call it.
        found: Mistakes that were found before.
        late: Which columns late rows are kept with.
    """
    problems = list(found)
    wrong: list[str] = []
    moment = read_time(time, schema, wrong)
    problems += [f"source {name}: {problem}" for problem in wrong]
    if late not in _LATE:
        allowed = " or ".join(map(repr, _LATE))
        problems.append(f"source {name}: late must be {allowed}; late={late!r}")
    problems += [
        f"source {name}: column names that begin with '__' are reserved; name={c!r}"
        for c in schema
        if c.startswith("__")
    ]
    delay_us = parse_duration(delay)
    if delay_us < 0:
        problems.append(f"source {name}: delay must not be negative; delay={delay!r}")
    idle_us = None if idle is None else parse_duration(idle)
    node = nodes.Source(
        schema=schema,
        name=name,
        time=moment.text,
        delay_us=delay_us,
        reader=reader,
        idle_us=idle_us,
        moment=moment.expression,
        moment_type=moment.dtype,
        late_whole=late == "all",
    )
    return Stream(node, locate(problems))
