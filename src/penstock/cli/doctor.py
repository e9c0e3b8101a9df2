"""``penstock doctor``: is everything here that a query needs?"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

PACKAGES = ("penstock", "pyspark", "polars", "pyarrow", "polars-hash", "sqlglot")
JAVA_HINT = "install Java 17 or newer, for example Debian's openjdk-17-jre-headless"


def diagnose() -> dict[str, Any]:
    """Return what was found: a list of checks, each with name, ok, found and a hint."""
    checks = [_python(), _java(), *[_package(name) for name in PACKAGES], _cores(), _memory()]
    if all(check["ok"] for check in checks):
        checks.append(_trial())
    return {"ok": all(check["ok"] for check in checks), "checks": checks}


def render(findings: dict[str, Any]) -> None:
    """Print the findings as a table."""
    table = Table(box=None, show_header=False)
    for check in findings["checks"]:
        mark = "[green]ok[/]" if check["ok"] else "[red]no[/]"
        table.add_row(mark, check["name"], check["found"], check["hint"] if not check["ok"] else "")
    Console().print(table)


def _check(name: str, ok: bool, found: str, hint: str = "") -> dict[str, Any]:
    return {"name": name, "ok": ok, "found": found, "hint": hint}


def _python() -> dict[str, Any]:
    found = platform.python_version()
    return _check("python", sys.version_info >= (3, 11), found, "use Python 3.11 or newer")


def _java() -> dict[str, Any]:
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not command:
        return _check("java", False, "none", JAVA_HINT)
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except OSError as error:
        return _check("java", False, str(error), JAVA_HINT)
    first = (done.stderr or done.stdout).strip().splitlines()[:1]
    major = java_major(first[0]) if first else 0
    return _check("java", major >= 17, first[0] if first else "?", JAVA_HINT)


def java_major(line: str) -> int:
    """Return the major version from the first line of ``java -version``.

    >>> java_major('openjdk version "17.0.15" 2025-04-15'), java_major('java version "1.8.0_202"')
    (17, 8)
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', line)
    if found is None:
        return 0
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


def _package(name: str) -> dict[str, Any]:
    try:
        return _check(name, True, version(name))
    except PackageNotFoundError:
        return _check(name, False, "missing", f"pip install {name}")


def _cores() -> dict[str, Any]:
    count = os.cpu_count() or 1
    return _check("cores", count >= 1, str(count))


def _memory() -> dict[str, Any]:
    free = psutil.virtual_memory().available / 2**30
    return _check("free memory", free >= 1, f"{free:.1f} GiB", "a query needs at least 1 GiB")


def _trial() -> dict[str, Any]:
    """Run a job on Spark whose task imports Penstock."""
    from penstock.spark.session import scratch_session

    try:
        with scratch_session("penstock doctor") as spark:
            context = spark.sparkContext
            context.parallelize([1], 1).map(_imports).collect()
            since = time.perf_counter()
            versions = context.parallelize([1], 1).map(_imports).collect()
            spent = (time.perf_counter() - since) * 1000
    except Exception as error:  # whatever Spark says is the finding
        line = str(error).strip().splitlines()[0]
        return _check("trial job", False, line, "run it with --json for the whole text")
    return _check("trial job", True, f"{spent:.0f} ms, polars {versions[0]} in the task")


def _imports(_: int) -> str:
    import polars

    import penstock

    assert penstock.__version__
    return polars.__version__
