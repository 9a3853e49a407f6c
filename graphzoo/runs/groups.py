"""Groups the runs of one setting, and names what tells settings apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from graphzoo.catalog.settings import flatten
from graphzoo.errors import UsageError
from graphzoo.runs.published import Published, compare, mean_and_deviation, shown_metrics
from graphzoo.runs.record import Record
from graphzoo.runs.results_file import SELECTED, selection_of
from graphzoo.runs.row import left_out, read_row

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
# Their usual values, as text.
_USUAL = {
    ("check_val_every_n_epoch", "1"),
    ("val_check_interval", "1.0"),
    ("gradient_clip_algorithm", "norm"),
    ("min_epochs", "1"),
}


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


def group_records(records: Sequence[Record], damaged: list[UsageError] | None = None) -> list[Group]:
    """Group the runs that differ only in seed and split; every group gets a label of its own.

    Args:
        records: The runs.
        damaged: Collects an error for each damaged row.json beside a run. None raises the first error.

    Raises:
        UsageError: for a damaged row.json without `damaged`.
    """
    by_setting: dict[_Setting, list[Record]] = {}
    for record in records:
        by_setting.setdefault(_Setting.of(record), []).append(record)
    rows = _read_rows(by_setting, damaged)
    groups = []
    for setting, same in by_setting.items():
        if setting.row_folder is None:
            groups += [Group(_once(alike)) for alike in _by_selection(same)]
        else:
            groups.append(Group(same, rows[setting.row_folder]))
    for group in groups:
        group.label = _label(group)
    _tell_apart(groups)
    return groups


class _Setting(NamedTuple):
    """What the runs of one setting share."""

    row_folder: Path | None  # of a reproduced row
    model: str
    data: str
    recipe: str
    hash: str
    apart: tuple[str, ...]  # what the hash does not cover; the runs of a row share it by their command

    @classmethod
    def of(cls, record: Record) -> _Setting:
        folder = record.path.absolute().parent
        is_row = (folder / "command.json").is_file()
        apart = () if is_row else (record.graph, record.apart, _more_settings(record))
        row_folder = folder if is_row else None
        return cls(row_folder, record.model, record.data, record.recipe, record.hash, apart)


def _read_rows(settings: Iterable[_Setting], damaged: list[UsageError] | None) -> dict[Path, dict[str, Any]]:
    """Content of each folder's row.json; empty without one, and for a damaged one, which is told once."""
    rows: dict[Path, dict[str, Any]] = {}
    for folder in (setting.row_folder for setting in settings):
        if folder is None or folder in rows:
            continue
        rows[folder] = {}
        if (folder / "row.json").is_file():
            with left_out(damaged):
                rows[folder] = read_row(folder / "row.json")
    return rows


def _by_selection(records: Sequence[Record]) -> list[list[Record]]:
    """Runs of one setting by how the tested checkpoint was chosen: a test of the last is not one of the best.

    Runs without a test join those whose best checkpoint was tested, or else the first ones.
    """
    tested: dict[str | None, list[Record]] = {}
    for record in records:
        if record.tested:
            tested.setdefault(selection_of(record.result), []).append(record)
    untested = [record for record in records if not record.tested]
    if not tested:
        return [untested]
    tested.get(SELECTED[0], next(iter(tested.values()))).extend(untested)  # curves of what a test tells of
    return list(tested.values())


def _label(group: Group) -> str:
    first, recipe, name = group.first, group.first.recipe.rpartition("/")[2], group.row.get("name")
    label = f"{first.model} on {first.data_name}"
    label += f" ({recipe})" if recipe and recipe != first.data else ""
    label += f": {name}" if name else ""
    return label + (f", {first.apart}" if first.apart else "")


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
