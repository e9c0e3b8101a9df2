"""What the documents show runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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


def test_the_documents_name_modules_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    assert len(named) > 20
    missing = [name for name in named if not (ROOT / "src/penstock" / name).exists()]
    assert not missing


def test_links_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
