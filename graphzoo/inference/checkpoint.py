"""Builds a task with its weights from a run directory or a checkpoint, without running code from files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphzoo.catalog.classes import defaults_of, load_class
from graphzoo.catalog.tasks import TASKS, inference_of
from graphzoo.catalog.weights import shipped_weights
from graphzoo.checkpoints import read
from graphzoo.checkpoints.checks import MisfitError, TooLargeError, build_bounded, outlined
from graphzoo.encoders.pretrained import WEIGHTS, read_pretrained
from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import locate
from graphzoo.system.memory import is_out_of_memory
from graphzoo.types import GraphSpec, NeighbourhoodSpec

if TYPE_CHECKING:
    from os import PathLike

    from graphzoo.encoders import Encoder
    from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification


# What a description must hold, and of which type; a dot leads into the entry.
_PARTS = {"task": str, "encoder": dict, "encoder.class_path": str, "encoder.init_args": dict, "spec": dict}


_MOST_ALTERNATIVES = 20


def find_checkpoint(path: str | PathLike[str]) -> tuple[Path, Path | None]:
    """The checkpoint file that a path means, and the run directory it belongs to, if that holds the graph.

    A path may be a run directory (its best checkpoint, else its last), its `checkpoints` folder, a folder
    that `graphzoo export` wrote, the name of weights that ship with graphzoo, or a file.

    Raises:
        UsageError: if there is no such path, or it holds no checkpoint.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):
        raise UsageError(f"{path}: checkpoints are read from local files only; download it first")
    path = shipped_weights(str(path)) or Path(path)
    if not path.exists():
        raise UsageError(f"{path}: no such run directory or checkpoint file")
    if path.is_dir():
        if (path / WEIGHTS).is_file():
            return path / WEIGHTS, path if (path / "graph" / "meta.json").is_file() else None
        path, _ = locate("predict", os.path.join(path, "."))  # a folder named best is no checkpoint's name
    run = path.absolute().parent if path.suffix == ".safetensors" else path.absolute().parent.parent
    kept = ("knowledge_graph.npz", "node_graph.npz", "meta.json")
    return path, run if any((run / "graph" / name).is_file() for name in kept) else None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint of a graphzoo task; only tensors and plain values are unpickled.

    Raises:
        UsageError: if it is damaged, of a later format, or was not written by a graphzoo task.
    """
    from graphzoo.tasks.base import CHECKPOINT_FORMAT

    shared = path.suffix == ".safetensors"
    checkpoint = read_pretrained(path) if shared else read.read_checkpoint(path)
    described = checkpoint.get("graphzoo")
    if not isinstance(described, dict) or not isinstance(described.get("format"), int):
        raise UsageError(f"{path}: not written by a graphzoo task (no `graphzoo` entry)")
    if described["format"] > CHECKPOINT_FORMAT:
        raise UsageError(
            f"{path} has format {described['format']}, but this graphzoo reads {CHECKPOINT_FORMAT}; "
            f"install {_version(described, 'a newer version')}"
        )
    _check_parts(described, _PARTS, path)
    try:
        GraphSpec.from_dict(described["spec"])
    except (TypeError, ValueError) as error:
        raise UsageError(f"{_unusable(path, 'spec')} ({error})") from error
    data = described.get("data") or {}
    if not isinstance(data, dict):
        raise UsageError(_unusable(path, "data"))
    if (near := data.get("neighbourhoods")) is not None:
        try:
            NeighbourhoodSpec.from_dict(near)
        except ValueError as error:
            raise UsageError(f"{_unusable(path, 'data.neighbourhoods')} ({error})") from error
    return checkpoint


def _check_parts(described: dict[str, Any], parts: Mapping[str, Any], path: Path) -> None:
    for name, type_ in parts.items():
        value: Any = described
        for key in name.split("."):
            value = value.get(key)
        # lists are of names
        names = value if type_ is list and isinstance(value, list) else ()
        if not isinstance(value, type_) or not all(isinstance(text, str) for text in names):
            raise UsageError(_unusable(path, name))


def build_task(
    checkpoint: dict[str, Any], source: Path, *, trust: bool = False
) -> KGCompletion | LinkPrediction | NodeClassification:
    """The task of a checkpoint, in evaluation mode.

    Raises:
        UsageError: if a class is not trusted or of the wrong kind, or the weights do not fit the settings.
    """
    from graphzoo.tasks import Task

    described = checkpoint["graphzoo"]
    task_class: Any = load_class(described["task"], source, trust=trust)
    if not issubclass(task_class, Task) or not inference_of(task_class):
        titles = ", ".join(row.title for row in TASKS.values() if row.inference)
        raise UsageError(f"{source}: prediction is for {titles}; this is a {described['task']}")
    _check_parts(described, task_class.described, source)
    encoder_path = described["encoder"]["class_path"]
    settings = dict(described["encoder"]["init_args"])
    encoder_class = load_class(encoder_path, source, trust=trust)
    if not issubclass(encoder_class, task_class.accepts):
        kinds = " or ".join(kind.__name__ for kind in task_class.accepts)
        raise UsageError(f"{source}: {encoder_path} is no {kinds}, which {described['task']} needs")
    weights = {
        name.removeprefix("encoder."): value
        for name, value in checkpoint["state_dict"].items()
        if name.startswith("encoder.")
    }
    factory = partial(_build_encoder, encoder_class, settings, weights, described, source)
    # Building draws initial weights, which the stored ones replace; the caller's random state stays.
    with torch.random.fork_rng(devices=[]):
        try:
            task: KGCompletion | LinkPrediction | NodeClassification = task_class.from_checkpoint_dict(
                checkpoint, factory
            )
            return task
        except MisfitError as error:
            raise UsageError(f"{source}: the weights do not fit: {error.reason}") from error
        except (AttributeError, TypeError, ValueError) as error:
            if isinstance(error, UsageError) and str(source) in str(error):
                raise  # of the encoder
            why = str(error) if isinstance(error, ValueError) else _of_another_kind(task_class, checkpoint)
            raise UsageError(f"{source}: the settings of the task cannot be used: {why}") from error
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise UsageError(f"{source}: the weights do not fit: {' '.join(lines[:2])}") from error


def _build_encoder(
    encoder_class: type[Encoder],
    settings: dict[str, Any],
    weights: dict[str, Tensor],
    described: dict[str, Any],
    source: Path,
    spec: GraphSpec,
) -> Encoder:
    """Build the encoder of a checkpoint; first check without memory that the weights fit it."""
    path = described["encoder"]["class_path"]
    try:
        outline = outlined(lambda: encoder_class(spec, **settings), len(weights))
        fits = outline is None or not _differences(outline, weights)
        encoder = build_bounded(lambda: encoder_class(spec, **settings), weights) if fits else None
    except TooLargeError as error:
        raise UsageError(f"{source}: the weights do not fit {path}: {error}") from error
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{source}: {path} of this version refuses the settings that graphzoo "
            f"{_version(described, 'unknown')} stored: {error}"
        ) from error
    except Exception as error:  # code of somebody else, which may raise anything
        if is_out_of_memory(error):
            raise
        raise UsageError(f"{source}: {path} cannot be built: {type(error).__name__}: {error}") from error
    if encoder is None or _differences(encoder, weights):
        raise UsageError(f"{source}: {_explain(encoder_class, spec, settings, weights)}")
    return encoder


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in weights.items()}


def _differences(encoder: nn.Module, weights: dict[str, Tensor]) -> list[str]:
    """Names that are missing on either side or differ in shape."""
    built, stored = _shapes(encoder.state_dict()), _shapes(weights)
    return [name for name in {**built, **stored} if built.get(name) != stored.get(name)]


def _explain(
    encoder_class: Any, spec: GraphSpec, settings: dict[str, Any], weights: dict[str, Tensor]
) -> str:
    """Name the one setting whose change would make the weights fit, or else the first difference."""
    with torch.device("meta"):
        encoder = encoder_class(spec, **settings)
    built, stored = _shapes(encoder.state_dict()), _shapes(weights)
    for name, value in settings.items():
        for other in _alternatives(value, built, stored):
            if _fits(encoder_class, spec, {**settings, name: other}, weights):
                return f"the settings say {name}={value!r}, but the weights are those of {name}={other!r}"
    for fact in ("num_relations", "in_channels", "max_subgraph_nodes"):
        value = getattr(spec, fact)
        for other in _alternatives(value, built, stored):
            changed = GraphSpec.from_dict({**spec.to_dict(), fact: int(other)})
            if _fits(encoder_class, changed, settings, weights):
                return f"the graph has {fact}={value}, but the weights are those of {other}"
    name = _differences(encoder, weights)[0]
    return (
        f"the weights do not fit {encoder_class.__name__}: {name} is {stored.get(name, 'missing')} "
        f"in the file, {built.get(name, 'unknown')} by its settings"
    )


def _alternatives(
    value: Any, built: dict[str, tuple[int, ...]], stored: dict[str, tuple[int, ...]]
) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if not isinstance(value, int):
        return []
    candidates = {
        stored_size * value // built_size
        for name in built.keys() & stored.keys()
        for built_size, stored_size in zip(built[name], stored[name], strict=False)
        if built_size != stored_size and built_size
    }
    # A different number of layers shows in the numbers inside the names.
    candidates |= {int(number) + 1 for name in stored for number in re.findall(r"\.(\d{1,4})\.", name)}
    return sorted(candidates - {0, value})[:_MOST_ALTERNATIVES]


def _fits(encoder_class: Any, spec: GraphSpec, settings: dict[str, Any], weights: dict[str, Tensor]) -> bool:
    try:
        outline = outlined(lambda: encoder_class(spec, **settings), len(weights))
        return outline is not None and not _differences(outline, weights)
    except (TypeError, ValueError, RuntimeError):
        # Settings that cannot be built are not the ones the weights were trained with.
        return False


def _of_another_kind(task_class: Any, checkpoint: dict[str, Any]) -> str:
    """Name the settings whose values have other types than the task's defaults."""
    usual = defaults_of(task_class)
    settings = checkpoint.get("hyper_parameters")
    odd = [
        f"{name}={value!r}"[:100]
        for name, value in (settings.items() if isinstance(settings, dict) else ())
        if name in usual
        and isinstance(usual[name], int | float | str)
        and isinstance(value, str | int | float) != isinstance(value, type(usual[name]) | int)
    ]
    return f"a value has a type that the task does not take ({', '.join(odd) or 'it is not known which'})"


def _unusable(path: Path, name: str) -> str:
    return f"{path}: its description has no usable {name!r}; train the run again with graphzoo fit"


def _version(described: dict[str, Any], otherwise: str) -> str:
    """The graphzoo version that wrote a description."""
    versions = described.get("versions")
    return str(versions.get("graphzoo", otherwise)) if isinstance(versions, dict) else otherwise
