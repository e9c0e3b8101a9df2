"""The applications as benchmarks: their input, their query, and the same as a batch job.

The law this module keeps: a question has one definition, which all engines and the comparison of
their outputs read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.batch import packets as packets_batch
from bench.batch import retail as retail_batch
from bench.batch import trading as trading_batch
from penstock.workloads import exchange, network, tpcxbb
from penstock.workloads.files import Made

if TYPE_CHECKING:
    from penstock.query.stream import Stream

Streams = Mapping[str, "Stream"]
Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One query of an application."""

    name: str
    make: Callable[..., Any]
    """From `rows` and `seed` to the made-up input."""
    streams: "Callable[[Stream, Any], Streams]"
    """From the input's stream to the streams that are written, by name."""
    batch: Callable[[pl.LazyFrame, Any], Frames]
    """From all the rows at once to the same results."""

    def input(self, rows: int, seed: int = 0) -> Made:
        """Return the input of a size."""
        made: Made = self.make(rows=rows, seed=seed)
        return made


def _clicks(
    name: str, query: "Callable[[Stream], Stream]", batch: Callable[[pl.LazyFrame], pl.DataFrame]
) -> Question:
    return Question(
        name=name,
        make=tpcxbb.Clicks,
        streams=lambda stream, _: {name: query(stream)},
        batch=lambda rows, _: {name: batch(rows)},
    )


def _items(made: Any) -> pl.DataFrame:
    return tpcxbb.items(made.items, made.categories)


SUITES: dict[str, dict[str, Question]] = {
    "exchange": {
        "exchange": Question(
            name="exchange",
            make=exchange.Orders,
            streams=lambda stream, made: exchange.streams(stream, made.base_prices),
            batch=lambda rows, made: trading_batch.all_streams(rows, made.base_prices),
        )
    },
    "tpcxbb": {
        "Q1": Question(
            name="Q1",
            make=tpcxbb.Sales,
            streams=lambda stream, _: {"Q1": tpcxbb.q1(stream)},
            batch=lambda rows, _: {"Q1": retail_batch.q1(rows)},
        ),
        "Q2": _clicks("Q2", tpcxbb.q2, retail_batch.q2),
        "Q3": _clicks("Q3", tpcxbb.q3, retail_batch.q3),
        "Q4": _clicks("Q4", tpcxbb.q4, retail_batch.q4),
        "Q15": Question(
            name="Q15",
            make=tpcxbb.Sales,
            streams=lambda stream, made: {"Q15": tpcxbb.q15(stream, _items(made))},
            batch=lambda rows, made: {"Q15": retail_batch.q15(rows, _items(made))},
        ),
    },
    "network": {
        "network": Question(
            name="network",
            make=network.Packets,
            streams=lambda stream, _: {"network": network.packet_sizes(stream)},
            batch=lambda rows, _: {"network": packets_batch.packet_sizes(rows)},
        )
    },
}
"""The questions of each application, by name."""
