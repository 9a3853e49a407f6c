"""Writes results.json after an evaluation, and prints the metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lightning.pytorch import Callback, Trainer

from graphzoo.callbacks import BestCheckpoint, Throughput
from graphzoo.catalog.presets import read_header
from graphzoo.catalog.tasks import task_of
from graphzoo.runs.checkpoints import run_of
from graphzoo.runs.results_file import FORMAT, SELECTED, config_hash, write_results, write_rows
from graphzoo.runs.tables import how_many, print_table, telling
from graphzoo.system.paths import relative
from graphzoo.system.shown import tell
from graphzoo.system.versions import versions
from graphzoo.training.plan import Plan, RunState

log = logging.getLogger(__name__)

_WORDS = {"val": "validation", "test": "test"}


class Evaluated(NamedTuple):
    """The weights that were evaluated."""

    path: Path | None  # the checkpoint; None for the weights in memory
    content: Mapping[str, Any] | None  # its content
    validated: dict[str, float]  # metrics of the last validation; empty without training


def report_results(
    trainer: Trainer,
    state: RunState,
    run_dir: Path,
    config: Mapping[str, Any],
    split: str,
    evaluated: Evaluated,
    *,
    began: float,
) -> None:
    """Write results.json and relations.csv (metrics per relation), and print the metrics of a split."""
    model = trainer.lightning_module
    rows: list[dict[str, Any]] = list(getattr(model, "test_table", [])) if split == "test" else []
    metrics = _figures(trainer, split, rows)
    results = _content(trainer, state, config, evaluated, metrics)
    results["seconds"] = round(time.perf_counter() - began, 3)
    results |= _changed(run_dir, results, config)
    write_results(run_dir / "results.json", results)
    if rows:
        write_rows(run_dir / "relations.csv", rows)
    task = task_of(model)
    most = getattr(trainer.datamodule, {"val": "num_valid"}.get(split, "num_tested"), None)  # type: ignore[attr-defined]
    size = how_many(results["evaluated"], most, task.unit if task else "")
    chosen_by = getattr(model, "monitor", "").partition("/")[2] if task else ""
    shown = telling(metrics, results["negatives"], keep=[f"{split}/{chosen_by}"])
    print_table(
        _title(state, split, results, size), {name: metrics[name] for name in shown}, rows, split, task
    )
    tell(f"results: {relative(run_dir / 'results.json')}\n")


def _content(
    trainer: Trainer,
    state: RunState,
    config: Mapping[str, Any],
    evaluated: Evaluated,
    metrics: dict[str, float],
) -> dict[str, Any]:
    """The content of results.json, with `seconds` left open."""
    plan = state.plan
    model, data = trainer.lightning_module, trainer.datamodule  # type: ignore[attr-defined]
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    throughput = next(callback for callback in callbacks if isinstance(callback, Throughput))
    content = evaluated.content or {}
    kept = (one for one in trainer.checkpoint_callbacks if isinstance(one, BestCheckpoint))
    best = {f"best {one.monitor}": one.best_model_score for one in kept if one.best_model_score is not None}
    validation = evaluated.validated | {name: float(score) for name, score in best.items()}
    epoch, trains = content.get("epoch"), plan.command == "fit"
    selection = _selection(plan, evaluated, validated=bool(validation))
    return {
        "format": FORMAT,
        "command": plan.command,
        "metrics": metrics,
        "validation": validation,
        **state.names,
        "data_name": state.data_name,
        "recipe": plan.recipe or None,
        "seed": _seed(plan, config, content),
        "best_epoch": epoch if selection == SELECTED[0] else None,
        "checkpoint_epoch": epoch,
        "checkpoint_step": content.get("global_step"),  # an epoch may have several validations
        "selection": selection,
        "resumed": state.resumed or None,
        "epochs": trainer.current_epoch if trains else None,
        "steps": trainer.global_step if trains else None,
        "checkpoint": None if evaluated.path is None else str(evaluated.path),
        "matmul_precision": _products(state, evaluated),
        "seconds": None,
        "fit_seconds": round(throughput.fit_seconds, 3) if trains else None,
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "config_hash": config_hash(config),
        "data_fingerprint": getattr(data, "fingerprint", None),
        "tested": getattr(data, "num_tested", None),
        "evaluated": getattr(model, "num_evaluated", None),
        "negatives": getattr(model, "ranked_among", None),
        "split": data.describe_split() if hasattr(data, "describe_split") else None,
        "protocol": getattr(data, "protocol_in_words", None),
        "queries": data.describe_queries() if trains and getattr(data, "asks_near", False) else None,
        "trained_on": content.get("graphzoo", {}).get("data"),
        "versions": versions(),
    }


def _seed(plan: Plan, config: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> Any:
    """The seed that the evaluated weights were trained with, which a test with another seed keeps."""
    own = config.get("seed_everything")
    if plan.command == "fit" or (plan.run_config is not None and plan.seed is None):
        return own
    trained = checkpoint.get("hyper_parameters")
    return trained.get("seed", own) if isinstance(trained, dict) else own


def _products(state: RunState, evaluated: Evaluated) -> str | None:
    """The precision of float32 products in training, if it was set and is not the device's default."""
    asked = state.plan.matmul_precision
    if state.plan.command != "fit" and evaluated.path is not None:
        run = run_of(evaluated.path)
        asked = read_header(run / "config.yaml").get("matmul_precision") if run else None
    return None if asked == ("high" if state.device == "cuda" else "highest") else asked


def _title(state: RunState, split: str, results: Mapping[str, Any], size: str) -> str:
    """Title of the table: model, data, split and its size, checkpoint, protocol."""
    title = f"{state.model} on {state.data_name}: {_WORDS[split]}{size}"
    if results["checkpoint"] is not None:
        title += f", {Path(results['checkpoint']).name}"
    if results["checkpoint_epoch"] is not None:
        title += f" of epoch {results['checkpoint_epoch'] + 1}"
    if results["protocol"]:
        title += f", {results['protocol']}"
    return title + (", never validated" if results["selection"] == SELECTED[2] else "")


def _changed(run_dir: Path, result: dict[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    """How the run differs from its recipe; found now, while the classes with the defaults are imported."""
    from graphzoo.runs.changes import changed_protocol, presets_digest
    from graphzoo.runs.record import Record

    record = Record(run_dir, result, dict(config), {})
    try:
        return {"changed": changed_protocol(record), "presets_digest": presets_digest(record)}
    except (OSError, ValueError, TypeError) as error:
        # For example, a preset that is being written, or a class without a signature. The metrics are kept.
        log.warning("results.json will not list the differences from the recipe: %s", error)
        return {}


def _figures(trainer: Trainer, split: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    metrics = {name: value for name, value in logged.items() if name.startswith(f"{split}/")}
    for row in rows:
        # Lightning stores plain numbers in single precision; the table has them in double precision.
        if row.get("relation") == "all":
            ending = "" if row["direction"] == "both" else f"_{row['direction']}"
            full = {f"{split}/{name}{ending}": row[name] for name in row}
            metrics |= {name: full[name] for name in full if name in metrics}
    return metrics


def _selection(plan: Plan, evaluated: Evaluated, *, validated: bool) -> str | None:
    """How the evaluated weights were chosen among those of all epochs; None if unknown."""
    name = "" if evaluated.path is None else evaluated.path.name
    if name == "best.ckpt":
        return SELECTED[0]
    if name != "last.ckpt" and (plan.command != "fit" or evaluated.path is not None):
        return None  # untrained, or a file that the user named
    states = (evaluated.content or {}).get("callbacks") or {}
    scores = (state.get("best_model_score") for state in states.values() if isinstance(state, dict))
    return SELECTED[1] if validated or any(score is not None for score in scores) else SELECTED[2]
