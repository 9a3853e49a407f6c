"""The `graphzoo` command: `graphzoo X` is `graphzoo/cli/X.py`."""

from graphzoo.cli.commands import main

__all__ = ["main"]
