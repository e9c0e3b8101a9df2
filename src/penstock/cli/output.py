"""What commands print: data on stdout, messages on stderr, ``error:`` then ``hint:``."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, NoReturn

import typer
from rich.console import Console

messages = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Print a message."""
    messages.print(text, markup=False, soft_wrap=True)


def show_log() -> None:
    """Print what Penstock logs, from INFO on, as messages."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("penstock")
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def give(value: Any) -> None:
    """Print data as JSON."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def fail(error: str, hint: str | None = None, *, as_json: bool = False) -> NoReturn:
    """Print an error and end with exit code 1."""
    if as_json:
        give({"ok": False, "error": error, "hint": hint})
    messages.print(f"error: {error}", markup=False, style="red", soft_wrap=True)
    if hint:
        messages.print(f"hint: {hint}", markup=False, soft_wrap=True)
    raise typer.Exit(1)
