"""`graphzoo export RUN --out DIR`: a trained model as a folder to share, without pickles."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphzoo.catalog.tasks import inference_of, task_of
from graphzoo.catalog.weights import FORMATS, PROGRAMS
from graphzoo.encoders.pretrained import (
    CARD,
    WEIGHTS,
    card_header,
    copy_folder,
    facts_table,
    new_folder,
    write_pretrained,
    writing,
)
from graphzoo.errors import UsageError, check_choice
from graphzoo.runs.published import shown_metrics
from graphzoo.runs.results_file import SELECTED, is_tested, read_results, selection_of
from graphzoo.system.files import NO_ROOM
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.regular_files import copy_regular

if TYPE_CHECKING:
    from torch import Tensor

    from graphzoo.tasks import Task


# What the settings of a task must not carry to others.
_PRIVATE = ("root", "path")
# What `save_artifacts` of the data modules writes beside meta.json; nothing else is copied.
GRAPH_FILES = (
    "knowledge_graph.npz",
    "inference_graph.npz",
    "node_graph.npz",
    "link_graph.npz",
    "projection.npy",
)
# Far above any graph that a run keeps a copy of.
_MOST_GRAPH = 1 << 36


def export_run(
    run: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    to: str = "safetensors",
    licence: str = "",
    reverse_weight: float | None = None,
    weights: Mapping[str, Tensor] | None = None,
    trust: bool = False,
) -> Path:
    """Write a trained model to a new folder.

    Args:
        run: A run directory or a checkpoint in one. Of a run directory, the best checkpoint is taken.
        folder: A folder that does not exist yet or is empty.
        to: "safetensors": for `graphzoo.load` and `Encoder.from_pretrained`. "torch.export": a program for
            `torch.export.load`, with its inputs described in `inputs.json`. "onnx": the same for onnxruntime.
        licence: Licence of the weights, for the model card.
        reverse_weight: Weight of reverse queries in knowledge graphs; None for the run's. With 0 the model
            answers only forward queries, like an exported program.
        weights: `state_dict` of the task to export instead of the checkpoint's. If it differs, the model card
            has no test scores.
        trust: Whether to import classes that the checkpoint names even if they are neither registered nor
            imported.

    Returns:
        The folder.

    Raises:
        UsageError: if the checkpoint cannot be used, its weights do not fit its settings, `folder` has
            content, or `reverse_weight` is given for a model that is not of a knowledge graph.
    """
    # here, not above: help and mistakes are answered before anything heavy is imported
    from graphzoo.inference.checkpoint import build_task, find_checkpoint, read_checkpoint

    check_choice("to", to, FORMATS)
    file, place = find_checkpoint(run)
    exported = file.name == WEIGHTS
    checkpoint = read_checkpoint(file)
    own = None if weights is None else _as_in(checkpoint["state_dict"], weights)
    changed = own is not None and _differ(checkpoint["state_dict"], own)
    is_the_same = not changed and reverse_weight is None and not licence
    if exported and to == "safetensors" and is_the_same:
        raise UsageError(f"{run} is exported already\nCopy the folder {file.parent}")
    task = build_task(checkpoint, file, trust=trust)  # what does not load here would load nowhere
    described = {key: _shareable(value) for key, value in checkpoint["graphzoo"].items()}
    info = task_of(task)
    settings = {k: v for k, v in (checkpoint.get("hyper_parameters") or {}).items() if k != "encoder"}
    results = checkpoint.get("results") or {} if exported else _results(place, checkpoint)
    if own is not None and changed:
        task.load_state_dict(own)
        results, checkpoint["state_dict"] = {}, own
    # of the run itself, where an export is exported again
    first = checkpoint.get("exported") or {}
    changed, licence = changed or bool(first.get("changed")), licence or str(first.get("licence") or "")
    evaluated = first.get("reverse_weight", settings.get("reverse_weight")) or 0.0
    if reverse_weight is not None:
        _set_reverse_weight(task, reverse_weight)
        settings["reverse_weight"] = reverse_weight
    ends = _ends_of_card(evaluated, settings.get("reverse_weight") or 0.0, tested=bool(results))
    ends = " Its weights were changed after the training." + ends if changed else ends
    near = _asked_near(task, described) if to in PROGRAMS else None
    if near is not None:
        are_there = any("/whole_graph/" in name for name in results.get("metrics", ()))
        scores = ": scores of `whole_graph` are its own" if are_there else "; these scores are not its own"
        ends += f" The program asks the whole graph, where the run asks neighbourhoods of {near:,} nodes"
        ends += f"{scores if results else ''}."
    kept = {"licence": licence, "changed": changed}
    kept |= {"reverse_weight": evaluated} if "reverse_weight" in settings else {}
    content = {"graphzoo": described, "hyper_parameters": settings, "results": results, "exported": kept}
    with tempfile.TemporaryDirectory() as scratch:
        graph = None if place is None else _copy_graph(place / "graph", Path(scratch) / "graph")
        name = Path(folder).absolute().name
        card = partial(_card, described, results, ends, info.title if info else type(task).__name__, licence)
        if to in PROGRAMS:
            _export_program(task, Path(folder), to, graph, described, near, card, place)
            return Path(folder)
        module, _, encoder = described["encoder"]["class_path"].rpartition(".")
        call = info.example if info else "model.predict(...)"
        use = _USE.format(name=name, call=call, module=module, encoder=encoder)
        return write_pretrained(folder, checkpoint["state_dict"], content, card=card(use), graph=graph)


def _as_in(kept: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model in memory under the names and in the types of its file's."""
    named = {name.replace("_orig_mod.", ""): weight for name, weight in weights.items()}  # of torch.compile
    others = sorted(kept.keys() ^ named.keys())
    others += [name for name in kept.keys() & named.keys() if kept[name].shape != named[name].shape]
    if others:
        raise UsageError(
            f"the model's weights have other names or shapes than those of its file: {others[0]}\n"
            "Save them with torch.save(model.task.state_dict(), ...), or load the run again"
        )
    return {name: weight.detach().to("cpu", kept[name].dtype) for name, weight in named.items()}


def _differ(kept: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> bool:
    """Whether the weights of a model are others than those of its file."""
    import torch

    return not all(torch.equal(kept[name], weight) for name, weight in weights.items())


def _export_program(
    task: Task,
    folder: Path,
    to: str,
    graph: Path | None,
    described: Mapping[str, Any],
    near: int | None,
    card: Callable[[str], str],
    run: Path | None,
) -> None:
    """Write a program that runs without graphzoo, its inputs described beside it."""
    from graphzoo.inference.program import write_program

    with new_folder(folder) as part:
        with writing(folder):
            write_program(task, part, to)
            if graph is not None:
                copy_folder(graph, part / "graph")
            # of a large data set a run has no copy, and neither has its program
            has_copy = any((part / "graph" / name).is_file() for name in GRAPH_FILES if name.endswith(".npz"))
            inputs = _inputs_of_graph(task, described, run) if run is not None and has_copy else {}
            use = _describe_program(part, folder.absolute().name, to, described, near, inputs)
            (part / CARD).write_text(card(use), encoding="utf-8")


def _inputs_of_graph(task: Task, described: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Arrays that a program takes of the run's graph, made by graphzoo alone; empty without any."""
    from graphzoo.encoders.base import PairEncoder
    from graphzoo.inference.program import inputs_of
    from graphzoo.tasks import KGCompletion

    # an example of facts reads these themselves, and pairs come as subgraphs
    if isinstance(task, KGCompletion) or isinstance(task.encoder, PairEncoder):
        return {}
    cls: Any = getattr(import_module("graphzoo.inference"), inference_of(type(task)))
    return inputs_of(cls.of_checkpoint(dict(described), task, run, None))


def _asked_near(task: Task, described: Mapping[str, Any]) -> int | None:
    """Nodes of the neighbourhoods that a run's queries see in evaluation; None where they see all nodes."""
    from graphzoo.encoders.base import QueryEncoder

    if not isinstance(task.encoder, QueryEncoder):
        return None
    data = described.get("data") or {}
    spec, settings = data.get("neighbourhoods") or {}, data.get("settings") or {}
    size = spec.get("num_nodes") or settings.get("eval_neighbourhood") or settings.get("neighbourhood")
    whole = spec.get("protocol") == "whole_graph"
    return size if isinstance(size, int) and not whole and size < described["spec"]["num_nodes"] else None


def _set_reverse_weight(task: Any, weight: float) -> None:
    if not hasattr(task, "reverse_weight"):
        raise UsageError(
            f"--reverse-weight is for knowledge graphs; this is a {type(task).__name__}\nLeave it out"
        )
    try:
        task.reverse_weight = weight
    except ValueError as error:
        raise UsageError(str(error)) from None


def _describe_program(
    part: Path,
    name: str,
    to: str,
    described: Mapping[str, Any],
    near: int | None,
    arrays: Mapping[str, Any],
) -> str:
    """Write the names that the program's numbers stand for, and how to use both; the same for the card."""
    from graphzoo.inference.plain_names import write_names
    from graphzoo.inference.program import DESCRIPTION

    multi = bool(described["spec"].get("is_multi_label"))
    description = json.loads((part / DESCRIPTION).read_text(encoding="utf-8"))
    if near is not None:
        description["output"] += f", asked on the whole graph; the run asks neighbourhoods of {near:,} nodes"
    inputs, classes = description["inputs"], described.get("classes", ())
    names = write_names(part / "graph", name, classes, is_multi_label=multi, takes=inputs, inputs=arrays)
    place = f"{name}/{PROGRAMS[to]}"
    if to == "onnx":
        module, opened = "onnxruntime", f"program = onnxruntime.InferenceSession({place!r})"
        call = f"(scores,) = program.run(None, {{{', '.join(f'{key!r}: {key}' for key in inputs)}}})"
    else:
        module, opened = "torch", f"program = torch.export.load({place!r}).module()"
        call = f"scores = program(*map(torch.from_numpy, ({', '.join(inputs)}))).detach().numpy()"
    before, after = ([], []) if names is None else (names.before, names.after)
    made = {name.strip() for line in before for name in line.partition(" = ")[0].split(",")}
    if missing := [name for name in inputs if name not in made]:
        before = [*before, f"# {', '.join(missing)}: of your graph, inputs.json says what they are"]
    lines = [opened, *before, call, *after]
    needed = [kind for kind in ("json", "numpy", module) if any(f"{kind}." in line for line in lines)]
    example = [*(f"import {kind}" for kind in needed), *lines]
    files = {} if names is None else {"files": names.described}
    text = json.dumps({**description, **files, "example": example}, indent=1)
    (part / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
    note = "" if names is None else "".join(f" `{file}`: {what}." for file, what in names.described.items())
    return _PROGRAM_USE.format(example="\n".join(example), names=note)


def _copy_graph(source: Path, target: Path) -> Path | None:
    """The run's graph without the places on this machine that it was read from.

    None for a large graph from own files, of which a run keeps no copy: who loads the model gives it.
    """
    try:
        meta = read_json(source / "meta.json")
        if meta.get("graph", "") is None and meta.get("path") is not None:
            return None
        meta |= {key: None for key in _PRIVATE if key in meta}
        target.mkdir()
        for name in GRAPH_FILES:
            if os.path.lexists(source / name):
                copy_regular(source / name, target / name, most=_MOST_GRAPH)
        (target / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
    except (OSError, ValueError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            what = f"{tempfile.gettempdir()} has no room for a copy of the run's graph: {error.strerror}"
            raise UsageError(f"{what}\nMake room, or set TMPDIR to a folder on another disk") from error
        raise_if_not_the_file(error, source / "meta.json")
        if isinstance(error, OSError) and error.filename not in (None, str(source / "meta.json")):
            what = f"{error.filename} cannot be exported: {error.strerror}"
            raise UsageError(f"{what}\nA run must hold files that it wrote itself, not links") from error
        raise UsageError(f"{source / 'meta.json'} is damaged ({error})\nTrain the run again") from error
    return target


def _shareable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shareable(item) for key, item in value.items() if key not in _PRIVATE}
    return value


def _results(place: Path | None, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The run's test scores, if this checkpoint was the one that was tested."""
    path = None if place is None else place / "results.json"
    if path is None or not path.is_file():
        return {}
    try:
        results = read_results(path)
        if not is_tested(results, checkpoint):
            return {}
        tested_epoch = checkpoint.get("epoch")
        figures = {name: float(results["metrics"][name]) for name in shown_metrics(results["metrics"])}
        tested = {name: value for name, value in figures.items() if math.isfinite(value)}
        kept = ("model", "data", "data_name", "recipe", "seed", "num_parameters", "config_hash", "split")
        evaluated = {"checkpoint_epoch": tested_epoch, "selection": selection_of(results)}
        return {"metrics": tested, **{key: results.get(key) for key in (*kept, "protocol")}, **evaluated}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise_if_not_the_file(error, path)
        raise UsageError(f"{path} is damaged ({error})\nMove it away, or test the run again") from error


_CARD = """{header}

# {encoder} on {data}

A {encoder} for {words}, trained with graphzoo on {data}.

## Use

{use}

## Results

{results}

## Data and settings

{facts}

## Licence

{licence}
"""

_SELECTED = {
    SELECTED[0]: "the checkpoint was chosen on validation",
    **{words: f"the checkpoint is that of the {words}" for words in SELECTED[1:]},
}

_USE = """```python
import graphzoo

model = graphzoo.load({name!r})
{call}
```

The encoder alone, in a model of your own:

```python
from {module} import {encoder}

encoder = {encoder}.from_pretrained({name!r})
```"""
_PROGRAM_USE = """```python
{example}
```

`inputs.json` says what the arrays are.{names}"""


def _card(
    described: Mapping[str, Any], results: Mapping[str, Any], ends: str, title: str, licence: str, use: str
) -> str:
    """A model card: what it is, how it was made and evaluated, how to use it."""
    encoder = described["encoder"]["class_path"].rpartition(".")[2]
    trained = described.get("data") or {}
    spec = described["spec"]
    data = results.get("data_name") or trained.get("name") or results.get("data") or "own data"
    facts = {
        "data": data,
        "data fingerprint": trained.get("fingerprint"),
        "recipe": results.get("recipe"),
        "nodes": spec.get("num_nodes"),
        "relations": spec.get("num_relations") or None,
        "classes": spec.get("num_classes") or None,
        "parameters": results.get("num_parameters"),
        "versions": ", ".join(f"{key} {value}" for key, value in (described.get("versions") or {}).items()),
        **{f"`{key}`": value for key, value in described["encoder"]["init_args"].items()},
    }
    return _CARD.format(
        header=card_header([encoder.lower(), title.replace(" ", "-")], licence),
        words=title.replace("-", " "),
        encoder=encoder,
        data=data,
        use=use,
        results=_results_of_card(results) + ends,
        facts=facts_table(facts),
        licence=licence or "Not stated by who exported it; the data may have a licence of their own.",
    )


def _results_of_card(results: Mapping[str, Any]) -> str:
    metrics = results.get("metrics") or {}
    if not metrics:
        untested = "This checkpoint was not tested."
        return (
            "No metric is defined on its test split, for example if a class is missing."
            if results
            else untested
        )
    epoch = results.get("checkpoint_epoch")
    selected = _SELECTED.get(results.get("selection") or "", "how the checkpoint was chosen is not known")
    second = (results.get("split") or {}).get("validate_on") == "inference"
    if second and results.get("selection") == SELECTED[0]:
        selected += " of the second graph"
    chosen = selected + ("" if epoch is None else f", epoch {epoch + 1}")
    rows = "\n".join(f"| {key} | {value:.4f} |" for key, value in metrics.items())
    tested = f"Test split, one run (seed {results.get('seed')})"
    where = f", evaluated {results['protocol']}" if results.get("protocol") else ""
    return f"| metric | value |\n|---|---|\n{rows}\n\n{tested}{where}; {chosen}."


def _ends_of_card(evaluated: float, exported: float, *, tested: bool) -> str:
    """Which queries the run and its export score; nothing where both score forward queries only."""
    if not (evaluated or exported):
        return ""
    run, export = (
        f"queries in both directions (`reverse_weight` {weight:g})" if weight else "forward queries"
        for weight in (evaluated, exported)
    )
    if evaluated == exported:
        return f" It scores {export}{', as in this test' if tested else ''}."
    if not tested:
        return f" It scores {export}, where the run scores {run}."
    return f" These scores are those of {run}; the exported model scores {export}."
