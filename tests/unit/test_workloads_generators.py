"""The made-up streams: rows depend on their number alone, and have the shape that they promise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.durations import parse_duration
from penstock.workloads.auctions import (
    AUCTION_SCHEMA,
    BID_SCHEMA,
    PERSON_SCHEMA,
    Auctions,
    Bids,
    Market,
    Persons,
)
from penstock.workloads.calls import CALL_SCHEMA, CallRecords
from penstock.workloads.files import Made, delay_of
from penstock.workloads.orders import ORDER_SCHEMA, Orders
from penstock.workloads.packets import PACKET_SCHEMA, Packets
from penstock.workloads.retail import CLICK_SCHEMA, SALE_SCHEMA, Clicks, Sales, items

KINDS: dict[Any, dict[str, pl.DataType]] = {
    CallRecords: CALL_SCHEMA,
    Orders: ORDER_SCHEMA,
    Clicks: CLICK_SCHEMA,
    Sales: SALE_SCHEMA,
    Packets: PACKET_SCHEMA,
    Persons: PERSON_SCHEMA,
    Auctions: AUCTION_SCHEMA,
    Bids: BID_SCHEMA,
}
ROWS = 20_000


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(cut=st.integers(0, ROWS), seed=st.integers(0, 2**40))
def test_any_cut_has_the_same_rows(kind: Any, cut: int, seed: int) -> None:
    made: Made = kind(rows=ROWS, seed=seed)
    whole = made.frame(0, ROWS)
    assert whole.equals(pl.concat([made.frame(0, cut), made.frame(cut, ROWS)]))
    assert dict(whole.schema) == KINDS[kind]
    behind = whole["ts"].cum_max() - whole["ts"]
    assert behind.max() <= timedelta(microseconds=parse_duration(delay_of(made)))  # type: ignore[operator]  # a duration
    assert whole.null_count().sum_horizontal().item() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_is_another_stream(kind: Any) -> None:
    one, other = (kind(rows=1_000, seed=seed).frame(0, 1_000) for seed in (0, 1))
    same = sum((one.drop("ts").row(i) == other.drop("ts").row(i)) for i in range(1_000))
    assert same < 20


@pytest.mark.parametrize("kind", KINDS)
def test_files_hold_the_stream_and_refuse_another(kind: Any, tmp_path: Path) -> None:
    made: Made = kind(rows=1_000)
    paths = made.write(tmp_path, files=3)
    assert pl.read_parquet(paths).equals(made.frame(0, 1_000))
    times = [path.stat().st_mtime for path in paths]
    assert times == sorted(times)
    assert made.write(tmp_path, files=3) == paths
    with pytest.raises(FileExistsError, match="other "):
        kind(rows=1_001).write(tmp_path, files=3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [{"rows": 0}, {"first": datetime(2026, 1, 1, tzinfo=UTC)}])
def test_fields_that_cannot_be_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        kind(**{"rows": 10} | wrong)


def test_settled_callers_stay_where_they_are_unless_away() -> None:
    calls = CallRecords(rows=ROWS, callers=100, settled=True, away_one_in=50).frame(0, ROWS)
    places = calls.group_by("src").agg(pl.struct("lat", "lon").mode().len())
    home = calls.group_by("src", "lat", "lon").len().sort("len").group_by("src").last()
    assert places.height == 100
    assert 0.97 < home["len"].sum() / ROWS < 0.99


def test_orders_come_in_bursts_and_hot_stocks_change() -> None:
    orders = Orders(rows=600_000, per_second=500.0).frame(0, 600_000)
    rates = orders.group_by(pl.col("ts").dt.truncate("5s")).len()["len"]
    assert rates.max() > 4 * rates.median()  # type: ignore[operator]  # numbers
    halves = [
        half["stock"].value_counts(sort=True)["stock"][:10] for half in orders.iter_slices(300_000)
    ]
    assert len(set(halves[0]) & set(halves[1])) < 8
    prices = orders.join(Orders(rows=1).base_prices, on="stock")
    moved = (prices["price"] / prices["base"] - 1).abs()
    assert moved.max() < 0.07  # type: ignore[operator]  # numbers


def test_users_pause_for_less_and_for_more_than_an_hour() -> None:
    clicks = Clicks(rows=200_000, users=1_000).frame(0, 200_000).sort("user", "ts")
    pauses = clicks.select(pause=pl.col("ts").diff().over("user"))["pause"].drop_nulls()
    longer = (pauses > timedelta(hours=1)).mean()
    assert 0.05 < longer < 0.5  # type: ignore[operator]  # numbers
    assert set(clicks["kind"].unique()) == {"view", "cart", "purchase"}


def test_tickets_have_a_few_lines_at_one_time_and_one_store() -> None:
    tickets = (
        Sales(rows=ROWS)
        .frame(0, ROWS)
        .group_by("ticket")
        .agg(pl.len(), pl.col("ts").n_unique(), pl.col("store").n_unique())
    )
    assert tickets["len"].max() == 5
    assert tickets["ts"].max() == tickets["store"].max() == 1
    assert items(100, 7)["category"].n_unique() == 7


def test_other_clients_are_busy_at_other_hours() -> None:
    packets = Packets(rows=240_000).frame(0, 240_000)
    busy = packets.group_by(pl.col("ts").dt.hour()).agg(pl.col("client").median()).sort("ts")
    assert busy["client"].n_unique() > 12
    shares = packets.filter(pl.col("ts").dt.hour() == 0)["client"].value_counts(sort=True)
    assert shares["count"][:1_000].sum() / packets.height > 0.45 / 24


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    for events, counts in ((50, [1, 3, 46]), (1, [1]), (3, [1, 2]), (54, [2, 6, 46])):
        assert [part.rows for part in Market(rows=events).parts.values()] == counts


def test_some_auctions_bidders_and_sellers_are_hot_and_some_events_late() -> None:
    streams = {n: part.frame(0, part.rows) for n, part in Market(rows=100_000).parts.items()}
    persons, auctions, bids = streams.values()
    # The hot one of its time, of which there are as many as hundreds, gets its share of all rows.
    hot = ((bids, "auction", 0, 1 / 2), (bids, "bidder", 1, 3 / 4), (auctions, "seller", 0, 3 / 4))
    for rows, column, place, share in hot:
        assert 0.98 < ((rows[column] % 100) == place).mean() / share < 1.05  # type: ignore[operator]
    late = (bids["ts"].cum_max() > bids["ts"]).mean()
    assert 0.09 < late < 0.11  # type: ignore[operator]  # numbers
    length = (auctions["expires"] - auctions["ts"]).dt.total_milliseconds()
    assert length.min() >= 1  # type: ignore[operator]  # numbers
    assert 160 < length.mean() < 175  # type: ignore[operator]
    assert persons["id"].is_sorted()
    assert persons["id"].n_unique() == persons.height == 2_000


def test_a_bid_in_two_is_through_a_hot_channel_and_most_others_have_an_id() -> None:
    bids = Bids(rows=46_000).frame(0, 46_000)
    hot = bids["channel"].is_in(["Google", "Facebook", "Baidu", "Apple"])
    has_id = bids["url"].str.contains("&channel_id=[0-9]+$")
    assert 0.49 < hot.mean() < 0.51  # type: ignore[operator]  # numbers
    assert not (hot & has_id).any()
    assert 0.88 < has_id.filter(~hot).mean() < 0.92  # type: ignore[operator]
    decades = bids["price"].log10().floor().value_counts()
    assert sorted(decades["price"]) == [2, 3, 4, 5, 6, 7]
    assert decades["count"].min() > 46_000 / 6 * 0.9  # type: ignore[operator]
