"""`graphzoo.fit`: the command `graphzoo fit` from Python, with the same options and run directories."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphzoo.catalog.presets import find_preset
from graphzoo.catalog.tasks import task_of, task_of_data
from graphzoo.datasets.in_memory import GivenData, given_data
from graphzoo.encoders.pretrained import WEIGHTS, read_pretrained
from graphzoo.errors import UsageError
from graphzoo.inference.loading import load
from graphzoo.runs.directory import GIVEN_DATA, choose_run_directory, is_child, missing_folders
from graphzoo.training.launch import run_for_caller
from graphzoo.training.options import FLAGS, whole_option
from graphzoo.training.plan import Plan, make_plan
from graphzoo.training.start import one_device
from graphzoo.training.unchanged import unchanged_process

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from graphzoo.inference import KGModel, LinkModel, NodeModel


# Kind of encoder to assume for exported weights, by the kind of their task.
_LEARNT_BY = {"links": "pair", "nodes": "node", "kg": "query"}
_LENGTHS = ("max_epochs", "max_steps", "limit_train_batches")
_NOTHING = {f"--trainer.{name}={zero}" for name in _LENGTHS for zero in ("0", "0.0")}
_UNFIT = {
    "dry_run": "it trains no model; on the command line: graphzoo fit --dry-run",
    "print_config": "it trains no model; on the command line: graphzoo fit --print_config",
    "help": "the options of a model: graphzoo fit --model NAME --help",
    "debug": "errors are raised here, with their traceback",
    "trainer.fast_dev_run": "it leaves no checkpoint; give max_epochs=1",
}


def fit(
    model: str | None = None,
    data: Any = None,
    *,
    callbacks: Callback | Iterable[Callback] = (),
    **overrides: Any,
) -> KGModel | LinkModel | NodeModel:
    """Train a model, test its best checkpoint, and return it.

    This is `graphzoo fit` in this process: settings, recipes, checkpoints, results.json and the run directory
    are the command's. Random states, signal handlers and log levels of the process are what they were before.

    Args:
        model: Name of a model (`graphzoo list model`), as for `--model`. None with `ckpt_path`, which brings
            its own.
        data: Name of a data set, as for `--data`; or data in memory: triples (a DataFrame, an array [n, 3], a
            list of (head, relation, tail), or a dict of train, valid and test), a PyG `Data`, a networkx
            graph, an edge_index [2, E], or a KnowledgeGraph, NodeGraph or LinkGraph. Labelled nodes (`y` of
            PyG, "y" or "label" of networkx) are classified by node encoders; other encoders predict
            links. The run keeps a copy, data.npz, so that it can be loaded, tested and resumed by itself.
        callbacks: A callback of Lightning, or several, beside the command's own.
        **overrides: Options of the command by name: `max_epochs=5`, `seed=1`, `run_dir="mine"`,
            `recipe="none"`, `no_test=True`, `quiet=True`, and with a dot as `**{"model.lr": 1e-3}`. Lists and
            dictionaries are written as JSON. One device is used unless `**{"trainer.devices": ...}` says
            more.

    Returns:
        The model as `graphzoo.load` returns it, on the device it was trained on: `predict` answers queries,
        `metrics` has the test scores, `report()` writes the HTML report, `save()` exports the model, and
        `run_dir` is the folder of the run.

    Raises:
        UsageError: (a ValueError) for unknown names, wrong settings and data that cannot be used.
        KeyboardInterrupt: after Ctrl-C, once the state is saved; the text says how to resume.

    >>> model = graphzoo.fit("knowformer", "umls", max_epochs=5)  # doctest: +SKIP
    """
    given: Any = callbacks
    several = [given] if hasattr(given, "on_train_start") else [*(given or ())]
    if not all(hasattr(callback, "on_train_start") for callback in several):
        raise UsageError(f"callbacks must be objects such as EarlyStopping(...), got {given!r}")
    words = [*_words({"model": model}), *_words(overrides)]
    if nothing := next((word for word in words if word in _NOTHING), ""):
        raise UsageError(f"{nothing} trains nothing, and fit returns a trained model\nGive 1 or more")
    with unchanged_process():
        if data is None or isinstance(data, str | os.PathLike):
            plan = _plan([*words, *_words({"data": data})], several)
            state = run_for_caller(plan)
        else:
            encoder = _encoder_of(model, overrides.get("ckpt_path"))
            state = _fit_given(given_data(data, encoder, _split_index(words)), words, several)
    assert state.run_dir is not None
    return load(state.run_dir, device=state.device, trust=state.plan.trust)


def _plan(words: Sequence[str], callbacks: Iterable[Callback]) -> Plan:
    plan = make_plan("fit", one_device(list(words)))
    preset = next((use for use in plan.used if use.startswith("data ")), "").removeprefix("data ")
    if preset:
        task = task_of_data(preset)
        if task is not None and not task.inference:
            raise UsageError(
                f"data {preset} is for {task.title}, whose models cannot be loaded to predict\n"
                f"Train it with the command: graphzoo fit --data {preset}"
            )
    return replace(plan, callbacks=tuple(callbacks))


def _fit_given(given: GivenData, words: list[str], callbacks: Iterable[Callback]) -> Any:
    """Train on data in memory: on the file that they are written to, beside what the run writes."""
    words = [*words, f"--data={given.kind}"]
    if given.is_directed and not any(word.startswith("--data.directed") for word in words):
        words.append("--data.directed=true")
    if taken := [word for word in words if word.startswith("--data.path")]:
        raise UsageError(f"{taken[0]} names a file, and data= is in memory: give one of the two")
    planned = _plan([*words, "--data.path=?"], callbacks)
    run = choose_run_directory(planned.model or "model", planned.data, wanted=planned.run_dir).absolute()
    made, path = missing_folders(run), run / GIVEN_DATA
    if not is_child():  # a process of this run, which the first one has written it for
        run.mkdir(parents=True, exist_ok=True)
        given.write(path)
    try:
        return run_for_caller(_plan([*words, f"--run_dir={run}", f"--data.path={path}"], callbacks))
    except BaseException:
        if not (run / "config.yaml").exists():
            path.unlink(missing_ok=True)
            for folder in made:
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
        raise


def _split_index(words: list[str]) -> int:
    """The split that is asked for; what is no number is refused later."""
    options = ("--data.split_index", "--data.init_args.split_index")
    asked = [value for name, _, value in (word.partition("=") for word in words) if name in options]
    return int(asked[-1]) if asked and asked[-1].isdecimal() else 0


def _encoder_of(model: str | None, weights: Any) -> str:
    """Kind of a model's encoder, where its preset says it, or exported weights what they were trained for."""
    if isinstance(weights, str | os.PathLike) and (Path(weights) / WEIGHTS).is_file():
        task = task_of(read_pretrained(weights)["graphzoo"].get("task"))
        return _LEARNT_BY.get(task.kind, "") if task is not None else ""
    try:
        return "" if model is None else find_preset("model", model).header.get("kind", "")
    except UsageError:
        return ""  # a plug-in, or a name that the plan refuses


def _words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as words of a command line."""
    words = []
    for key, value in settings.items():
        name = key.lstrip("-")
        flag = name.replace("-", "_")
        if flag in _UNFIT and value:
            raise UsageError(f"graphzoo.fit takes no {key}: {_UNFIT[flag]}")
        option = whole_option(name)
        if flag in FLAGS or " " in option:
            if not isinstance(value, bool):
                raise UsageError(f"{key} is True or False, got {value!r}")
            words += (f"--{flag}" if flag in FLAGS else option).split() if value else []
        elif value is not None or "." in option:
            words.append(f"{option}={_text(key, value)}")
    return words


def _text(key: str, value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    try:
        return json.dumps(value, default=os.fspath)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{key} takes plain values, as on the command line, got a {type(value).__name__}\n"
            "A class is named by its path; objects of Lightning go in callbacks=[...]"
        ) from error
