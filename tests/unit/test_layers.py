"""The layout shows the architecture: which folder may import which, at whatever moment.

Imports inside functions count as much as those at the top of a module. Those for type checkers
alone never run, so they make no cycle, and do not count.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

ROOT = Path(penstock.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
ORDER = (
    "base",
    "query",
    "plan",
    "files",
    "sinks",
    "compiler",
    "operators",
    "exchange",
    "state",
    "sources",
    "sql",
    "control",
    "observe",
    "task",
    "driver",
    "spark",
    "",  # the package itself: what a user imports
    "testing",
    "workloads",
    "cli",
)
"""The folders; a module imports from its own and from those before it."""
MAY_USE_PYSPARK = ("spark", "cli")


def running_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield all imports that can run, in functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from running_imports(node)


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in running_imports(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def folder_of(module: str) -> str:
    """Return the folder of a module's dotted name; empty for the package itself."""
    name = module.split(".")[1] if "." in module else ""
    return name if (ROOT / name).is_dir() else ""


def test_the_order_names_every_folder() -> None:
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(ORDER) - {""}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_up_the_list(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    mine = parts[0] if len(parts) > 1 else ""
    if path.name == "__main__.py" and not mine:
        mine = "cli"
    allowed = ORDER[: ORDER.index(mine) + 1]
    ours = {module for module in imports(path) if module.split(".")[0] == "penstock"}
    assert {module for module in ours if folder_of(module) not in allowed} == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_some_folders_know_pyspark(path: Path) -> None:
    uses = any(module.split(".")[0] in ("pyspark", "py4j") for module in imports(path))
    assert not uses or path.relative_to(ROOT).parts[0] in MAY_USE_PYSPARK


def test_importing_the_front_end_does_not_load_spark() -> None:
    code = "import sys, penstock; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
