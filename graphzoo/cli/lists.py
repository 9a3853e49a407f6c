"""`graphzoo list` and `graphzoo download`. Standard library only."""

from __future__ import annotations

import json
import sys

from graphzoo.catalog.classes import encoder_plugins
from graphzoo.catalog.presets import KINDS, find_preset, list_presets
from graphzoo.errors import UsageError, suggestion
from graphzoo.system.shown import say

__all__ = ["download_main", "list_main"]

USAGE = "usage: graphzoo list [data|model|recipe|trainer|logger|search|ablation] [--json]"

_ORDER = ("model", "data", "recipe", "trainer", "logger", "search", "ablation")


def list_main(argv: list[str]) -> int:
    """Print what can be named on the command line.

    Args:
        argv: Kinds to list (all by default), and `--json` for one JSON object.
    """
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE + "\n")
        return 0
    plurals = {"datasets": "data", "dataset": "data", "spaces": "search"}
    plurals |= {kind + "s": kind for kind in KINDS}
    kinds: list[str] = []
    for word in argv:
        kind = plurals.get(word, word)
        if word == "--json":
            continue
        if kind not in KINDS:
            raise UsageError(f"unknown kind {word!r}\n{suggestion(word, KINDS) or USAGE}")
        kinds.append(kind)
    tables = {kind: _rows(kind) for kind in kinds or _ORDER}
    if "--json" in argv:
        sys.stdout.write(json.dumps(tables, indent=2, ensure_ascii=False) + "\n")
        return 0
    for kind, rows in tables.items():
        say(f"{kind}\n")
        width = max((len(row["name"]) for row in rows), default=0) + 2
        for row in rows:
            size = f" [{row['size']}]" if "size" in row and kind == "data" else ""
            paper = f" [paper: {row['paper']}]" if "paper" in row else ""
            say(f"  {row['name']:{width}}{row.get('title', '')}{size}{paper}\n")
    return 0


def _rows(kind: str) -> list[dict[str, str]]:
    rows = [{"name": preset.name, **preset.header} for preset in list_presets(kind)]
    if kind == "model":
        rows += [
            {"name": name, "title": f"plug-in {entry.value}"} for name, entry in encoder_plugins().items()
        ]
    return rows


def download_main(argv: list[str]) -> int:
    """Fetch data sets by name into the data root.

    Args:
        argv: Names of data presets, and `--root DIR` for another data root than `GRAPHZOO_DATA`.
    """
    usage = "usage: graphzoo download NAME... [--root DIR]"
    names: list[str] = []
    root: str | None = None
    words = iter(argv)
    for word in words:
        if word in ("-h", "--help"):
            sys.stdout.write(usage + "\n")
            return 0
        if word == "--root" or word.startswith("--root="):
            root = word.partition("=")[2] or next(words, None)
            if root is None:
                raise UsageError(f"--root needs a folder\n{usage}")
        elif word.startswith("-"):
            raise UsageError(f"unknown option {word}\n{usage}")
        else:
            names.append(find_preset("data", word).name)
    if not names:
        raise UsageError(f"download needs the name of a data set\n{usage}")
    for own in ("kg", "nodes"):
        if own in names:
            raise UsageError(f"data {own} stands for your own files: there is nothing to download")
    from graphzoo.datasets import download

    for name in names:
        say(f"{name}: {download(name, root=root)}\n")
    return 0
