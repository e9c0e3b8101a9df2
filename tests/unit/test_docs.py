"""What the documents show runs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.base.config import Config
from penstock.control.bounds import Bounds
from penstock.control.elastic import Elastic
from penstock.control.policies import POLICIES

ROOT = Path(__file__).parents[2]


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


def test_the_guide_runs_from_top_to_bottom() -> None:
    found = blocks("docs/queries.md")
    assert len(found) >= 4
    namespace: dict[str, Any] = {}
    for block in found:
        exec(compile(block, "docs/queries.md", "exec"), namespace)
    assert "subquery 1" in namespace["query"].explain()


def test_the_guide_to_times_runs() -> None:
    found = blocks("docs/times.md")
    assert found
    namespace: dict[str, Any] = {}
    for block in found:
        exec(compile(block, "docs/times.md", "exec"), namespace)


def test_the_guide_to_elastic_queries_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks("docs/elastic.md")
    assert len(found) >= 4
    namespace: dict[str, Any] = {}
    for block in found:
        exec(compile(block, "docs/elastic.md", "exec"), namespace)
    assert list(tmp_path.iterdir()) == [], "a sample writes nothing to the sinks"


def test_the_rules_are_described_with_their_defaults() -> None:
    text = (ROOT / "docs/elastic.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", text, re.MULTILINE)
    told: dict[str, str] = {}
    for names, values in rows:
        words = re.findall(r"`(\w+)`", names)
        told |= dict(zip(words, values.replace("`", "").split(", "), strict=False))
    own = [field for kind in POLICIES.values() for field in fields(kind.parameters)]
    rules = {field.name: field.default for field in (*fields(Bounds), *own)}
    for name, default in {**rules, "policy": Elastic().policy}.items():
        assert told[name] == str(default).lower().removesuffix(".0"), name


def test_the_settings_are_described() -> None:
    text = (ROOT / "docs/queries.md").read_text()
    for field in fields(Config):
        assert f"| `{field.name}` |" in text


def test_the_documents_name_modules_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    assert len(named) > 20
    missing = [name for name in named if not (ROOT / "src/penstock" / name).exists()]
    assert not missing


def test_the_way_of_a_row_names_as_many_modules_as_it_says() -> None:
    way = (ROOT / "docs/architecture.md").read_text().partition("# Beside the row's way")[0]
    told = re.search(r"passes the (\d+) modules", way)
    assert told is not None
    assert len(set(re.findall(r"`((?:\w+/)+\w+\.py)`", way))) == int(told[1])


def test_links_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
