"""The settings of a run that differ from its presets, and the command that repeats the run."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from graphzoo.catalog.classes import defaults_of, load_class
from graphzoo.catalog.presets import Preset, find_preset, list_presets
from graphzoo.catalog.settings import flatten, read_settings, word_of, words_of
from graphzoo.errors import UsageError
from graphzoo.runs.groups import TOLD
from graphzoo.runs.published import find_recipe
from graphzoo.runs.record import Record
from graphzoo.runs.results_file import shaping_callbacks

# Settings that change no score: where data lie, and how a run is watched.
_NO_MATTER = {
    *(f"data.{name}" for name in ("root", "download", "num_workers")),
    *(f"trainer.enable_{name}" for name in ("progress_bar", "model_summary", "checkpointing")),
    *(f"trainer.{name}" for name in ("accelerator", "devices", "logger", "callbacks", "profiler")),
    *(f"trainer.{name}" for name in ("log_every_n_steps", "default_root_dir")),
}
# A table names at most so many changed settings, and values of at most so many letters.
_MOST_NAMED, _MOST_LETTERS = 3, 20
# Changed settings that leave the protocol as it is: which split of the row a run has, where the data lie, how
# many samples are evaluated at once, and on how many an epoch is chosen.
_SAME_PROTOCOL = {
    *(f"data.{name}" for name in ("split_index", "path", "micro_batch_size", "eval_batch_size")),
    *(f"data.max_valid_{name}" for name in ("triples", "pairs")),
}
# Of the Trainer, beside what tells runs apart.
_TRAINING = ("trainer.overfit_batches", "trainer.callbacks")
_ENCODER = "model.encoder.class_path"
_SECTIONS = ("model", "data", "trainer", "optimizer", "lr_scheduler")


def changed_settings(record: Record) -> dict[str, tuple[Any, Any]]:
    """Settings that differ from the usual, name -> (value, usual value); empty without config.yaml.

    The usual value is that of the run's presets, or else the default of the class.
    """
    changes = {
        name: value
        for name, value in flatten(record.config).items()
        if name.partition(".")[0] in _SECTIONS and name not in _NO_MATTER
    }
    usual = _defaults(record.config) | _of_presets(record)
    if record.config:
        recipe = {"trainer": {"callbacks": usual.get("trainer.callbacks")}}
        changes["trainer.callbacks"] = _plain_callbacks(record.config)
        usual["trainer.callbacks"] = _plain_callbacks(recipe)
    return {
        name: (value, usual.get(name))
        for name, value in changes.items()
        if not _same(value, usual.get(name)) and not name.endswith(".seed")
    }


def what_differs(record: Record, *, ablation: bool = False) -> str:
    """How a run's protocol differs from that of the published score of its recipe, in a few words.

    These are the differences that the recipe states, and settings that differ from the recipe: limits, the
    length of training, and any of model or data. In an `ablation`, settings of the model are not named, since
    the published score is for these changes. Empty if nothing differs, and for a run without a recipe.
    """
    recipe = _recipe(record)
    if recipe is None:
        return ""
    # recorded when the run was evaluated, and valid as long as the recipe has not changed
    known = None if ablation else record.result.get("changed")
    if not isinstance(known, str) or not _is_as_told(record):
        known = changed_protocol(record, ablation=ablation)
    return "; ".join(filter(None, [recipe.header.get("differs", ""), known]))


def _is_as_told(record: Record) -> bool:
    """Whether the presets are still those of the evaluation; true if one cannot be read."""
    try:
        return bool(record.result.get("presets_digest") == presets_digest(record))
    except (OSError, UsageError):
        return True


def changed_protocol(record: Record, *, ablation: bool = False) -> str:
    """The settings of a run that are not its recipe's and make another protocol, in a few words.

    Reads the defaults of the run's classes, and imports torch for them.
    """
    if _recipe(record) is None:
        return ""
    changed = {
        name: values
        for name, values in changed_settings(record).items()
        if name.startswith((*TOLD, "optimizer", "lr_scheduler", *_TRAINING))
        and name not in _SAME_PROTOCOL
        and not (name == "data.protocol" and _is_ogbs(values, record))
        and not (ablation and name.startswith("model."))
    }
    # another encoder weighs most, then what leaves part of the data out, and the length of training
    order = sorted(
        changed,
        key=lambda name: (
            name != _ENCODER,
            not name.startswith("trainer.limit_"),
            "max_epochs" not in name,
        ),
    )
    texts = [_change(name, *changed[name]) for name in order[:_MOST_NAMED]]
    more = [f"and {len(order) - _MOST_NAMED} more"] if len(order) > _MOST_NAMED else []
    return ", ".join([*texts, *more])


def _is_ogbs(values: tuple[Any, Any], record: Record) -> bool:
    """Whether "original" and the usual protocol both mean that of OGB, whose links have no other original."""
    split = record.result.get("split")
    evaluated = split.get("name") if isinstance(split, dict) else None
    return evaluated == "ogb" and set(values) <= {None, "original", "ogb"}


def _change(name: str, value: Any, usual: Any) -> str:
    if name == _ENCODER:
        return f"encoder {str(value).rpartition('.')[2]}"
    if name == "trainer.callbacks":
        texts = [" ".join(map(str, _words_of(entry))) for entry in value or []]
        return ", ".join(texts) or "no " + " ".join(map(str, _words_of(usual[0])))
    words = " ".join(filter(None, [name, _short(value)]))
    return words if usual is None or not _short(usual) else f"{words} (recipe {_short(usual)})"


def _words_of(callback: Mapping[str, Any]) -> list[Any]:
    """`EMAWeightAveraging decay 0.9`."""
    given = callback.get("init_args", {}).items()
    return [callback["class_path"].rpartition(".")[2], *(word for pair in given for word in pair)]


def _short(value: Any) -> str:
    """A plain value; empty where it is too long for a table."""
    text = word_of(value)
    return text if len(text) <= _MOST_LETTERS else ""


def repeat_command(record: Record) -> str:
    """A command line that trains the run again: names, seed and the settings that were changed."""
    words = ["graphzoo", str(record.result.get("command") or "fit")]
    words += ["--model", record.model, "--data", record.data, *_recipe_words(record)]
    if record.seed is not None:
        words += ["--seed", str(record.seed)]
    words += words_of(record.own_seeds)
    words += _products_words(record)
    if words[1] != "fit" and record.result.get("checkpoint"):
        words += ["--ckpt_path", str(record.result["checkpoint"])]
    changed = {name: value for name, (value, _) in changed_settings(record).items()}
    return shlex.join([*words, *words_of(changed)])


def repeat_runs(records: Sequence[Record]) -> str:
    """A command line that repeats several runs of one setting, and averages them.

    The runs differ only in seed and split. If they are not every seed on every split, or are tests of given
    checkpoints, the command repeats only the first one. If one was resumed with other settings, a text says
    that no command repeats it.
    """
    first = records[0]
    trained = first.result.get("command", "fit") == "fit"
    if trained and (resumed := next((record.resumed for record in records if record.resumed), "")):
        return f"resumed {resumed}: no single command repeats it"
    seeds = sorted({record.seed for record in records if record.seed is not None})
    splits = sorted({record.split for record in records if record.split is not None})
    several = len(splits) > 1
    whole = len(records) == len(seeds) * max(1, len(splits))
    own_seeds = any(record.own_seeds for record in records)
    if len(records) == 1 or not whole or own_seeds or not trained:
        return repeat_command(first)
    words = ["graphzoo", "reproduce", first.model, first.data, *_recipe_words(first), *_products_words(first)]
    words += ["--seeds", ",".join(map(str, seeds))]
    if several:
        words += ["--splits", ",".join(map(str, splits))]
    changed = {name: value for name, (value, _) in changed_settings(first).items()}
    if several:
        changed.pop("data.split_index", None)
    return shlex.join([*words, *words_of(changed)])


def _products_words(record: Record) -> list[str]:
    return ["--matmul_precision", record.matmul_precision] if record.matmul_precision else []


def _recipe_words(record: Record) -> list[str]:
    own = f"{record.model}/{record.data}"
    recipe = _recipe(record)
    if recipe is not None and recipe.name != own:
        return ["--recipe", recipe.name.removeprefix(f"{record.model}/")]
    if recipe is None and any(preset.name == own for preset in list_presets("recipe", record.model)):
        return ["--recipe", "none"]  # the settings of a user's recipe file are among the changes
    return []


def _of_presets(record: Record) -> dict[str, Any]:
    """What a run's data, model and recipe presets set."""
    presets = [_recipe(record)]
    for kind, name in (("model", record.model), ("data", record.data)):
        with contextlib.suppress(UsageError):  # a class path, or a preset of another machine
            presets.insert(0, find_preset(kind, name))
    settings: dict[str, Any] = {}
    for preset in filter(None, presets):
        settings |= flatten(read_settings(preset.path))
    return settings


def presets_digest(record: Record) -> str:
    """sha256 of what a run's data, model and recipe presets set, shortened; imports no torch."""
    settings = json.dumps(_of_presets(record), sort_keys=True, default=str)
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


def _recipe(record: Record) -> Preset | None:
    try:
        return find_recipe(record.model, record.recipe, record.data)
    except UsageError:
        return None  # it is no longer there


def _defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Default values in the signatures of the classes that the configuration names."""
    model = config.get("model") or {}
    encoder = (model.get("init_args") or {}).get("encoder") if isinstance(model, dict) else None
    parts = []
    for prefix, described in (("model", model), ("model.encoder", encoder), ("data", config.get("data"))):
        path = described.get("class_path") if isinstance(described, dict) else None
        if isinstance(path, str):
            parts.append((prefix, path))
    return dict(_defaults_of(tuple(parts)))


@functools.cache
def _defaults_of(classes: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """The same of prefixes and class paths; a report asks twice for each of its settings."""
    trainer = load_class("lightning.pytorch.Trainer", "config.yaml")
    usual = {f"trainer.{name}": value for name, value in defaults_of(trainer).items()}
    usual["trainer.use_distributed_sampler"] = False
    for prefix, path in classes:
        try:
            # an unregistered class is not imported for a report
            arguments = defaults_of(load_class(path, "config.yaml"))
        except UsageError:
            continue
        usual |= {f"{prefix}.{name}": value for name, value in arguments.items()}
    return usual


def _plain_callbacks(config: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The callbacks on which scores depend, without arguments that have their default values."""
    plain = []
    for entry in shaping_callbacks(config):
        path = entry["class_path"]
        try:
            usual = defaults_of(load_class(path, "config.yaml"))
        except UsageError:
            usual = {}  # an unregistered class is not imported for a report
        given = entry["init_args"].items()
        arguments = {name: value for name, value in given if usual.get(name) != value}
        plain.append({"class_path": path, **({"init_args": arguments} if arguments else {})})
    return plain or None


def _same(one: Any, other: Any) -> bool:
    if isinstance(other, str) and "${" in other:
        return True  # follows another setting
    if one in (None, [], {}, "") and other in (None, [], {}, ""):
        return True
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(map(str, one)) == list(map(str, other))
    try:
        return float(one) == float(other)  # YAML reads 1e-3 as a word
    except (TypeError, ValueError):
        return str(one) == str(other)
