"""results.json: the results of a run, and which checkpoint they belong to."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphzoo.catalog.classes import public_path
from graphzoo.system.files import write_text_atomically
from graphzoo.system.json_file import read_json

FORMAT = 1

BEST_VALIDATION = "best/validation"
"""Weights & Biases: the best value of the monitored validation metric, whatever it is called."""

# Which checkpoint was evaluated, in the words of results.json; null for another one, or none.
SELECTED = ("best validation", "last epoch", "last epoch, never validated")

# Arguments that differ between machines or between the runs of a row, and are not settings.
_MACHINE = {"root", "download", "num_workers", "seed", "path", "split_index"}
_TRAINER = (
    *("max_epochs", "max_steps", "precision", "gradient_clip_val", "accumulate_grad_batches"),
    *(f"limit_{part}_batches" for part in ("train", "val", "test")),
)
# In the hash only if they are set, so that the hashes of older runs stay the same.
_SET = ("max_time", "overfit_batches")
_OWN = ("optimizer", "lr_scheduler")
# Newer arguments, left out of the hash at these values, so that the hashes of older runs stay the same.
_YOUNGER = {"validate_on": "training", "fact_dropout": 0.0}


# Callbacks that only watch a run or save it: no score depends on them.
_WATCHING = ("Checkpoint", "Monitor", "ProgressBar", "Summary", "PredictionWriter")


def shaping_callbacks(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The callbacks on which a run's scores depend, such as averages of the weights.

    Each is a dict of `class_path` and `init_args`, without arguments that are None.
    """
    given: Any = (config.get("trainer") or {}).get("callbacks") or []
    kept = []
    for entry in given if isinstance(given, list) else [given]:
        described: Any = entry if isinstance(entry, Mapping) else {"class_path": str(entry)}
        path = public_path(str(described.get("class_path")))
        if not path.endswith(_WATCHING):
            arguments = described.get("init_args")
            items = sorted(arguments.items()) if isinstance(arguments, Mapping) else []
            settings = {name: value for name, value in items if value is not None}
            kept.append({"class_path": path, "init_args": settings})
    return kept


def config_hash(config: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that runs with the same settings share, whatever their seed and machine."""
    trainer = config.get("trainer") or {}
    kept = {
        "model": _without(config.get("model"), {"seed"}),
        "data": _without(config.get("data"), _MACHINE),
        "trainer": {name: trainer.get(name) for name in _TRAINER}
        | {name: trainer[name] for name in _SET if trainer.get(name)},
    }
    kept |= {name: config[name] for name in _OWN if config.get(name)}
    if callbacks := shaping_callbacks(config):
        kept["callbacks"] = callbacks
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _without(section: Any, names: set[str]) -> Any:
    if not isinstance(section, Mapping):
        return section
    arguments = section.get("init_args") or {}
    kept = {key: value for key, value in arguments.items() if key not in names}
    if str(section.get("class_path")).endswith(".LinkDataModule") and not kept.get("standardize_features"):
        # older runs left features alone; where own ones are standardised by default the fingerprint tells
        kept.pop("standardize_features", None)
    return {**section, "init_args": {k: v for k, v in kept.items() if k not in _YOUNGER or _YOUNGER[k] != v}}


def is_tested(result: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> bool:
    """Whether the metrics of a results.json are of this checkpoint, by its `epoch` and `global_step`."""
    epoch = result.get("checkpoint_epoch", result.get("best_epoch"))
    step = result.get("checkpoint_step")  # earlier versions did not write it
    return epoch == checkpoint.get("epoch") and step in (None, checkpoint.get("global_step"))


def selection_of(result: Mapping[str, Any]) -> str | None:
    """Which checkpoint the metrics of a results.json are of: one of `SELECTED`, or None."""
    if "selection" in result:
        selection = result["selection"]
        return selection if selection in SELECTED else None
    # earlier versions do not say so themselves
    if result.get("best_epoch") is None:
        return None
    if Path(str(result.get("checkpoint") or "best.ckpt")).name == "best.ckpt":
        return SELECTED[0]
    if result.get("command", "fit") != "fit":
        return None  # what a test was given then left no trace of having been validated
    return SELECTED[1] if result.get("validation") else SELECTED[2]


def write_results(path: Path, content: Mapping[str, Any]) -> None:
    """Write results.json in one piece, numbers in full precision: a reader sees all of it or none.

    A figure that is no number becomes null: JSON has no NaN, and strict readers refuse a file with one.
    """
    text = json.dumps(without_nan(content), indent=2, ensure_ascii=False, allow_nan=False)
    write_text_atomically(path, text + "\n")


def read_results(path: Path) -> dict[str, Any]:
    """What `write_results` wrote of a run or a row; a metric of null is NaN again.

    Raises what `read_json` raises, and a KeyError, TypeError or AttributeError where no metrics are named.
    """
    content: dict[str, Any] = read_json(path)
    return {**content, "metrics": {name: _with_nan(figure) for name, figure in content["metrics"].items()}}


def _with_nan(figure: Any) -> Any:
    if isinstance(figure, Mapping):  # of several runs
        values = [math.nan if value is None else value for value in figure["values"]]
        return {**figure, "mean": _with_nan(figure["mean"]), "values": values}
    return math.nan if figure is None else figure


def without_nan(value: Any) -> Any:
    """A value for JSON, with None in place of what is no finite number.

    >>> without_nan({"test/auroc": math.nan, "values": [0.5, -math.inf]})
    {'test/auroc': None, 'values': [0.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    return [without_nan(item) for item in value] if isinstance(value, list | tuple) else value


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Write dictionaries as CSV in one piece; the columns are given, or the keys that occur."""
    lines = io.StringIO(newline="")
    writer = csv.DictWriter(lines, columns or list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_text_atomically(path, lines.getvalue())
