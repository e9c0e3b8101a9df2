"""CSV as it is found: separators, nulls, encodings, comments; and lines in dead letters."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import CheckpointError, QueryError
from penstock.compiler import compile_query
from penstock.driver.outputs import read_side_output
from penstock.driver.pinned import meaning
from penstock.query.nodes import CsvFormat, Files
from penstock.sources.files import ReadFile, read_one
from penstock.sql.script import load_script
from penstock.testing.runner import LocalRun

SCHEMA = {"k": pl.String(), "x": pl.Float64()}


def read(path: Path, text: str | bytes, form: str = "csv", **options: Any) -> ReadFile:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    csv = CsvFormat(**options)
    return read_one(form, str(path), SCHEMA, 100, csv=csv)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("k;x\na;1.5\nb;\n", {"separator": ";"}),
        ("k,x\na,1.5\nb,NA\n", {"null_values": ("NA", "-")}),
        ("k,x\na,1.5\nb,-\n", {"null_values": ("NA", "-")}),
        ("k;x\na;1,5\nb;\n", {"separator": ";", "decimal_comma": True}),
        ("# one\nk,x\n# two\na,1.5\nb,\n", {"comment": "#"}),
        ("made by\nhand, again\nk,x\na,1.5\nb,\n", {"skip_rows": 2}),
        ("k,x\n'a',1.5\nb,\n", {"quote": "'"}),
        ("a,1.5\nb,\n", {"header": False, "columns": ("k", "x")}),
        ("k\tx\na\t1.5\nb\t\n", {"separator": "\t"}),
        ("\ufeffk,x\na,1.5\nb,\n", {}),
        ("k,x\r\na,1.5\r\nb,\r\n", {}),
        ("k,more,x,y\na,1,1.5,NA\nb,2,,3\n", {}),
    ],
)
def test_options(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    found = read(tmp_path / "f.csv", text, **options)
    assert found.rejected == ()
    assert found.rows.rows() == [("a", 1.5), ("b", None)]
    bad = read(tmp_path / "f.csv", text + text.splitlines()[-1].replace("b", '"'), **options)
    assert bad.rows["k"].to_list()[:2] == ["a", "b"]  # the line by line reader has the options, too


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf8"])
def test_encodings_and_packed_files(tmp_path: Path, encoding: str, ending: str) -> None:
    data = "k,x\nZürich,1\n".encode(encoding)
    path = tmp_path / f"f{ending}"
    found = read(path, gzip.compress(data) if ending.endswith("gz") else data, encoding=encoding)
    assert found.rows.rows() == [("Zürich", 1.0)]
    assert found.rejected == ()


def test_zstd_and_json(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "f.ndjson.zst"
    data = pa.Codec("zstd").compress(b'{"k": "a", "x": 1}\n{"k": \n', asbytes=True)
    found = read(path, data, "ndjson")
    assert found.rows.rows() == [("a", 1.0)]
    assert [(one.line, one.row) for one in found.rejected] == [(2, '{"k": ')]


def test_a_value_that_does_not_fit_has_its_line(tmp_path: Path) -> None:
    text = 'k,x\na,1\n"b\nb",2\n\nc,three\nd,4\ne,5,6\n'
    found = read(tmp_path / "f.csv", text)
    assert found.rows.rows() == [("a", 1.0), ("b\nb", 2.0), ("d", 4.0)]
    assert sorted((one.line, one.row) for one in found.rejected) == [(6, "c,three"), (8, "e,5,6")]
    alone = read(tmp_path / "f.csv", text.removesuffix("e,5,6\n"))
    assert [(one.line, one.row) for one in alone.rejected] == [(6, "c,three")]
    assert alone.rows.rows() == found.rows.rows()  # blank lines are no rows, either way


def test_json_lines_have_numbers(tmp_path: Path) -> None:
    text = '{"k": "a", "x": 1}\n\n{"k": "b", "x": "two"}\n{"k": "c", "x": 3}\n'
    found = read(tmp_path / "f.ndjson", text, "ndjson")
    assert [one.line for one in found.rejected] == [3]
    assert found.rejected[0].row == '{"k": "b", "x": "two"}'
    assert found.rows["k"].to_list() == ["a", "c"]


def test_bytes_that_are_no_text_cost_their_line(tmp_path: Path) -> None:
    found = read(tmp_path / "f.csv", b"k,x\na,1\n\xff\xfe,2\nc,3\n")
    assert found.rows.rows() == [("a", 1.0), ("c", 3.0)]
    (bad,) = found.rejected
    assert (bad.line, bad.reason) == (3, "the line has bytes that are no utf8")


def test_dead_letters_have_the_line(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(
        "k,x,ts\na,1,2024-01-01\nb,?,2024-01-01\n\nc,3,\nd,4,2024-01-01\n"
    )
    stream = ps.read_csv(
        tmp_path / "in", time="ts", schema={"k": pl.String, "x": pl.Int64, "ts": pl.Datetime}
    )
    run = LocalRun(compile_query(stream.write_memory().sinks), tmp_path / "c")
    run.files({0: [str(tmp_path / "in" / "1.csv")]})
    letters = read_side_output(run.driver.root, "dead")[0]
    assert letters.select("line", "row").rows() == [(3, "b,?,2024-01-01"), (5, "c,3,")]
    assert letters["path"].str.ends_with("1.csv").all()
    assert run.table()["k"].to_list() == ["a", "d"]


def test_wrong_options_are_told_at_once() -> None:
    with pytest.raises(QueryError) as caught:
        ps.read_csv("x", time="ts", separator="ab", encoding="klingon", header=False, skip_rows=-1)
    text = str(caught.value)
    for word in ("separator='ab'", "encoding='klingon'", "without a header", "skip_rows=-1"):
        assert word in text
    with pytest.raises(QueryError, match="another separator"):
        ps.read_csv("x", time="ts", schema={"ts": pl.Datetime}, decimal_comma=True)
    with pytest.raises(QueryError, match="patience must not be negative"):
        ps.read_csv("x", time="ts", schema={"ts": pl.Datetime}, patience="-1 second")


def test_options_are_pinned(tmp_path: Path) -> None:
    def start(**options: Any) -> None:
        stream = ps.read_csv(
            tmp_path, time="ts", schema={"k": pl.String, "ts": pl.Datetime}, **options
        )
        LocalRun(compile_query(stream.write_memory().sinks), tmp_path / "c").epoch({})

    start()
    start(patience="2 minutes", late="needed")  # these change no result
    with pytest.raises(CheckpointError, match=r"null_values=\('NA',\)"):
        start(null_values="NA")


def test_options_in_sql() -> None:
    query = load_script("""
        CREATE TABLE t (k VARCHAR, x DOUBLE, year BIGINT, ts TIMESTAMP) WITH (
            format = 'csv', path = 'in', time = 'ts', separator = ';', null_values = ('NA', '-'),
            encoding = 'latin-1', header = FALSE, comment = '#', decimal_comma = TRUE,
            partitions = ('year'), patience = '5 minutes', late = 'needed');
        SELECT k, x, year FROM t;
    """)
    ((_, source),) = compile_query(query.sinks).sources
    assert isinstance(source.reader, Files)
    assert source.reader.partitions == (("year", pl.Int64()),)
    assert source.reader.patience_us == 300_000_000
    assert not source.late_whole
    assert source.reader.csv == CsvFormat(
        separator=";", null_values=("NA", "-"), encoding="latin-1", header=False,
        columns=("k", "x", "ts"), comment="#", decimal_comma=True,
    )  # fmt: skip
    assert "partitions={'year': 'Int64'}" in meaning(compile_query(query.sinks))["source 0"]
    with pytest.raises(QueryError, match="has no option 'separator'"):
        load_script("""
            CREATE TABLE t (ts TIMESTAMP) WITH (path = 'in', time = 'ts', separator = ';');
            SELECT ts FROM t;
        """)
