"""Persons, auctions and bids: the three streams of Nexmark's online auction house.

The law this module keeps: a row depends on its number and on the fields of its stream, and on
nothing else. Of fifty events one is a person, three are auctions and 46 are bids, in this order.
"""

import string
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from penstock.workloads.draws import I64, draw, micros, mix, names, row_numbers, uniform
from penstock.workloads.files import write_stream

PERSON_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.Int64(),
    "name": pl.String(),
    "email": pl.String(),
    "credit_card": pl.String(),
    "city": pl.String(),
    "state": pl.String(),
    "ts": pl.Datetime("us"),
    "extra": pl.String(),
}
"""Columns of a person who registers."""

AUCTION_SCHEMA: dict[str, pl.DataType] = {
    "id": pl.Int64(),
    "item": pl.String(),
    "description": pl.String(),
    "initial_bid": pl.Int64(),
    "reserve": pl.Int64(),
    "ts": pl.Datetime("us"),
    "expires": pl.Datetime("us"),
    "seller": pl.Int64(),
    "category": pl.Int64(),
    "extra": pl.String(),
}
"""Columns of an auction that opens; prices are whole cents."""

BID_SCHEMA: dict[str, pl.DataType] = {
    "auction": pl.Int64(),
    "bidder": pl.Int64(),
    "price": pl.Int64(),
    "channel": pl.String(),
    "url": pl.String(),
    "ts": pl.Datetime("us"),
    "extra": pl.String(),
}
"""Columns of a bid: on what, by whom, cents, through which channel and page, when."""

GROUP = 50
"""Events after which the pattern of persons, auctions and bids begins again."""
FIRST_ID = 1000
FIRST_CATEGORY = 10
CATEGORIES = 5
HOT_BATCH = 100
"""One of so many auctions, sellers and bidders in a row is the hot one of its time."""
LEAD = 10
"""Ids that are not there yet and are used already: the events come in another order."""
CHANNELS = 10_000
MILLISECOND = 1_000

_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_FIRST_NAMES = ("Ada", "Blaise", "Carl", "Emmy", "Grace", "Kurt", "Mary", "Niels", "Rosa", "Sofia")
_LAST_NAMES = ("Abel", "Bauer", "Costa", "Dahl", "Evans", "Fox", "Garcia", "Hahn", "Ivanov")
_STATES = pl.Series(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES = pl.Series(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle",
     "Kent", "Cheyenne"]
)  # fmt: skip
_NAMES = pl.Series([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
_LETTERS = np.frombuffer((string.ascii_lowercase * 10 + " ").encode(), dtype=np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class _House:
    """What the streams of one auction house have in common.

    On average `per_second` events come in a second of event time, beginning with `first`; times are
    whole milliseconds. Every tenth event comes late, by less than `disorder_seconds`: rows are in
    the order in which they arrive. All but one in `hot_auctions` bids are for a hot auction, all
    but one in `hot_bidders` by a hot bidder, and all but one in `hot_sellers` auctions are a hot
    seller's. The other bids are for one of the newest `in_flight` auctions, which is how many are
    open on average; other bidders and sellers are among the newest `active` persons.
    """

    rows: int
    seed: int = 0
    per_second: float = 10_000.0
    first: datetime = datetime(2025, 12, 31, 23, 59)
    disorder_seconds: float = 3.0
    hot_auctions: int = 2
    hot_bidders: int = 4
    hot_sellers: int = 4
    in_flight: int = 100
    active: int = 1_000

    def __post_init__(self) -> None:
        """Refuse fields that no stream could have."""
        ratios = ("rows", "hot_auctions", "hot_bidders", "hot_sellers", "in_flight", "active")
        small = {name: getattr(self, name) for name in ratios if getattr(self, name) < 1}
        if small or self.per_second <= 0 or self.disorder_seconds < 0:
            raise ValueError(
                f"too small; at least 1: {small!r}; per_second={self.per_second!r} (above 0), "
                f"disorder_seconds={self.disorder_seconds!r} (at least 0)"
            )
        micros(self.first)

    @property
    def delay(self) -> str:
        """How far behind the highest time a row may come."""
        return f"{round(self.disorder_seconds * 1000)} milliseconds"

    @property
    def horizon_ms(self) -> int:
        """How long an auction is open on average; at most twice as long."""
        return max(1, round(self.in_flight * GROUP / 3 * 1000 / self.per_second))

    @property
    def reach(self) -> str:
        """What is surely longer than any event and one that it refers to are apart.

        A bid and its auction, a bid or an auction and its person, the beginning and the end of an
        auction.
        """
        persons = (max(self.active, HOT_BATCH) + LEAD) * GROUP
        auctions = (max(self.in_flight, HOT_BATCH) + LEAD) * GROUP / 3
        events = max(persons, auctions, 2 * self.in_flight * GROUP / 3)
        return f"{2 + int(events / self.per_second + self.disorder_seconds)} seconds"

    def _times(self, event: I64) -> I64:
        """Return microseconds since 1970: when an event happened, which is not when it came."""
        since = (event * (1000.0 / self.per_second)).astype(np.int64)
        within = max(1, round(self.disorder_seconds * 1000))
        late = np.where(draw(event, self.seed, 1, 10) == 0, draw(event, self.seed, 2, within), 0)
        return micros(self.first) + (since - late) * MILLISECOND

    def _persons(self, event: I64, column: int, hot: int, place: int) -> I64:
        """Return ids of persons, most of them the hot one: of each hundred the one at a place."""
        known = event // GROUP + 1
        near = np.minimum(known, self.active)
        any_of = (uniform(event, self.seed, column) * (near + LEAD)).astype(np.int64)
        chosen = (known - 1) // HOT_BATCH * HOT_BATCH + place
        is_hot = draw(event, self.seed, column + 1, hot) > 0
        return FIRST_ID + np.where(is_hot, chosen, known - near + any_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind(_House):
    """One of the three streams: rows by their number, and files of them."""

    share: ClassVar[int]
    """How many of fifty events are of this kind."""
    place: ClassVar[int]
    """Which of fifty is the first of them."""

    def frame(self, offset: int, rows: int) -> pl.DataFrame:
        """Return rows `offset` to `offset + rows`, cut at the end of the stream."""
        number = row_numbers(offset, rows, self.rows)
        event = number // self.share * GROUP + self.place + number % self.share
        columns, schema = self._columns(number, event, self._times(event))
        return pl.DataFrame(columns).cast(schema)  # type: ignore[arg-type]  # str keys

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write the stream as Parquet files in the order of arrival; skip those already there.

        Raises:
            FileExistsError: the folder holds a stream made with other fields.
        """
        return write_stream(self, folder, files, name=type(self).__name__.lower())

    def _columns(
        self, number: I64, event: I64, ts: I64
    ) -> tuple[dict[str, Any], dict[str, pl.DataType]]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Persons(_Kind):
    """A made-up stream of persons who register, a pure function of its fields."""

    share: ClassVar[int] = 1
    place: ClassVar[int] = 0

    def _columns(
        self, number: I64, event: I64, ts: I64
    ) -> tuple[dict[str, Any], dict[str, pl.DataType]]:
        digits = names("", 4, 10_000)
        card = [digits.gather(draw(event, self.seed, 10 + i, 10_000)) for i in range(4)]
        who, where = (_some(event, self.seed, i, 3, 8) for i in (14, 15))
        columns = {
            "id": FIRST_ID + number,
            "name": _NAMES.gather(draw(event, self.seed, 16, len(_NAMES))),
            "email": who.str.replace_all(" ", "_") + "@" + where.str.replace_all(" ", "-") + ".com",
            "credit_card": card[0] + " " + card[1] + " " + card[2] + " " + card[3],
            "city": _CITIES.gather(draw(event, self.seed, 17, len(_CITIES))),
            "state": _STATES.gather(draw(event, self.seed, 18, len(_STATES))),
            "ts": ts,
            "extra": _some(event, self.seed, 19, 100, 160),
        }
        return columns, PERSON_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Auctions(_Kind):
    """A made-up stream of auctions that open, a pure function of its fields."""

    share: ClassVar[int] = 3
    place: ClassVar[int] = 1

    def _columns(
        self, number: I64, event: I64, ts: I64
    ) -> tuple[dict[str, Any], dict[str, pl.DataType]]:
        length = 1 + draw(event, self.seed, 20, 2 * self.horizon_ms)
        initial = _prices(event, self.seed, 21)
        columns = {
            "id": FIRST_ID + number,
            "item": _some(event, self.seed, 23, 3, 20),
            "description": _some(event, self.seed, 24, 3, 100),
            "initial_bid": initial,
            "reserve": initial + _prices(event, self.seed, 25),
            "ts": ts,
            "expires": ts + length * MILLISECOND,
            "seller": self._persons(event, 27, self.hot_sellers, place=0),
            "category": FIRST_CATEGORY + draw(event, self.seed, 29, CATEGORIES),
            "extra": _some(event, self.seed, 30, 320, 480),
        }
        return columns, AUCTION_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Bids(_Kind):
    """A made-up stream of bids, a pure function of its fields."""

    share: ClassVar[int] = 46
    place: ClassVar[int] = 4

    def _columns(
        self, number: I64, event: I64, ts: I64
    ) -> tuple[dict[str, Any], dict[str, pl.DataType]]:
        channels, urls = _pages(self.seed)
        other = len(_HOT_CHANNELS) + draw(event, self.seed, 40, CHANNELS)
        hot = draw(event, self.seed, 41, len(_HOT_CHANNELS))
        page = np.where(draw(event, self.seed, 42, 2) == 0, hot, other)
        columns = {
            "auction": self._auctions(event),
            "bidder": self._persons(event, 43, self.hot_bidders, place=1),
            "price": _prices(event, self.seed, 45),
            "channel": channels.gather(page),
            "url": urls.gather(page),
            "ts": ts,
            "extra": _some(event, self.seed, 47, 54, 82),
        }
        return columns, BID_SCHEMA

    def _auctions(self, event: I64) -> I64:
        """Return ids of auctions: the hot one, or any of the newest and some that come soon."""
        newest = event // GROUP * Auctions.share + Auctions.share - 1
        oldest = np.maximum(newest - self.in_flight, 0)
        width = newest - oldest + 1 + LEAD
        any_of = oldest + (uniform(event, self.seed, 48) * width).astype(np.int64)
        is_hot = draw(event, self.seed, 49, self.hot_auctions) > 0
        return FIRST_ID + np.where(is_hot, newest // HOT_BATCH * HOT_BATCH, any_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Market(_House):
    """All three streams of an auction house, of which `rows` is the number of events.

    >>> market = Market(rows=1_000)
    >>> {name: stream.rows for name, stream in market.parts.items()}
    {'person': 20, 'auction': 60, 'bid': 920}
    """

    @property
    def parts(self) -> dict[str, _Kind]:
        """The streams by name."""
        groups, rest = divmod(self.rows, GROUP)
        shared = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rows"}
        kinds = {"person": Persons, "auction": Auctions, "bid": Bids}
        counts = {
            name: groups * kind.share + min(max(rest - kind.place, 0), kind.share)
            for name, kind in kinds.items()
        }
        return {name: kinds[name](rows=rows, **shared) for name, rows in counts.items() if rows}

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write each stream to a folder of its name; skip files already there.

        Raises:
            FileExistsError: the folder holds streams made with other fields.
        """
        parts = self.parts.items()
        return [path for name, part in parts for path in part.write(Path(folder) / name, files)]


def side_input(rows: int = 10_000) -> pl.DataFrame:
    """Return the table that query 13 looks into: a text for each key.

    >>> side_input(2).rows()
    [(0, 'value 0'), (1, 'value 1')]
    """
    key = pl.int_range(rows, dtype=pl.Int64, eager=True).alias("key")
    return pl.DataFrame({"key": key, "value": "value " + key.cast(pl.String)})


def _prices(event: I64, seed: int, column: int) -> I64:
    """Return cents: six decades equally often, from 1 to 1 000 000 dollars."""
    decade = np.power(10, draw(event, seed, column, 6))
    return (decade * (100.0 + 900.0 * uniform(event, seed, column + 1))).astype(np.int64)


def _some(event: I64, seed: int, column: int, least: int, most: int) -> pl.Series:
    """Return texts of `least` to `most` - 1 letters."""
    pool = _texts(seed, column, least, most)
    return pool.gather(draw(event, seed, column, len(pool)))


@lru_cache(maxsize=32)
def _texts(seed: int, column: int, least: int, most: int, count: int = 4_096) -> pl.Series:
    """Return a pool of texts: rows have one of them each, which is much faster than new ones."""
    number = np.arange(count * most, dtype=np.int64)
    letters = _LETTERS[(mix(number, seed, 100 + column) % np.uint64(len(_LETTERS))).astype(np.intp)]
    lengths = least + draw(np.arange(count), seed, 200 + column, most - least)
    rows = (bytes(row[:n]) for row, n in zip(letters.reshape(count, most), lengths, strict=True))
    return pl.Series([row.decode().strip().ljust(least, "x") for row in rows], dtype=pl.String)


@lru_cache(maxsize=4)
def _pages(seed: int) -> tuple[pl.Series, pl.Series]:
    """Return channels and their pages; nine of ten that are not hot have an id in the address."""
    number = np.arange(len(_HOT_CHANNELS) + CHANNELS, dtype=np.int64)
    dirs = [_some(number, seed, column, 3, 6).str.replace_all(" ", "_") for column in (50, 51, 52)]
    other = number - len(_HOT_CHANNELS)
    has_id = (other >= 0) & (draw(number, seed, 53, 10) > 0)
    ids = "&channel_id=" + pl.Series(draw(number, seed, 54, 2**31)).cast(pl.String)
    tail = pl.select(pl.when(pl.Series(has_id)).then(ids).otherwise(pl.lit(""))).to_series()
    urls = "https://auctions.example/" + dirs[0] + "/" + dirs[1] + "/" + dirs[2]
    channels = [*_HOT_CHANNELS, *(f"channel-{i}" for i in range(CHANNELS))]
    return pl.Series(channels, dtype=pl.String), urls + "/item.htm?query=1" + tail
