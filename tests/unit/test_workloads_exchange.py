"""The stock exchange against a plain book, order by order, and batch statistics."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.batch import trading
from bench.compare import frame_difference
from bench.local import run_streams
from penstock.workloads.book import BOOK_STATE, match_orders
from penstock.workloads.exchange import STREAMS, Orders, streams
from penstock.workloads.orders import ORDER_SCHEMA

MADE = Orders(rows=20_000, stocks=20, traders=50, per_second=15.0, hot_stocks=3)
LEAST = {
    "transactions": 10_000, "moving_averages": 1_000, "vwap": 400, "composite_index": 1_000,
    "volatility": 400, "volumes": 2_000, "spreads": 400, "price_alarms": 5, "price_jumps": 5,
    "volume_spikes": 5, "wash_trades": 100, "big_trades": 5,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("instances", [1, 3])
def test_all_streams(instances: int, tmp_path: Path) -> None:
    got = run_streams(
        MADE, lambda rows: streams(rows, MADE.base_prices), tmp_path, instances=instances
    )
    wanted = trading.all_streams(MADE.frame(0, MADE.rows).lazy(), MADE.base_prices)
    assert set(got) == set(wanted) == set(STREAMS) == set(LEAST)
    for name in STREAMS:
        odd = frame_difference(got[name], wanted[name])
        assert not odd, f"{name}: {odd}"
        assert wanted[name].height >= LEAST[name], f"{name}: {wanted[name].height}"


orders = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["buy", "sell"]), st.integers(95, 105),
        st.integers(1, 5), st.integers(0, 3), st.integers(0, 40),
    ),
    max_size=60,
)  # fmt: skip


@given(drawn=orders, cuts=st.lists(st.integers(0, 60), max_size=4))
def test_any_cut_of_any_orders_trades_as_a_plain_book(
    drawn: list[tuple[int, str, int, int, int, int]], cuts: list[int]
) -> None:
    now, rows = datetime(2026, 1, 1), []
    for number, (stock, side, price, volume, trader, seconds) in enumerate(drawn):
        now += timedelta(seconds=seconds)
        rows.append((number, stock, side, price, volume, trader, now))
    frame = pl.DataFrame(rows, schema=ORDER_SCHEMA, orient="row")
    wanted = trading.trades(frame)
    books = pl.DataFrame(schema={"stock": pl.Int32(), **BOOK_STATE})
    found = []
    for begin, end in pairwise(sorted({0, len(rows), *[min(c, len(rows)) for c in cuts]})):
        part = frame[begin:end].sort("stock", maintain_order=True).with_row_index("__row")
        here = books.join(part, on="stock", how="semi")
        trades, left = match_orders(part, here, 60_000_000)
        assert trades["at"].equals(
            trades.join(part, on="__row", maintain_order="left")["ts"], check_names=False
        )
        books = pl.concat([books.join(part, on="stock", how="anti"), left])
        found.append(trades.drop("__row"))
    got = pl.concat([wanted.clear(), *found], how="vertical")
    odd = frame_difference(got, wanted) if got.height or wanted.height else ""
    assert not odd, odd


def test_books_stay_small() -> None:
    made = Orders(rows=200_000)
    books = pl.DataFrame(schema={"stock": pl.Int32(), **BOOK_STATE})
    part = made.frame(0, 200_000).sort("stock", maintain_order=True).with_row_index("__row")
    _, books = match_orders(part, books, 60_000_000)
    depth = books["bid_rank"].list.len() + books["ask_rank"].list.len()
    assert depth.max() < 1_000  # type: ignore[operator]  # a number
    assert 5 < depth.mean() < 200  # type: ignore[operator]  # a number
