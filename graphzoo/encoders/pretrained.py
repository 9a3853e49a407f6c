"""Folders to share: weights as safetensors, settings as JSON, a model card, and no code.

    model.safetensors   the weights
    config.json         {"format": 1, "graphzoo": which encoder with which settings, ...}
    README.md           the model card
    graph/              for a whole model: the names and facts, or the features, that prediction needs

The names are those of the Hugging Face Hub, so such a folder can be uploaded as it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphzoo.catalog.weights import shipped_weights
from graphzoo.errors import UsageError
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.regular_files import copy_regular, require_regular

if TYPE_CHECKING:
    from torch import Tensor


FORMAT = 1
WEIGHTS, SETTINGS, CARD = "model.safetensors", "config.json", "README.md"
_MOST_BYTES = 1 << 26  # of config.json: a large vocabulary of classes or relations takes some megabytes


def write_pretrained(
    folder: str | os.PathLike[str],
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    card: str = "",
    graph: Path | None = None,
) -> Path:
    """Write a folder to share. It appears complete or not at all.

    Weights that are views or share memory are stored as separate tensors. The folder `graph` is copied.

    Raises:
        UsageError: if `folder` has content or cannot be written, or a setting is not a plain value.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        text = json.dumps({"format": FORMAT, **settings}, indent=1, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the settings cannot be written as JSON: {error}") from error
    with new_folder(folder) as part, writing(folder):
        kept = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
        settings_file, weights_file = part / SETTINGS, part / WEIGHTS
        settings_file.write_text(text + "\n", encoding="utf-8")
        try:
            save_file(kept, weights_file, metadata={"format": "pt"})
        except SafetensorError as error:  # what the system says, as on a full disk
            raise OSError(str(error)) from error
        # safetensors lets only the owner read its file, whatever the umask; the folder is to be shared
        weights_file.chmod(stat.S_IMODE(settings_file.stat().st_mode))
        if card:
            (part / CARD).write_text(card, encoding="utf-8")
        if graph is not None:
            copy_folder(graph, part / "graph")
    return Path(folder)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder to a new one with the usual modes; links and special files are refused."""
    target.mkdir()
    for path in sorted(source.iterdir()):
        if path.is_dir() and not path.is_symlink():
            copy_folder(path, target / path.name)
        else:
            copy_regular(path, target / path.name)


def card_header(tags: Iterable[str], licence: str = "") -> str:
    """The lines at the head of a model card that the Hugging Face Hub reads; `graph` is always a tag."""
    lines = ["---", "library_name: graphzoo", "tags:", *(f"- {tag}" for tag in ("graph", *tags))]
    return "\n".join([*lines, *([f"license: {json.dumps(licence)}"] if licence else []), "---"])


def facts_table(facts: Mapping[str, Any]) -> str:
    """A table of two columns for a model card; what is None is left out."""
    rows = (f"| {key} | {_cell(value)} |" for key, value in facts.items() if value is not None)
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


@contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder to fill, which is renamed to `folder` if the block succeeds and removed if not.

    Raises:
        UsageError: if `folder` has content or cannot be written.
    """
    shown, folder = Path(folder), Path(folder).absolute()
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UsageError(f"{shown} exists already and was not changed\nGive another folder")
    if folder.exists() and folder.samefile(Path.cwd()):  # to replace it would leave the process in no folder
        raise UsageError(f"{shown} is the current folder\nGive a new folder in it")
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        with writing(shown):
            part.mkdir(parents=True)
        yield part
        with writing(shown):
            part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def writing(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an `OSError` into a `UsageError` that names the folder as the user did.

    An error that names a file elsewhere, such as one of `TMPDIR`, is not about the folder and stays as it is.
    """
    try:
        yield
    except OSError as error:
        place, parent = Path(str(error.filename)).absolute(), Path(folder).absolute().parent
        near = place.is_relative_to(parent) or parent.is_relative_to(place)
        if error.filename is not None and not near:
            raise
        raise UsageError(
            f"{folder} cannot be written: {error.strerror or error}\nGive another folder"
        ) from error


def _is_on_hub(path: str | os.PathLike[str]) -> bool:
    """Whether `path` has the form USER/NAME of the Hugging Face Hub and does not exist here."""
    return bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", str(path))) and not Path(path).exists()


def _from_hub(name: str) -> Path:
    """Fetch a repository with the Hub's own library, and return the folder in its cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UsageError(
            f"there is no folder {name}\nTo fetch it from the Hugging Face Hub: pip install 'graphzoo[hub]'"
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=[WEIGHTS, SETTINGS, CARD, "graph/*"]))
    except (OSError, ValueError) as error:  # base classes of its errors about network, names and access
        line = " ".join(str(error).split())[:200]
        raise UsageError(
            f"there is no folder {name}, and the Hugging Face Hub has none to fetch: {line}\nCheck the name"
        ) from error


def read_pretrained(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a shared folder: its settings, and its weights as `state_dict`. No code in it runs.

    Args:
        path: The folder, or its `model.safetensors`; a repository USER/NAME of the Hugging Face Hub; or the
            name of weights that ship with graphzoo.

    Raises:
        UsageError: if a file is missing, damaged, or of a later format.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    place = shipped_weights(str(path)) or (_from_hub(str(path)) if _is_on_hub(path) else Path(path))
    weights = place / WEIGHTS if place.is_dir() else place
    file = weights.with_name(SETTINGS)
    if not weights.is_file():
        raise UsageError(f"{place} holds no {WEIGHTS}\nMake one with graphzoo export RUN --out DIR")
    try:
        settings = read_json(file, most=_MOST_BYTES)
        if not isinstance(settings, dict) or not isinstance(settings.get("graphzoo"), dict):
            raise ValueError("no `graphzoo` entry")
        for name in ("hyper_parameters", "exported"):
            if not isinstance(settings.get(name, {}), dict):
                raise ValueError(f"`{name}` is not a mapping")
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{file} cannot be used: {reason}\nExport the model again") from error
    version = settings.get("format")
    if not isinstance(version, int) or not 1 <= version <= FORMAT:
        raise UsageError(
            f"{file} has format {version!r}, but this graphzoo reads {FORMAT}\nInstall a newer version"
        )
    try:
        require_regular(weights)
        state = load_file(weights)
    except (OSError, SafetensorError, ValueError) as error:
        raise_if_not_the_file(error, weights)
        raise UsageError(f"{weights} is damaged ({error})\nExport the model again") from error
    return {**settings, "state_dict": state}
