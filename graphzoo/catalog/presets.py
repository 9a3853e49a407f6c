"""Presets: names on the command line, and the YAML files that they stand for.

The leading comment lines `# key: value` of a preset describe it. This module reads only these lines and needs
only the standard library, so that names can be listed and checked before large imports. Presets are looked
for in the folders of `GRAPHZOO_CONFIGS` (written like `PATH`), then in graphzoo's own; the first one counts.
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

KINDS = ("model", "data", "recipe", "trainer", "logger", "search", "ablation")
"""Folders of presets, in the order of `graphzoo list`. Recipes and ablations have a folder per model:
`recipe/<model>/<data>.yaml`."""
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
    """The leading `# key: value` lines of a file. Other comments are skipped; any other line ends the header.

    Raises:
        OSError: if the file cannot be read.
    """
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


def own_roots() -> list[Path]:
    """The user's own folders with presets."""
    named = os.environ.get("GRAPHZOO_CONFIGS", "").split(os.pathsep)
    return [Path(part).expanduser() for part in named if part]


def preset_roots() -> list[Path]:
    """The folders with presets, in the order in which they are searched; the user's own come first."""
    own = own_roots()
    for root in own:
        _warn_if_missing(root)
    package = Path(__file__).parents[1]
    # An installed graphzoo has its presets inside the package, a checkout has them beside it.
    shipped = [folder for folder in (package / "configs", package.parent / "configs") if folder.is_dir()]
    return [*own, *shipped[:1]]


@functools.cache  # warns once per process
def _warn_if_missing(root: Path) -> None:
    if not root.is_dir():
        tell(f"GRAPHZOO_CONFIGS names {root}, but there is no such folder\n")


def list_presets(kind: str, model: str | None = None) -> list[Preset]:
    """All presets of a kind, in natural order (`v2` before `v10`); each name occurs once.

    Args:
        kind: One of `KINDS`.
        model: For recipes and ablations, the model; None lists those of all models.
    """
    presets: dict[str, Preset] = {}
    for root in preset_roots():
        folder = root / kind
        pattern = "*.y*ml" if kind not in _OF_MODELS else f"{model or '*'}/*.y*ml"
        for path in sorted(folder.glob(pattern)):
            # an editor leaves hidden files, and links to nowhere, beside the one that is edited
            if path.suffix not in (".yaml", ".yml") or path.name.startswith(".") or not path.is_file():
                continue
            name = path.relative_to(folder).with_suffix("").as_posix()
            if name not in presets:
                presets[name] = Preset(kind, name, path, read_header(path))
    return [presets[name] for name in sorted(presets, key=in_natural_order)]


def find_preset(kind: str, name: str, *, model: str | None = None) -> Preset:
    """The preset of a name; case, `-` and `_` do not matter.

    Args:
        kind: One of `KINDS`.
        name: Its name; for a recipe or ablation the part after the model. An ablation of another model is
            given with that model, such as `pencil/heuristics`.
        model: For recipes and ablations, the model.

    Raises:
        UsageError: if there is no such preset; the message has the nearest names.
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
    """The variant of a recipe `<model>/<name>` for a few CPU cores, if there is one with measured scores."""
    known = {preset.name: preset for preset in list_presets("recipe", name.partition("/")[0])}
    found = (known.get(name + ending) for ending in ("-local", "-cpu"))
    return next((one for one in found if one and first_score(one.header.get("measured", ""))), None)


def first_score(text: str) -> tuple[str, float, str] | None:
    """Metric, value and wording of the first score in a recipe's header; None if there is none."""
    match = re.match(r"([\w@]+)=(\d[\d.]*)\S*", text)
    return (match[1], float(match[2]), match[0].rstrip(",;")) if match else None


def in_natural_order(name: str) -> list[tuple[int, str]]:
    """Sort key of names in natural order: numbers in a name are compared by value."""
    parts = filter(None, re.split(r"(\d+)", name))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
