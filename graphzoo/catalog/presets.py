"""Names on the command line and the files they stand for.

A preset is a YAML file whose leading comment lines `# key: value` say what it is. Only these lines are read
here, with the standard library alone, so that names are listed and checked before anything heavy is imported.
Folders searched, the first hit wins: those in `GRAPHZOO_CONFIGS` (written like `PATH`), then graphzoo's own.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from graphzoo.errors import UsageError, normalise, suggestion
from graphzoo.system.regular_files import open_regular
from graphzoo.system.shown import tell

KINDS = ("data", "model", "recipe", "trainer", "logger", "search", "ablation")
"""Folders below a preset root. Recipes and ablations lie one deeper: `recipe/<model>/<data>.yaml`."""
_OF_MODELS = ("recipe", "ablation")


@dataclass(frozen=True)
class Preset:
    """A named YAML file."""

    kind: str  # one of `KINDS`
    name: str  # file name without suffix; for a recipe `<model>/<name>`
    path: Path
    header: dict[str, str] = field(compare=False)  # its leading `# key: value` lines


_MOST_HEADER = 1 << 16


def read_header(path: str | os.PathLike[str]) -> dict[str, str]:
    """The `# key: value` lines a file begins with; other comments are skipped, any other line ends it."""
    header: dict[str, str] = {}
    with open_regular(path) as file:
        lines = file.read(_MOST_HEADER).decode("utf-8-sig", errors="replace").splitlines()
    for line in lines:
        if not line.startswith("#"):
            break
        key, colon, value = line[1:].strip().partition(": ")
        if colon and key.replace("_", "").isalnum():
            header[key] = value.strip()
    return header


def preset_roots() -> list[Path]:
    """Folders that are searched for presets, the user's own first."""
    named = os.environ.get("GRAPHZOO_CONFIGS", "").split(os.pathsep)
    own = [Path(part).expanduser() for part in named if part]
    for root in own:
        _warn_if_missing(root)
    package = Path(__file__).parents[1]
    # An installed graphzoo carries the presets inside the package, a checkout beside it.
    shipped = [folder for folder in (package / "configs", package.parent / "configs") if folder.is_dir()]
    return [*own, *shipped[:1]]


@functools.cache  # once a process
def _warn_if_missing(root: Path) -> None:
    if not root.is_dir():
        tell(f"GRAPHZOO_CONFIGS names {root}, and there is no such folder\n")


def list_presets(kind: str, model: str | None = None) -> list[Preset]:
    """All presets of a kind, of one model or of all, each name once, in natural order (`v2` before `v10`)."""
    presets: dict[str, Preset] = {}
    for root in preset_roots():
        folder = root / kind
        pattern = "*.y*ml" if kind not in _OF_MODELS else f"{model or '*'}/*.y*ml"
        for path in sorted(folder.glob(pattern)):
            if path.suffix not in (".yaml", ".yml"):
                continue
            name = path.relative_to(folder).with_suffix("").as_posix()
            if name not in presets:
                presets[name] = Preset(kind, name, path, read_header(path))
    return [presets[name] for name in sorted(presets, key=in_natural_order)]


def find_preset(kind: str, name: str, *, model: str | None = None) -> Preset:
    """The preset of that name; case, `-` and `_` do not matter. A recipe's is the part after the model.

    An ablation may be that of another model, `pencil/heuristics` for a baseline. Without a preset of that
    name a `UsageError` has the nearest ones.
    """
    if kind == "ablation" and "/" in name:
        other, _, name = name.partition("/")
        model = next(
            (each.name for each in list_presets("model") if normalise(each.name) == normalise(other)), other
        )
    presets = list_presets(kind, model)
    wanted = normalise(f"{model}/{name}" if kind in _OF_MODELS else name)
    for preset in presets:
        if normalise(preset.name) == wanted:
            return preset
    names = [preset.name.rpartition("/")[2] for preset in presets]
    every = f"`graphzoo list {kind}` shows all names."
    some = f"There are: {', '.join(names[:6])}" + (f", ...; {every}" if len(names) > 6 else ".")
    hint = suggestion(name, names) or (some if names else every)
    of_model = f" of {model}" if model else ""
    raise UsageError(f"unknown {kind}{of_model} {name!r}\n{hint}")


def recipe_for_cpu(name: str) -> Preset | None:
    """The recipe that trains on a few CPU cores what a recipe `<model>/<name>` trains, if it has scores."""
    known = {preset.name: preset for preset in list_presets("recipe", name.partition("/")[0])}
    found = (known.get(name + ending) for ending in ("-local", "-cpu"))
    return next((one for one in found if one and first_score(one.header.get("measured", ""))), None)


def first_score(text: str) -> tuple[str, float, str] | None:
    """Metric, value and wording of the first score in a recipe's header; None without one."""
    match = re.match(r"([\w@]+)=(\d[\d.]*)\S*", text)
    return (match[1], float(match[2]), match[0].rstrip(",;")) if match else None


def in_natural_order(name: str) -> list[tuple[int, str]]:
    """What names are sorted by: numbers inside by their size."""
    parts = filter(None, re.split(r"(\d+)", name))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
