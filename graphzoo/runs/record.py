"""Reads a run directory without loading its model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from graphzoo.catalog.presets import read_header
from graphzoo.catalog.settings import flatten, read_settings
from graphzoo.errors import UsageError
from graphzoo.runs.curves import Curves, read_curves
from graphzoo.runs.directory import name_of_data
from graphzoo.runs.published import (
    Published,
    check_figures,
    check_names,
    is_comparable,
    published_values,
)
from graphzoo.runs.results_file import SELECTED, config_hash, read_results, selection_of
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.paths import typed


@dataclass(frozen=True)
class Record:
    """One run, as read from its directory without loading a model."""

    path: Path  # the run directory, as the user wrote it
    result: dict[str, Any] = field(repr=False)  # content of results.json; empty while the run is not finished
    config: dict[str, Any] = field(repr=False)  # content of config.yaml; empty without one
    header: dict[str, str]  # names of model, data and recipe in config.yaml, and what a resume keeps to
    # content of graph/meta.json, of a run without results.json
    stored: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.result.get("model") or self.header.get("model") or "model")

    @property
    def data(self) -> str:
        """Name of the data on the command line."""
        return str(self.result.get("data") or self.header.get("data") or "data")

    @property
    def data_name(self) -> str:
        """Name of the data for people."""
        path = flatten(self.config.get("data"), "data").get("data.path")
        return str(self.result.get("data_name") or name_of_data(self.data, path))

    @property
    def recipe(self) -> str:
        """`<model>/<name>`, or empty."""
        return str(self.result.get("recipe") or self.header.get("recipe") or "")

    @property
    def resumed(self) -> str:
        """When and how it was resumed with other settings; empty if its results are older."""
        return str(self.result.get("resumed", self.header.get("resumed")) or "")

    @property
    def seed(self) -> int | None:
        """Its seed, if it is known."""
        seed = self.result.get("seed", self.config.get("seed_everything"))
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else None

    @property
    def own_seeds(self) -> dict[str, int]:
        """Seeds of model and data that are not those of the run, as the options that set them."""
        sections = flatten({name: self.config.get(name) for name in ("model", "data")})
        usual = self.config.get("seed_everything")
        named = {name: sections.get(name) for name in ("model.seed", "data.seed")}
        return {name: seed for name, seed in named.items() if isinstance(seed, int) and seed != usual}

    @property
    def split(self) -> int | None:
        """The `split_index` of its data, where they have one."""
        split = flatten(self.config.get("data"), "data").get("data.split_index")
        return split if isinstance(split, int) else None

    @property
    def name(self) -> str:
        """What distinguishes it from other runs of its setting: seed and split."""
        if self.seed is None:
            return self.path.name
        named = self.split is not None and self.path.name.startswith("split-")
        parts = [f"split {self.split}"] if named else []
        own = [f"{name} {seed}" for name, seed in self.own_seeds.items()]
        return ", ".join([*parts, f"seed {self.seed}", *own])

    @property
    def best_epoch(self) -> int | None:
        """Epoch of the tested checkpoint, from 0, if that was chosen on validation."""
        epoch = self.result.get("best_epoch")
        return epoch if isinstance(epoch, int) and selection_of(self.result) == SELECTED[0] else None

    @property
    def tested(self) -> dict[str, float]:
        """Figures of the test split."""
        metrics = (self.result.get("metrics") or {}).items()
        return {name: float(value) for name, value in metrics if name.startswith("test/")}

    @property
    def state(self) -> str:
        """Empty for a tested run; otherwise "not finished" (before its last epoch) or "not tested"."""
        if self.tested:
            return ""
        return "not tested" if self.result or self._may_have_trained() else "not finished"

    def _may_have_trained(self) -> bool:
        """Whether all epochs are done and validated, or something else may have ended the run."""
        trainer = self.config.get("trainer") or {}
        wanted = trainer.get("max_epochs")
        others = trainer.get("max_time") or (trainer.get("max_steps") or -1) > 0
        values = self.curves.values
        if not isinstance(wanted, int) or wanted <= 0 or others or "EarlyStopping" in str(trainer):
            return bool(values)
        validated = [points for name, points in values.items() if name.startswith("val/")]
        # a whole number is the end of an epoch
        return any(points[-1][0] >= wanted for points in validated or values.values())

    @cached_property
    def curves(self) -> Curves:
        """Values over epochs; none where the run wrote no metrics.csv."""
        return read_curves(self.path / "metrics.csv")

    def published(self) -> dict[str, Published]:
        """The scores published for its recipe and protocol; none for a recipe that is no longer there."""
        names = self.model, self.recipe, self.data
        try:
            return published_values(*names) if is_comparable(*names, self.result) else {}
        except UsageError:
            return {}

    @property
    def matmul_precision(self) -> str:
        """The precision of float32 products, if the user has set it."""
        return str((self.result or self.header).get("matmul_precision") or "")

    @property
    def apart(self) -> str:
        """Differences that settings do not show, in words: other training data, a resume with changes."""
        trained = self.result.get("trained_on") or {}
        there, here = trained.get("fingerprint"), self.result.get("data_fingerprint")
        remarks = []
        if there and here and there != here:
            split, own = ((part.get("split") or {}).get("name") for part in (trained, self.result))
            remarks = [
                f"trained on {trained.get('name')}" + (f" ({split})" if split and split != own else "")
            ]
        remarks += [f"float32 products {self.matmul_precision}"] if self.matmul_precision else []
        return ", ".join([*remarks, f"resumed {self.resumed}"] if self.resumed else remarks)

    @property
    def graph(self) -> str:
        """What runs on the same graph share, whatever their split."""
        split = self.result.get("split") or self.stored.get("split") or {}
        path = flatten(self.config.get("data"), "data").get("data.path")
        # the fingerprint of link data covers the split; one's own files may change otherwise under the same
        # links
        links = split.get("links") if path is None and isinstance(split, dict) else None
        fingerprint = self.result.get("data_fingerprint") or self.stored.get("fingerprint")
        # a run that has not loaded its graph yet says no more than where it lies
        return str(links or fingerprint or path or "")

    @property
    def hash(self) -> str:
        """A hash that is the same for runs with the same settings, whatever their seed."""
        return config_hash(self.config) if self.config else str(self.result.get("config_hash") or self.path)


def read_record(run: Path) -> Record:
    """What a run directory holds; a damaged results.json or config.yaml is refused."""
    result: dict[str, Any] = {}
    config: dict[str, Any] = {}
    header: dict[str, str] = {}
    path = run / "results.json"
    if path.is_file():
        try:
            result = read_results(path)
            check_figures(result["metrics"].values())
            check_names(result)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise_if_not_the_file(error, path)
            raise UsageError(
                f"{path} is damaged ({type(error).__name__}: {error})\nMove it away, {_again(run)}"
            ) from error
    path = run / "config.yaml"
    if path.is_file():
        config = read_config(path)
        header = read_header(path)
    record = Record(run, result, config, header, {} if result else _read_stored(run / "graph" / "meta.json"))
    try:
        _ = record.hash, record.name, record.tested, record.best_epoch, record.apart, record.graph
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"{run} is damaged ({type(error).__name__}: {error})\nMove it away, {_again(run)}"
        ) from error
    return record


def _again(run: Path) -> str:
    """How to write the results of a run again."""
    if (run / "checkpoints" / "last.ckpt").is_file():
        return f"or write its results again: graphzoo fit {typed(run)}"
    return "and test again what it tested"


def _read_stored(path: Path) -> dict[str, Any]:
    """What a run wrote about its graph; empty before that."""
    if not path.is_file():
        return {}
    try:
        stored = read_json(path)
        if not isinstance(stored, dict):
            raise ValueError("not a dict")
    except (OSError, ValueError) as error:
        raise_if_not_the_file(error, path)
        raise UsageError(f"{path} is damaged ({error})\nMove the run away, or train it again") from error
    return stored


def read_config(path: Path) -> dict[str, Any]:
    """The settings of a run's config.yaml; empty where the file holds none."""
    try:
        settings = read_settings(path)
    except UsageError as error:
        what = str(error).partition("\n")[0]
        raise UsageError(f"{what}\nMove it away to show the run without its settings") from error
    return settings if isinstance(settings, dict) else {}
