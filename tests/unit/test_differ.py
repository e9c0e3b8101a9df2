"""SQL by Penstock and by DuckDB: equal, or different by a name that the guide explains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlglot import exp

from bench.differ import __main__ as command
from bench.differ.aggregates import AGGREGATES
from bench.differ.compare import DIFFERS, EQUAL, REFUSED, Comparison, Finding
from bench.differ.forms import FORMS
from bench.differ.generator import Statement, Tree, leaf, smaller, statements
from bench.differ.meant import CONSTANTS, MEANT, NULLS
from bench.differ.report import Report
from bench.differ.table import KINDS, rows
from bench.differ.values import Failed, same
from penstock.query.functions import FUNCTIONS
from penstock.query.scalars import reading
from penstock.query.scalars.translate import Translator

GUIDE = Path(__file__).parents[2] / "docs/sql.md"


def tree(text: str, *kinds: str, columns: tuple[str, ...] = ()) -> Tree:
    """Return a form of the grammar over columns."""
    form = next(f for f in (*FORMS, *AGGREGATES) if f.text == text and f.parts == kinds)
    return Tree(form=form, parts=tuple(leaf(k, c) for k, c in zip(kinds, columns, strict=True)))


def judge(*trees: Tree, grouped: bool = False, seed: int = 1) -> list[Finding]:
    with Comparison(rows(seed=seed)) as comparison:
        return list(comparison.run(Statement(tree=t, grouped=grouped) for t in trees))


@pytest.mark.slow
def test_random_statements_are_equal_or_differ_by_name() -> None:
    with Comparison(rows(seed=11)) as comparison:
        report = Report.of(comparison.run(statements(320, seed=11)))
    assert not report.differing, report.to_text()
    assert report.outcomes.total() == 320
    assert report.outcomes[EQUAL] > 250
    names = {part for name in report.meant for part in name.split(" + ")}
    assert names <= MEANT


def test_a_seed_gives_the_same_statements() -> None:
    made = [statement.text for statement in statements(400, seed=3)]
    assert made == [statement.text for statement in statements(400, seed=3)]
    assert made != [statement.text for statement in statements(400, seed=4)]


def test_every_form_is_met_before_any_comes_again() -> None:
    forms = [*FORMS, *AGGREGATES]
    met = [statement.tree.form for statement in statements(len(forms), seed=5)]
    assert sorted(f.text for f in met) == sorted(f.text for f in forms)


def test_every_column_has_all_its_edges_and_nulls() -> None:
    frame = rows()
    for name in (name for names in KINDS.values() for name in names):
        assert frame[name].null_count() > 0, name
    assert frame["i64"].min() == -(2**63)
    assert frame["u64"].max() == 2**64 - 1
    assert frame["f64"].is_nan().any()
    assert frame["f64"].is_infinite().any()


@pytest.mark.parametrize("name", sorted(MEANT))
def test_the_guide_explains_every_difference_that_is_meant(name: str) -> None:
    assert f"\n- **{name}**: " in _differences()


def test_the_guide_explains_no_other() -> None:
    assert set(re.findall(r"\n- \*\*(\w+)\*\*: ", _differences())) == MEANT


def _differences() -> str:
    return GUIDE.read_text().split("### Where DuckDB differs")[1].split("\n## ")[0]


def _wraps(t: Translator, node: exp.Expr) -> pl.Expr:
    return t.value(node.this) + t.value(node.expression)


def _ignores_escapes(t: Translator, node: exp.Expr) -> pl.Expr:
    return t.as_polars_reads(node)


@pytest.mark.parametrize(
    ("node", "broken", "statement"),
    [
        (exp.Add, _wraps, tree("({} + {})", "int", "int", columns=("i64", "i64"))),
        (
            exp.Like,
            _ignores_escapes,
            tree("({} LIKE {})", "text", "#like", columns=("s", r"'a\%c'")),
        ),
    ],
    ids=["addition", "like"],
)
def test_a_broken_translation_is_caught(
    monkeypatch: pytest.MonkeyPatch, node: Any, broken: Any, statement: Tree
) -> None:
    assert [found.outcome for found in judge(statement)] == [EQUAL]
    monkeypatch.setitem(reading._NODES, node, broken)
    (found,) = judge(statement)
    assert found.outcome == DIFFERS
    assert found.statement.text == f"SELECT {statement.text}"
    assert str(found.ours) != str(found.theirs)


def test_what_differs_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reading._NODES, exp.Add, _wraps)
    inner = tree("({} + {})", "int", "int", columns=("i64", "i64"))
    case = next(
        f for f in FORMS if f.text.startswith("CASE WHEN {} THEN {} ELSE") and f.kind == "int"
    )
    whole = Tree(form=case, parts=(leaf("bool", "(n > -9)"), inner, leaf("int", "n")))
    (found,) = judge(whole)
    assert found.outcome == DIFFERS
    assert found.statement.text == "SELECT (i64 + i64)"


def test_simpler_statements_are_of_the_same_kind() -> None:
    whole = tree("({} + {})", "int", "int", columns=("i64", "n"))
    simpler = list(smaller(whole))
    assert {t.kind for t in simpler} == {"int"}
    assert "i64" in {t.text for t in simpler}


def test_what_is_meant_counts_under_its_name() -> None:
    zero = tree("({} % {})", "int", "int", columns=("i32", "n"))
    above = Tree(form=tree("({} > {})", "int", "int", columns=("n", "n")).form, parts=(zero, zero))
    guarded = Tree(
        form=tree("({} AND {})", "bool", "bool", columns=("b", "b")).form,
        parts=(leaf("bool", "(n <> 0)"), above),
    )
    constant = tree("({} // {})", "int", "int", columns=("7", "0"))
    beside = Tree(form=above.form, parts=(leaf("int", "n"), constant))
    odd = tree("CAST({} AS INT)", "numeral", columns=("m",))
    outcomes = [found.outcome for found in judge(zero, guarded, beside, odd)]
    assert outcomes == [EQUAL, "lazy", CONSTANTS, "numerals"]


def test_a_part_that_fails_beside_a_null_is_known() -> None:
    fails = tree("CAST({} AS SMALLINT)", "int", columns=("i64",))
    choice = tree("coalesce({}, {})", "int", "int", columns=("n", "n"))
    form = tree("({} = {})", "int", "int", columns=("n", "n")).form
    (found,) = judge(Tree(form=form, parts=(choice, fails)))
    assert found.outcome == NULLS


def test_failures_and_refusals_are_compared() -> None:
    fails = tree("CAST({} AS SMALLINT)", "int", columns=("i64",))
    wrong = Tree(form=tree("upper({})", "text", columns=("s",)).form, parts=(leaf("text", "nope"),))
    assert [found.outcome for found in judge(fails, wrong)] == [EQUAL, REFUSED]


def test_rows_that_fail_are_left_out_of_groups() -> None:
    inner = tree("CAST({} AS SMALLINT)", "int", columns=("i32",))
    form = next(f for f in AGGREGATES if f.text == "count({})" and f.parts == ("int",))
    (found,) = judge(Tree(form=form, parts=(inner,)), grouped=True)
    assert found.outcome == EQUAL


@pytest.mark.parametrize(
    ("ours", "theirs", "equal"),
    [
        (None, None, True),
        (None, ("int", 0), False),
        (("int", 1), ("float", 1.0), False),
        (("float", float("nan")), ("float", float("nan")), True),
        (("float", 1.0), ("float", 1.0 + 1e-12), True),
        (("float", 1.0), ("float", 1.001), False),
        (("text", "1.0"), ("text", "1"), False),
        (Failed(reason="a"), Failed(reason="b"), True),
        (Failed(reason="a"), None, False),
        (("list", (("int", 1),)), ("list", (("int", 2),)), False),
    ],
)
def test_values_compare(ours: Any, theirs: Any, equal: bool) -> None:
    assert same(ours, theirs) is equal


def test_the_command_prints_counts_and_differences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["differ", "--statements", "20", "--seed", "2", "--json"])
    assert command.main() == 0
    told = json.loads(capsys.readouterr().out)
    assert told["statements"] == 20
    assert told["equal"] + told["refused"] + sum(told["meant"].values()) == 20
    assert told["differing"] == []


def test_a_report_shows_statement_row_and_values() -> None:
    statement = Statement(tree=leaf("int", "i64"))
    found = Finding(statement=statement, outcome=DIFFERS, row=(3,), ours=("int", 1), theirs=None)
    text = Report.of([found]).to_text()
    assert "differing 1" in text
    assert "SELECT i64\n    row (3,): Penstock int 1; DuckDB NULL" in text


def test_the_grammar_calls_the_functions_of_the_table() -> None:
    grammar = " ".join(form.text for form in (*FORMS, *AGGREGATES)).lower()
    entries = {entry for found in FUNCTIONS.values() for entry in found}
    called = {e.name for e in entries if any(re.search(rf"\b{n}\(", grammar) for n in e.names)}
    assert {entry.name for entry in entries} - called == LEFT_OUT


LEFT_OUT = {
    "approx_count_distinct", "approx_quantile",  # sketches, within a bound
    "erf", "log1p", "normalize",  # DuckDB has none
    "date", "time", "timestamp",  # casts there, without a format
}  # fmt: skip
