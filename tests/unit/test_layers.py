"""The layout shows the architecture: which folder may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock

ROOT = Path(penstock.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MAY_USE_PYSPARK = ("runtime/spark/", "sources/spark.py", "sinks/spark.py", "cli/")
BELOW = {
    "query": {"query"},
    "plan": {"query", "plan"},
    "compiler": {"query", "plan", "compiler"},
    "operators": {"query", "plan", "operators"},
    "exchange": {"query", "plan", "operators", "exchange"},
    "state": {"query", "plan", "operators", "exchange", "state"},
    "sources": {"query", "plan", "operators", "exchange", "state", "sources"},
    "sinks": {"query", "plan", "operators", "exchange", "state", "sinks"},
    "sql": {"query", "sources", "sql"},
    "control": {"query", "plan", "control"},
    "observe": {"plan", "control", "state", "observe"},
    "runtime": {
        "query",
        "plan",
        "compiler",
        "operators",
        "exchange",
        "state",
        "sources",
        "sinks",
        "control",
        "observe",
        "runtime",
    },
}
"""What the folders at the bottom may import; the ones above may import all of these."""


def imports(path: Path, *, only_top_level: bool) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = list(ast.iter_child_nodes(tree)) if only_top_level else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_effects_import_pyspark(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    uses = any(module.split(".")[0] == "pyspark" for module in imports(path, only_top_level=True))
    assert not uses or name.startswith(MAY_USE_PYSPARK)


@pytest.mark.parametrize("folder", BELOW)
def test_imports_go_down(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        for module in imports(path, only_top_level=True):
            parts = module.split(".")
            if parts[0] == "penstock" and len(parts) > 1 and (ROOT / parts[1]).is_dir():
                assert parts[1] in BELOW[folder], f"{path.name} imports {module}"


def test_importing_the_front_end_does_not_load_spark() -> None:
    import subprocess
    import sys

    code = "import sys, penstock; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
