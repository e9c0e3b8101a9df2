"""``penstock retry``: files that a query could not read, and giving them back to it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from penstock.cli.checkpoint import root_of
from penstock.cli.output import give, say
from penstock.driver.again import give_back
from penstock.sources.files import local_path
from penstock.state.manifests import Manifest, ManifestLog


def list_unread(checkpoint: str, *, as_json: bool) -> None:
    """Print the files that wait or were refused, and how many were seen and read."""
    last = ManifestLog(root_of(checkpoint)).newest() or Manifest(epoch=-1)
    counts = last.file_totals
    files: list[dict[str, Any]] = [
        {"status": status, "name": last.source_names.get(file.source, ""), **asdict(file)}
        for status, found in (("refused", last.refused_files), ("waiting", last.waiting_files))
        for file in found
    ]
    if as_json:
        give({"ok": True, "files": counts, "unread": files})
        return
    for file in files:
        where = f"{local_path(file['path'])} of source {file['name']}"
        say(f"{file['status']}: {where}: {file['reason']}")
    say(f"files: {', '.join(f'{number:,} {name}' for name, number in counts.items())}")


def run_retry(checkpoint: str, file: str, *, source: str, as_json: bool) -> None:
    """Give a refused file back, and say so."""
    found = give_back(root_of(checkpoint), file, source=source)
    if as_json:
        give({"ok": True, **asdict(found)})
    else:
        say(
            f"{local_path(found.path)} is read with the query's next epoch, "
            "or after its next start if the query is not running"
        )
