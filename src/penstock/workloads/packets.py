"""Packets of a network's clients: the stream of Flux's monitoring query, section 3.

The law this module keeps: a row depends on its number and on the fields of `Packets`, and on
nothing else.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

from penstock.workloads.draws import HOUR, I64, draw, evenly, micros, row_numbers, skewed, uniform
from penstock.workloads.files import write_stream

PACKET_SCHEMA: dict[str, pl.DataType] = {
    "client": pl.Int32(),
    "protocol": pl.String(),
    "bytes": pl.Int32(),
    "ts": pl.Datetime("us"),
}
"""Columns of a packet: whose, tcp or udp or icmp, how large, when."""

_PROTOCOLS = pl.Series(["tcp", "udp", "icmp"], dtype=pl.String)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packets:
    """A made-up stream of packets, a pure function of its fields.

    Event time ascends evenly from `first` over `hours`. Half of the packets are those of a
    sixteenth of the clients, and with each hour of the day others are the busy ones: the centre of
    activity goes round the clients once a day. A tcp packet is a bare acknowledgement or a full one
    or in between, and a client that sends large packets does so for an hour.

    >>> packets = Packets(rows=1_000)
    >>> packets.frame(0, 1_000).equals(pl.concat([packets.frame(0, 7), packets.frame(7, 993)]))
    True
    """

    rows: int
    clients: int = 16_000
    hours: float = 24.0
    seed: int = 0
    first: datetime = datetime(2026, 1, 1)

    def __post_init__(self) -> None:
        """Refuse fields that no stream could have."""
        if self.rows < 1 or self.clients < 1 or self.hours <= 0:
            raise ValueError(
                f"too small; rows={self.rows!r} and clients={self.clients!r} (at least 1), "
                f"hours={self.hours!r} (above 0)"
            )
        micros(self.first)

    def frame(self, offset: int, rows: int) -> pl.DataFrame:
        """Return rows `offset` to `offset + rows`, cut at the end of the stream."""
        number = row_numbers(offset, rows, self.rows)
        since = evenly(number, round(self.hours * HOUR), self.rows)
        hour = (since + micros(self.first)) // HOUR
        client = self._clients(number, hour)
        kind = np.minimum(2, skewed(number, self.seed, 3, 4))
        columns = {
            "client": client,
            "protocol": _PROTOCOLS.gather(kind),
            "bytes": self._sizes(number, client, hour, kind),
            "ts": since + micros(self.first),
        }
        return pl.DataFrame(columns).cast(PACKET_SCHEMA)  # type: ignore[arg-type]  # str keys

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write the stream as Parquet files in event-time order; skip those already there.

        Raises:
            FileExistsError: the folder holds packets made with other fields.
        """
        return write_stream(self, folder, files, name="packets")

    def _clients(self, number: I64, hour: I64) -> I64:
        """Return clients: the fourth power of a uniform draw, moved on by the hour."""
        u = uniform(number, self.seed, 1)
        near = (u * u * u * u * self.clients).astype(np.int64)
        return (near + hour % 24 * self.clients // 24) % self.clients

    def _sizes(self, number: I64, client: I64, hour: I64, kind: I64) -> I64:
        """Return bytes: 40 or 1500 or in between for tcp, at most 512 for others."""
        full = draw(client + hour * self.clients, self.seed, 4, 100)
        luck = draw(number, self.seed, 5, 100)
        between = 41 + draw(number, self.seed, 6, 1459)
        tcp = np.where(luck < full, 1500, np.where(luck % 2 == 0, 40, between))
        return np.where(kind == 0, tcp, 28 + between % 485)
