"""The judge of a rescale storm: it finds what a storm could do to the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest

from faults.storm import Tally, table
from faults.storm_workload import Found, batch_found, judge, run_static, write_file

FILES = 15
Change = Callable[[Found], Found]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Found]:
    folder = tmp_path_factory.mktemp("storm")
    (folder / "calls").mkdir()
    for number in range(FILES):
        write_file(folder / "calls", number, seed=7)
    return run_static(folder / "calls", folder / "static"), batch_found(folder / "calls")


def test_the_static_run_is_the_batch(answers: tuple[Found, Found]) -> None:
    static, batch = answers
    assert judge(static, static, batch).right
    assert min(static.sums.height, static.pairs.height) > 100
    assert static.late.height > 10
    twice = static.totals["read"] - FILES * 120
    assert twice > 100, "some rows come twice, or there is nothing to keep once"


@pytest.mark.parametrize(
    ("change", "lost", "duplicated"),
    [
        (lambda f: replace(f, sums=f.sums[1:]), 2, 0),
        (lambda f: replace(f, pairs=pl.concat([f.pairs, f.pairs[:2]])), 0, 4),
        (lambda f: replace(f, late=f.late[:-1]), 2, 0),
        (lambda f: replace(f, sums=f.sums.with_columns(n=pl.col("n") + (pl.col("k") == "k07"))),
         None, None),
    ],
    ids=["lost", "twice", "late", "wrong"],
)  # fmt: skip
def test_odd_rows_are_counted(
    answers: tuple[Found, Found], change: Change, lost: int | None, duplicated: int | None
) -> None:
    static, batch = answers
    verdict = judge(change(static), static, batch)
    assert not verdict.right
    assert verdict.remarks
    if lost is not None:
        assert (verdict.lost, verdict.duplicated) == (lost, duplicated)
    else:
        assert verdict.lost == verdict.duplicated > 0


def test_another_order_is_noticed(answers: tuple[Found, Found]) -> None:
    static, batch = answers
    verdict = judge(replace(static, sums=static.sums.reverse()), static, batch)
    assert (verdict.lost, verdict.duplicated, verdict.differing) == (0, 0, 1)


def test_other_counts_are_noticed(answers: tuple[Found, Found]) -> None:
    static, batch = answers
    counted = {**static.totals, "read": static.totals["read"] + 1}
    assert judge(replace(static, totals=counted), static, batch).differing == 2


def test_a_query_that_ends_by_itself_is_a_failure() -> None:
    tally = Tally(ended=["out of memory"])
    assert (Tally().passed, tally.passed) == (True, False)
    assert table(tally.as_dict()).row_count > 5
