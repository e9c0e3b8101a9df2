"""StreamCloud's figures without Spark: inputs, results there and back, pictures, pages."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from bench.streamcloud.cpu import Sample, cores_between
from bench.streamcloud.elastic_runs import FULL, Cost
from bench.streamcloud.inputs import Load, gathered, load_epochs, write_epochs
from bench.streamcloud.operators import Ramp
from bench.streamcloud.page import FOLDER, PAGE, read_results, written
from bench.streamcloud.registry import FIGURES, chosen
from bench.streamcloud.result import Machine, Panel, Result, Series
from bench.streamcloud.strategies import sizes_of
from bench.streamcloud.web import page, write_result


def a_result(kind: str = "line") -> Result:
    lines = (
        Series(name="off <b>", x=("a", "b") if kind == "stack" else (1, 2), y=(0.5, 7.0)),
        Series(name="on", x=("a", "b") if kind == "stack" else (1, 2), y=(0.25, None)),
    )
    panel = Panel(title="load", x="time", y="share", kind=kind, series=lines, levels={"UIT": 0.1})
    return Result(
        figure="20a", title="balance", claim="it is <balanced>", holds=False, by="0.2 is above 0.1",
        series=(panel, panel), parameters={"rows": 5, "rate": 1.5, "name": "x"}, notes=("a note",),
        machine=Machine.here(0.25), command="penstock bench streamcloud --figure 20a",
        seconds=3.0, quick=True,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["line", "step", "bar", "stack"])
def test_a_result_is_written_and_read_again(kind: str, tmp_path: Path) -> None:
    result = a_result(kind)
    json, png, page_file = write_result(result, tmp_path / "out")
    assert Result.read(json) == result
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert png.stat().st_size < 60_000
    assert "<svg" in page_file.read_text()


def test_a_page_stands_alone_and_has_the_numbers() -> None:
    text = page(a_result())
    assert "it is &lt;balanced&gt;" in text
    assert "<th>off &lt;b&gt;</th>" in text
    assert "<td>7</td>" in text
    assert "it does not hold" in text
    for outside in ('src="http', "<script", "<link", "@import"):
        assert outside not in text


def test_series_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2 x for 1 y"):
        Series(name="s", x=(1, 2), y=(1,))


def test_figures_are_found_by_name() -> None:
    assert [figure.name for figure in chosen("20a, 14")] == ["20a", "14"]
    assert [figure.name for figure in chosen("all")] == list(FIGURES)
    with pytest.raises(ValueError, match="no such figure: '17'; figures: 14, 15"):
        chosen("17")


def test_instances_are_shared_out() -> None:
    assert sizes_of("operator-cloud", 9, 18) == dict.fromkeys(range(9), 2)
    assert sizes_of("operator-cloud", 9, 4) == dict.fromkeys(range(9), 1)
    assert sum(sizes_of("operator-set-cloud", 4, 18).values()) == 18
    assert sizes_of("query-cloud", 4, 18) == dict.fromkeys(range(4), 18)


def test_the_page_is_what_its_json_says() -> None:
    results = read_results()
    assert PAGE.read_text() == written(results), "run python -m bench.streamcloud.page"
    for result in results:
        picture = FOLDER / f"figure-{result.figure}.png"
        assert picture.stat().st_size < 60_000


def test_epochs_have_their_loads_and_ascend_in_time(tmp_path: Path) -> None:
    loads = [Load(rows=500), Load(rows=2_000, mean=6_000, deviation=25.0)]
    even, skewed = load_epochs(loads, seconds=2.0)
    assert (even.height, skewed.height) == (500, 2_000)
    callers = skewed["src"].str.slice(3).cast(pl.Int64)
    assert abs(float(callers.mean() or 0) - 6_000) < 5  # type: ignore[arg-type]  # a number
    assert 20 < float(callers.std() or 0) < 30  # type: ignore[arg-type]
    assert even["ts"].max() < skewed["ts"].min()  # type: ignore[operator]
    assert write_epochs(tmp_path / "in", [even, skewed]) == 2_500
    files = sorted((tmp_path / "in").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [pl.read_parquet(path).height for path in files] == [500, 2_000]


def test_the_same_loads_give_the_same_rows() -> None:
    loads = [Load(rows=50, mean=100.0, deviation=3.0)]
    (one,), (two,), (other,) = (list(load_epochs(loads, seed=seed)) for seed in (1, 1, 2))
    assert one.equals(two)
    assert not one.equals(other)


def test_a_load_grows_level_by_level() -> None:
    assert Ramp(every=1.0, levels=3, epochs=2, warm=1).rows(5, 9) == [5, 5, 5, 10, 10, 20, 20]
    ones = [pl.DataFrame({"x": [i]}) for i in range(4)]
    assert [part["x"].to_list() for part in gathered(ones, [1, 3])] == [[0], [1, 2, 3]]


def test_rows_for_a_utilisation() -> None:
    cost = Cost(fixed_seconds=0.1 * FULL.capacity_seconds, row_seconds=1e-5)
    assert cost.rows(FULL, 0.6, 4) == round(4 * 0.5 * FULL.capacity_seconds / 1e-5)


def test_processor_time_between_samples() -> None:
    samples = [Sample(at=float(i), tree=0.5 * i, machine=1.5 * i) for i in range(11)]
    assert cores_between(samples, 2.25, 7.75) == (0.5, 1.0)
