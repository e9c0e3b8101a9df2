"""The command line: thin readers of the library."""

from penstock.cli.app import main

__all__ = ["main"]
