"""Reads run directories for reports, and groups the runs of one setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from graphzoo.catalog.presets import in_natural_order, read_header
from graphzoo.catalog.settings import flatten, read_settings
from graphzoo.errors import UsageError, suggestion
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.curves import Curves, read_curves
from graphzoo.runs.directory import name_of_data
from graphzoo.runs.published import (
    Published,
    check_figures,
    check_names,
    compare,
    is_comparable,
    mean_and_deviation,
    published_values,
    shown_metrics,
)
from graphzoo.runs.results_file import SELECTED, config_hash, read_results, selection_of
from graphzoo.runs.row import left_out, read_row
from graphzoo.system.files import files_below
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.paths import typed
from graphzoo.system.regular_files import open_regular

_MOST_RUNS = 200
_FILES = ("results.json", "metrics.csv", "config.yaml", "row.json")
# Settings that a label names, of those by which runs differ.
_FEW_SETTINGS = 2
# Settings by which runs are told apart; other settings of the Trainer change no score.
TOLD = (
    "model.",
    "data.",
    *(f"trainer.{name}" for name in ("max_", "precision", "gradient_clip", "accumulate", "limit_")),
    *(f"trainer.{name}" for name in ("min_", "val_check_interval", "check_val_every_n_epoch")),
)
# Further settings of the Trainer, not in `config_hash`: how weights change, and which epochs may be chosen.
_MORE_TOLD = (
    *("min_epochs", "min_steps", "gradient_clip_algorithm"),
    *("val_check_interval", "check_val_every_n_epoch"),
)


@dataclass(frozen=True)
class Record:
    """One run, as read from its directory without loading a model."""

    path: Path  # the run directory, as the user wrote it
    result: dict[str, Any] = field(repr=False)  # content of results.json; empty while the run is not finished
    config: dict[str, Any] = field(repr=False)  # content of config.yaml; empty without one
    header: dict[str, str]  # names of model, data and recipe in config.yaml, and what a resume keeps to

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
        """When and how it was resumed with other settings; empty if it was not."""
        return str(self.header.get("resumed", ""))

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
    def hash(self) -> str:
        """A hash that is the same for runs with the same settings, whatever their seed."""
        return config_hash(self.config) if self.config else str(self.result.get("config_hash") or self.path)


@dataclass
class Group:
    """Runs of one setting, at least one."""

    records: list[Record]
    row: dict[str, Any] = field(default_factory=dict, repr=False)  # content of row.json, of a reproduced row
    label: str = ""  # what the report calls them
    short: str = ""  # what tells them apart from the report's other settings; empty: the label does

    @property
    def first(self) -> Record:
        """The run to show if there is room for one: the first finished one."""
        return next((record for record in self.records if record.result), self.records[0])

    def figures(self) -> dict[str, tuple[float, float | None, int]]:
        """Metric -> mean, deviation and number of the runs that have it; in the order of tables."""
        values: dict[str, list[float]] = {}
        for record in self.records:
            for name, value in record.tested.items():
                values.setdefault(name, []).append(value)
        names = shown_metrics(values)
        return {name: (*mean_and_deviation(values[name]), len(values[name])) for name in names}

    def compared(self, name: str) -> str:
        """How a metric compares with the published score, see `compare`; "" without one."""
        mean, deviation, count = self.figures()[name]
        if (paper := self.published().get(name)) is None:
            return ""
        source = self.row or self.first.result
        return compare(name, mean, *paper, std=deviation, runs=count, tested=source.get("tested"))

    def published(self) -> dict[str, Published]:
        """The paper's scores: of the row, else of the recipe."""
        if self.row:
            papers = {
                name: (one.get("paper"), one.get("paper_std")) for name, one in self.row["metrics"].items()
            }
            return {name: Published(*paper) for name, paper in papers.items() if paper[0] is not None}
        return self.first.published()


def find_records(paths: Sequence[Path], damaged: list[UsageError] | None = None) -> list[Record]:
    """The runs in and below the given folders.

    Args:
        paths: Run directories, files in them, or folders above them.
        damaged: Collects an error for each damaged run, which is left out. None raises the first error.

    Raises:
        UsageError: if a path does not exist or has no run, or if all runs are damaged.
    """
    records: dict[Path, Record] = {}
    for path in paths:
        folder = path.parent if path.name in _FILES else path
        if not folder.is_dir():
            raise UsageError(_not_there(path))
        runs = [folder] if _is_run(folder) else _runs_below(folder)
        if not runs:
            raise UsageError(
                f"{path} holds no run: there is no config.yaml or results.json in it or below it\n"
                "Give the folder that graphzoo fit named, such as runs/galit-cora/20260101-120000-ab12"
            )
        for run in runs:
            with left_out(damaged):
                record = read_record(run)
                if damaged is not None:
                    _ = record.curves  # read now: later they would stop the whole report
                records.setdefault(run.absolute(), record)
    if damaged and not records:
        raise damaged[0]
    if len(records) > _MOST_RUNS:
        message = f"{len(records)} runs are more than a report can show ({_MOST_RUNS})"
        raise UsageError(f"{message}\nName some of them")
    return list(records.values())


def _is_run(folder: Path) -> bool:
    if (folder / "results.json").is_file() or (folder / "metrics.csv").is_file():
        return True
    if not (folder / "config.yaml").is_file():
        return False
    with open_regular(folder / "config.yaml") as file:
        return b"graphzoo" in file.readline(200)  # a preset folder of the user's may hold a config.yaml too


def _runs_below(folder: Path) -> list[Path]:
    folders = {path.parent for name in ("results.json", "config.yaml") for path in files_below(folder, name)}
    runs = (run for run in folders if ".stopped-" not in run.name and _is_run(run))
    return sorted(runs, key=lambda run: in_natural_order(str(run)))


def _not_there(path: Path) -> str:
    if path.exists():
        return f"{path} is a file\nGive the run directory that holds it"
    near = [str(run) for run in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = suggestion(str(path), near)
    if not hint and RUNS.is_dir():
        newest = sorted(RUNS.glob("*/*/config.yaml"), key=lambda file: file.stat().st_mtime)[-3:]
        names = ", ".join(str(file.parent) for file in reversed(newest))
        hint = f"The newest runs: {names}" if newest else ""
    return f"{path}: no such file or folder\n{hint or 'Give the run directory that graphzoo fit named'}"


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
                f"{path} is damaged ({type(error).__name__}: {error})\n"
                f"Write it again: graphzoo test --ckpt_path {typed(run)}"
            ) from error
    path = run / "config.yaml"
    if path.is_file():
        config = read_config(path)
        header = read_header(path)
    record = Record(run, result, config, header)
    try:
        _ = record.hash, record.name, record.tested, record.best_epoch, record.apart, _graph(record)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"{run} is damaged ({type(error).__name__}: {error})\n"
            f"Move it away, or write its results again: graphzoo test --ckpt_path {typed(run)}"
        ) from error
    return record


def read_config(path: Path) -> dict[str, Any]:
    """The settings of a run's config.yaml; empty where the file holds none."""
    try:
        settings = read_settings(path)
    except UsageError as error:
        what = str(error).partition("\n")[0]
        raise UsageError(f"{what}\nMove it away to show the run without its settings") from error
    return settings if isinstance(settings, dict) else {}


_UNTESTED = "not tested"


def group_records(records: Sequence[Record], damaged: list[UsageError] | None = None) -> list[Group]:
    """Group the runs that differ only in seed and split; every group gets a label of its own.

    Args:
        records: The runs.
        damaged: Collects an error for each damaged row.json beside a run. None raises the first error.

    Raises:
        UsageError: for a damaged row.json without `damaged`.
    """
    by_key: dict[tuple[str, ...], dict[str | None, Group]] = {}
    rows: dict[Path, dict[str, Any]] = {}
    for record in records:
        row_file = record.path.absolute().parent / "row.json"
        is_row = (row_file.parent / "command.json").is_file()
        place = str(row_file.parent) if is_row else ""
        apart = () if place else (_graph(record), record.apart, _more_settings(record))
        key = (place, record.model, record.data, record.recipe, record.hash, *apart)
        # a test of the last checkpoint is not one of the best
        selection = _UNTESTED if place or not record.tested else selection_of(record.result)
        group = by_key.setdefault(key, {}).setdefault(selection, Group([]))
        group.records.append(record)
        if is_row and row_file.is_file() and row_file not in rows:
            rows[row_file] = {}  # a damaged one is told once
            with left_out(damaged):
                rows[row_file] = read_row(row_file)
        group.row = rows.get(row_file, {})
    for key, same in by_key.items():
        untested = same.pop(_UNTESTED, None) if len(same) > 1 else None
        if untested is not None:  # the curves of what a test tells of
            same.get(SELECTED[0], next(iter(same.values()))).records += untested.records
        for group in same.values() if not key[0] else ():
            group.records = _once(group.records)
    groups = [group for same in by_key.values() for group in same.values()]
    for group in groups:
        first, recipe, name = group.first, group.first.recipe.rpartition("/")[2], group.row.get("name")
        group.label = f"{first.model} on {first.data_name}"
        group.label += f" ({recipe})" if recipe and recipe != first.data else ""
        group.label += f": {name}" if name else ""
        group.label += f", {first.apart}" if first.apart else ""
    _tell_apart(groups)
    return groups


def _once(records: Sequence[Record]) -> list[Record]:
    """The runs by split and seed, each only once.

    Of runs that were repeated or tested again, the newest is kept. Of a run and tests of it, the run is kept,
    since it has curves; if it was not tested itself, both are kept.
    """
    newest_last = sorted((record for record in records if record.tested), key=_age)
    tested = {_who(record): record for record in newest_last}
    drawn = {who for who, record in tested.items() if _has_curves(record)}
    begun = sorted((record for record in records if not record.tested), key=_progress)
    rest = {_who(record): record for record in begun if _who(record) not in drawn}
    return sorted([*tested.values(), *rest.values()], key=_who)


def _progress(record: Record) -> tuple[float, str]:
    """When a run that was not tested last wrote a file."""
    files = (record.path / name for name in ("metrics.csv", "config.yaml"))
    return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0), str(record.path)


def _who(record: Record) -> tuple[int, str, str]:
    seed = str(record.path) if record.seed is None else str(record.seed).zfill(20)
    return record.split or 0, seed, str(sorted(record.own_seeds.items()))


def _has_curves(record: Record) -> bool:
    return (record.path / "metrics.csv").is_file()


def _age(record: Record) -> tuple[bool, float, str]:
    """Sort key: runs with curves last, then by time."""
    written = (record.path / "results.json").stat().st_mtime
    return _has_curves(record), written, str(record.path)


def _graph(record: Record) -> str:
    """What runs on the same graph share, whatever its split."""
    split = record.result.get("split") or {}
    path = flatten(record.config.get("data"), "data").get("data.path")
    # the fingerprint of link data covers the split; one's own files may change otherwise under the same links
    links = split.get("links") if path is None and isinstance(split, dict) else None
    # what is not finished says no more than where its data lie
    return str(links or record.result.get("data_fingerprint") or path or "")


_USUAL = {
    ("check_val_every_n_epoch", "1"),
    ("val_check_interval", "1.0"),
    ("gradient_clip_algorithm", "norm"),
    ("min_epochs", "1"),
}


def _more_settings(record: Record) -> str:
    """Settings by which runs of the same `hash`, which earlier versions wrote, are told apart."""
    trainer = record.config.get("trainer")
    given = trainer.items() if isinstance(trainer, dict) else []
    # as text: a `val_check_interval` of 1.0 is an epoch, of 1 a batch
    settings = [(name, str(value)) for name, value in given if name in _MORE_TOLD and value is not None]
    return str(sorted(set(settings) - _USUAL))


def _tell_apart(groups: list[Group]) -> None:
    """Add to labels that occur twice the settings that differ, or else the folder."""
    for label in {group.label for group in groups}:
        same = [group for group in groups if group.label == label]
        if len(same) < 2:
            continue
        texts = tell_apart([group.first.config for group in same], [group.first.path for group in same])
        for group, text in zip(same, texts, strict=True):
            group.label = f"{label}, {text}" if text else label
            if len(same) == len(groups):
                group.short = text


def _texts(flat: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    kept = names[:_FEW_SETTINGS]
    short = {name: name.rpartition(".")[2] for name in kept}
    return [", ".join(f"{short[name]}={one.get(name)}" for name in kept) if one else "" for one in flat]


def tell_apart(configs: Sequence[Any], folders: Sequence[Path]) -> list[str]:
    """A distinct text for each of several settings of one model on the same data.

    The text names settings that differ, or else the folder. An empty config means that settings are unknown.

    >>> tell_apart([{"model": {"lr": 0.1}}, {"model": {"lr": 0.2}}], [Path("a"), Path("b")])
    ['lr=0.1', 'lr=0.2']
    """
    flat = [flatten(config) if config else {} for config in configs]
    known = [one for one in flat if one]
    names = sorted(
        name
        for name in set().union(*known)
        if name.startswith(TOLD)
        and not name.endswith((".seed", ".root", ".path", ".num_workers"))
        and len({str(one.get(name)) for one in known}) > 1
    )
    # tables have a column of splits: their numbers are named only where they tell more
    texts = _texts(flat, [name for name in names if not name.endswith(".split_index")])
    finer = _texts(flat, names)
    texts = [
        fine if finer.count(fine) < texts.count(text) else text
        for text, fine in zip(texts, finer, strict=True)
    ]
    for places in ([folder.name for folder in folders], [str(folder) for folder in folders]):
        if len(set(texts)) == len(texts):
            break
        texts = [
            ", ".join(filter(None, [text, place])) if texts.count(text) > 1 else text
            for text, place in zip(texts, places, strict=True)
        ]
    return texts
