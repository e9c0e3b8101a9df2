"""The generated parts of the applications' pages: code, plans and results, from the code itself.

The law this module keeps: a page's parts are what `python -m bench.pages` writes, and a test
compares them. A part begins with `<!-- code: name -->`, `<!-- sql: name -->`,
`<!-- plan: name -->`, `<!-- rows: name -->` or `<!-- figures: name -->` and ends with
`<!-- end -->`. Figures are those of a file beside the page, which a benchmark gave with `--json`.
"""

import inspect
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import penstock as ps
from bench.local import run_streams, unwrap
from bench.report import rate
from penstock.workloads import book, cdr, exchange, geography, network, nexmark, tpcxbb, winners
from penstock.workloads.files import Made, Several, delay_of, parts_of
from penstock.workloads.nexmark_sql import TEXTS

if TYPE_CHECKING:
    from penstock.query.stream import Sinks, Stream

PAGES = Path(__file__).resolve().parents[1] / "docs" / "applications"
SHOWN = 5
"""Rows of a result that a page shows."""
_PART = re.compile(r"<!-- (code|sql|plan|rows|figures): ([\w.]+) -->\n.*?<!-- end -->", re.DOTALL)
_MODULES: dict[str, Any] = {
    "book": book, "cdr": cdr, "exchange": exchange, "geography": geography, "network": network,
    "nexmark": nexmark, "tpcxbb": tpcxbb, "winners": winners,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A query on a small input, whose plan and results a page shows."""

    made: Made | Several
    streams: "Callable[[Any], Mapping[str, Stream]]"

    def query(self) -> "Sinks":
        """Return the query from and to folders."""
        kind = type(self.made).__name__.lower().replace("callrecords", "calls")
        inputs = {
            name: ps.read_parquet(
                f"{name or kind}/", time="ts", schema=dict(part.frame(0, 1).schema),
                delay=delay_of(part),
            )
            for name, part in parts_of(self.made).items()
        }  # fmt: skip
        streams = self.streams(unwrap(inputs)).items()
        first, *others = (stream.write_parquet(f"{name}/") for name, stream in streams)
        return first.also(*others)


def _one(name: str, made: Any, query: "Callable[..., Stream]", *more: Any) -> "dict[str, Example]":
    short = name.split(".")[-1]
    return {name: Example(made=made, streams=lambda rows: {short: query(rows, *more)})}


def _nexmark(name: str) -> "dict[str, Example]":
    query = nexmark.QUERIES[name]

    def streams(by_name: "Mapping[str, Stream]") -> "dict[str, Stream]":
        return {name: query(nexmark.House(**by_name, within=_MARKET.reach))}

    return {f"nexmark.{name}": Example(made=_MARKET, streams=streams)}


_MARKET = nexmark.Market(rows=6_000, per_second=60.0)
_CALLS = cdr.CallRecords(rows=20_000, callers=500, districts=10, hours=0.5)
_SETTLED = cdr.CallRecords(rows=20_000, callers=500, settled=True, away_one_in=50)
_HEAVY = cdr.CallRecords(rows=20_000, callers=500, hot_callers=3, hours=2.0)
_CLICKS = tpcxbb.Clicks(rows=30_000, users=1_000, days=5.0)
_SALES = tpcxbb.Sales(rows=30_000, days=10.0)
_ORDERS = exchange.Orders(rows=20_000, stocks=20, traders=50, per_second=15.0, hot_stocks=3)

EXAMPLES: dict[str, Example] = {
    **_one("cdr.calls_by_district", _CALLS, cdr.calls_by_district),
    **_one("cdr.durations", _CALLS, cdr.durations),
    **_one("cdr.nearby_calls", _CALLS, cdr.nearby_calls),
    **_one("cdr.overlapping_calls", _CALLS, cdr.overlapping_calls),
    **_one("cdr.heavy_customers", _HEAVY, cdr.heavy_customers),
    **_one("cdr.high_mobility", _SETTLED, cdr.high_mobility),
    "exchange": Example(
        made=_ORDERS, streams=lambda rows: exchange.streams(rows, _ORDERS.base_prices)
    ),
    **_one("tpcxbb.q1", _SALES, tpcxbb.q1),
    **_one("tpcxbb.q2", _CLICKS, tpcxbb.q2),
    **_one("tpcxbb.q3", _CLICKS, tpcxbb.q3),
    **_one("tpcxbb.q4", _CLICKS, tpcxbb.q4),
    **_one("tpcxbb.q15", _SALES, tpcxbb.q15, tpcxbb.items(_SALES.items, _SALES.categories)),
    **_one("network.packet_sizes", network.Packets(rows=20_000, clients=50), network.packet_sizes),
    **{key: example for name in nexmark.QUERIES for key, example in _nexmark(name).items()},
}


def written(page: str) -> str:
    """Return a page with all its parts written anew."""
    return _PART.sub(lambda part: _written(part[1], part[2]), page)


def _written(kind: str, name: str) -> str:
    write = {"code": code, "sql": sql, "plan": plan, "rows": rows, "figures": figures}
    body = write[kind](name)
    return f"<!-- {kind}: {name} -->\n{body}\n<!-- end -->"


def code(name: str) -> str:
    """Return the source of a function or a class."""
    module, thing = name.split(".")
    found = inspect.getsource(getattr(_MODULES[module], thing))
    return f"```python\n{found.rstrip()}\n```"


def sql(name: str) -> str:
    """Return a query in SQL."""
    return f"```sql\n{TEXTS[name.split('.')[-1]].strip()}\n```"


def figures(name: str) -> str:
    """Return a table of rows a second: a line for each query, a column for each engine."""
    found = json.loads((PAGES / f"{name}.json").read_text())
    engines = list(dict.fromkeys(row["engine"] for row in found))
    cells = {(row["query"], row["engine"]): _cell(row) for row in found}
    lines = [["query", "rows", *engines], ["---"] * (2 + len(engines))]
    for query, count in {row["query"]: row["rows"] for row in found}.items():
        lines.append([query, f"{count:,}", *(cells.get((query, name), "") for name in engines)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(row: Mapping[str, Any]) -> str:
    if row["rows_per_second"] is None:
        return "–"
    return rate(row["rows_per_second"]) + ("" if row["equal"] else " (other rows)")


def plan(name: str) -> str:
    """Return the plan of an example's query as a picture."""
    return f"```mermaid\n{EXAMPLES[name].query().explain(mermaid=True)}\n```"


def rows(name: str) -> str:
    """Return the first rows of a result, by time, and how many there are."""
    example = name if name in EXAMPLES else name.split(".")[0]
    found = _results(example)[name.split(".")[-1]]
    shown = _in_order(found).head(SHOWN)
    with pl.Config(
        tbl_formatting="ASCII_MARKDOWN",
        tbl_hide_column_data_types=True,
        tbl_hide_dataframe_shape=True,
        tbl_cols=-1,
        tbl_width_chars=1000,
        float_precision=3,
    ):
        return f"{shown}\n\n{found.height:,} rows in all."


def _in_order(found: pl.DataFrame) -> pl.DataFrame:
    """Return rows by window or time, then by their other columns."""
    first = [name for name in ("window_end", "ts_right", "at", "ts") if name in found.columns]
    flat = [name for name, dtype in found.schema.items() if not dtype.is_nested()]
    return found.sort([*first, *({"rank"} & set(flat)), *flat])


@cache
def _results(example: str) -> dict[str, pl.DataFrame]:
    found = EXAMPLES[example]
    with tempfile.TemporaryDirectory() as folder:
        return run_streams(found.made, found.streams, Path(folder))


def main() -> None:
    """Write all pages anew."""
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(written(page.read_text()))


if __name__ == "__main__":
    main()
