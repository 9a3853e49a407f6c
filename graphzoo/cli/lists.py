"""`graphzoo list` and `graphzoo download`. Standard library only."""

from __future__ import annotations

import json
import sys

from graphzoo.catalog.classes import encoder_plugins
from graphzoo.catalog.presets import KINDS, Preset, find_preset, first_score, list_presets
from graphzoo.catalog.tasks import TASKS, is_error
from graphzoo.cli.options import Parser
from graphzoo.errors import UsageError, normalise, suggestion
from graphzoo.system.shown import say

_PLURALS = {"datasets": "data", "dataset": "data", "spaces": "search"} | {kind + "s": kind for kind in KINDS}


def list_parser() -> Parser:
    """The options of `graphzoo list`."""
    parser = Parser(
        "list", "[KIND...] [--json]", "List the names that the command line accepts, with a line about each."
    )
    kinds = f"{', '.join(KINDS)} (default: all)"
    parser.add_argument("kind", nargs="*", metavar="KIND", help=kinds)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def list_main(argv: list[str]) -> int:
    """Print what can be named on the command line."""
    parser = list_parser()
    args = parser.read(argv)
    named = [_PLURALS.get(word, word) for word in args.kind]
    for kind in named:
        if kind not in KINDS:
            parser.refuse(
                f"unknown kind {kind!r}", suggestion(kind, KINDS) or f"There are: {', '.join(KINDS)}"
            )
    recipes = list_presets("recipe") if {*(named or KINDS)} & {"model", "data", "recipe"} else []
    tables = {kind: _rows(kind, recipes) for kind in named or KINDS}
    if args.json:
        sys.stdout.write(json.dumps(tables, indent=2, ensure_ascii=False) + "\n")
        return 0
    for kind, rows in tables.items():
        say(f"{kind}\n")
        width = max((len(row["name"]) for row in rows), default=0) + 2
        for row in rows:
            size = f" [{row['size']}]" if "size" in row and kind == "data" else ""
            paper = f" [paper: {row['paper']}]" if "paper" in row else ""
            say(f"  {row['name']:{width}}{row.get('title', '')}{size}{paper}\n")
            if "best" in row:
                say(f"  {'':{width}}{row['best']}\n")
    return 0


def _rows(kind: str, recipes: list[Preset]) -> list[dict[str, str]]:
    best = _best(kind, recipes) if kind in ("model", "data") else {}
    rows = [
        {"name": preset.name, **preset.header} | ({"best": best[preset.name]} if preset.name in best else {})
        for preset in (recipes if kind == "recipe" else list_presets(kind))
    ]
    taken = {normalise(row["name"]) for row in rows}
    for name, entry in encoder_plugins().items() if kind == "model" else ():
        path = entry.value.replace(":", ".")
        hidden = (
            f"; the preset has its name, so give --model.encoder {path}" if normalise(name) in taken else ""
        )
        rows.append({"name": name, "title": f"plug-in {path}{hidden}"})
    return rows


def _best(kind: str, recipes: list[Preset]) -> dict[str, str]:
    """A line for each model or data set on its best test score, of recipes with the data's own protocol.

    For a model that is the score nearest to the paper's; for data sets the metric that most recipes have.
    """
    by_name: dict[str, list[tuple[str, float, str]]] = {}
    for recipe in recipes:
        model, _, name = recipe.name.partition("/")
        data = recipe.header.get("data", name)
        measured, paper = (first_score(recipe.header.get(key, "")) for key in ("measured", "paper"))
        if name not in (data, f"{data}-cpu", f"{data}-local") or measured is None:
            continue
        metric, value, text = measured
        value = -value if kind == "data" and is_error(metric) else value
        if kind == "model" and (paper is None or paper[0] != metric):
            continue
        entry = f"{data if kind == 'model' else model}: {text}"
        if paper is not None and paper[0] == metric:
            entry += f" (paper {paper[2].partition('=')[2]})"
            value = -abs(value / paper[1] - 1) if kind == "model" else value
        entry += f"; {recipe.header['measured'].partition('; ')[2]}"
        by_name.setdefault(model if kind == "model" else data, []).append((metric, value, entry))
    best = {}
    for key, rows in by_name.items():
        metrics = [metric for metric, _, _ in rows]
        common = max(metrics, key=metrics.count)
        best[key] = max(row[1:] for row in rows if kind == "model" or row[0] == common)[1]
    return best


def download_parser() -> Parser:
    """The options of `graphzoo download`."""
    parser = Parser(
        "download", "NAME... [--root DIR]", "Download data sets, to train without a network later."
    )
    parser.add_argument("name", nargs="+", metavar="NAME", help="data set, see `graphzoo list data`")
    parser.add_argument(
        "--root", metavar="DIR", help="folder for data (default: GRAPHZOO_DATA or the cache folder)"
    )
    return parser


def download_main(argv: list[str]) -> int:
    """Fetch data sets by name into the data root."""
    args = download_parser().read(argv)
    names = [find_preset("data", name).name for name in args.name]
    for own in (task.kind for task in TASKS.values()):
        if own in names:
            raise UsageError(f"data {own} means your own files: there is nothing to download")
    from graphzoo.datasets import download

    for name in names:
        say(f"{name}: {download(name, root=args.root)}\n")
    return 0
