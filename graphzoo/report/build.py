"""Build a report from run directories: its sections and their content."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from graphzoo.catalog.settings import word_of
from graphzoo.errors import UsageError
from graphzoo.report.content import Block, Code, Note, Options, Picture, Report, Section, TableBlock
from graphzoo.report.curve_figures import curve_blocks, depth_pictures, on_depth_curve
from graphzoo.report.evaluation_figures import evaluation_blocks, prediction_blocks
from graphzoo.report.learned import learned
from graphzoo.report.paper_figures import paper_pictures
from graphzoo.report.results import common_title, headline, results_section
from graphzoo.runs.changes import changed_settings, repeat_command
from graphzoo.runs.groups import Group
from graphzoo.runs.record import Record
from graphzoo.system.memory import is_out_of_memory
from graphzoo.system.paths import typed

if TYPE_CHECKING:
    from graphzoo.analysis import Evaluation


# A report shows results and curves of all settings, but the other sections only of the first ones.
_MOST_DETAILED = 6


def build_report(groups: Sequence[Group], options: Options | None = None) -> Report:
    """Build the report of some settings.

    Args:
        groups: Runs, one group per setting.
        options: Options of the report; None takes the defaults.

    Raises:
        UsageError: if a file is damaged, or a fact of the options has an unknown name.
    """
    options = options or Options()
    alone = len(groups) == 1
    records = [record for group in groups for record in group.records]
    shown = [
        _detailed(group, groups, options, f"g{n + 1}") for n, group in enumerate(groups[:_MOST_DETAILED])
    ]
    sections = [_with_pictures(results_section(groups), paper_pictures(groups))]
    if alone:
        sections += shown[0].first
    if depth := depth_pictures(groups):
        sections.append(Section("Depth", depth))
    curves = curve_blocks(groups)
    # There is no note for heuristics, which are not trained, or for runs of `graphzoo test`.
    if not curves and any(record.result.get("command", "fit") == "fit" for record in records):
        curves = [Note("No run has written a metrics.csv, so there are no curves.")]
    if curves:
        sections.append(Section("Learning curves", curves))
    if speed := curve_blocks(groups, speed=True):
        sections.append(Section("Speed and memory", speed, level=3))
    if alone:
        sections += shown[0].last
    else:
        for group, one in zip(groups, shown, strict=False):
            sections.append(Section(group.label, [Note(one.learned)] if one.learned else []))
            sections += [Section(part.title, part.blocks, level=3) for part in (*one.first, *one.last)]
    if len(groups) > _MOST_DETAILED:
        left = ", ".join(group.label for group in groups[_MOST_DETAILED:])
        text = f"Details are shown for the first {_MOST_DETAILED} settings only. Others to give alone: {left}"
        sections.append(Section("Further settings", [Note(text)]))
    runs = len(records)
    title = groups[0].label if alone else common_title(groups)
    sentences = [shown[0].learned, headline(groups[0])] if alone else []
    if runs > 1:
        sentences.append(f"{runs} runs." if alone else f"{runs} runs of {len(groups)} settings.")
    return Report(title, " ".join(filter(None, sentences)), sections)


class _Detailed(NamedTuple):
    """A sentence and the sections about one setting, those before and those after the curves."""

    learned: str
    first: list[Section]
    last: list[Section]


def _detailed(group: Group, groups: Sequence[Group], options: Options, prefix: str) -> _Detailed:
    loaded, damaged = _evaluations(group)
    predictions, rest = _evaluation(group, loaded, prefix)
    inside = _model(group, groups, options, prefix)
    model = [Section("Inside the model", inside)] if inside else []
    is_drawn = any(isinstance(block, Picture) for block in inside)
    first = [Section("Predictions", predictions)] if predictions else []
    first += [*(model if is_drawn else []), Section("Test split in detail", [*damaged, *rest])]
    last = [*([] if is_drawn else model), Section("How it was made", _facts(group))]
    return _Detailed(learned([evaluation for _, evaluation in loaded]), first, last)


def _with_pictures(section: Section, pictures: Sequence[Picture]) -> Section:
    """The section with pictures below its first unfolded tables, whose scores they show."""
    tables = list(takewhile(lambda block: isinstance(block, TableBlock) and not block.folded, section.blocks))
    return Section(section.title, [*tables, *pictures, *section.blocks[len(tables) :]], section.level)


def _evaluations(group: Group) -> tuple[list[tuple[Record, Evaluation]], list[Block]]:
    """The evaluations of the runs, the least damaged first, and notes about damaged parts."""
    from graphzoo.analysis import Evaluation

    ranked: list[tuple[int, Record, Evaluation]] = []
    notes: list[Block] = []
    for record in group.records:
        folder, damaged = record.path / "evaluation" / "test", list[str]()
        if not folder.is_dir():
            continue
        try:
            evaluation = Evaluation.load(folder, damaged=damaged)
            ranked.append((len(damaged), record, evaluation))
        except UsageError as error:
            damaged.append(str(error))
        notes += [Note(f"Part of an evaluation cannot be shown: {what}", warning=True) for what in damaged]
    ranked.sort(key=lambda one: one[0])
    return [(record, evaluation) for _, record, evaluation in ranked], notes


def _evaluation(
    group: Group, loaded: Sequence[tuple[Record, Evaluation]], prefix: str
) -> tuple[list[Block], list[Block]]:
    """The best and worst predictions of a test, and all other blocks about it."""
    if not any((record.path / "evaluation" / "test").is_dir() for record in group.records):
        command = f"graphzoo test --ckpt_path {typed(group.first.path)}"
        again = f"Testing it again writes a new run folder, which can be plotted: {command}"
        return [], [Note(f"The run has no folder evaluation/test. {again}", warning=True)]
    if not loaded:
        return [], []
    record, evaluation = loaded[0]
    folder = record.path / "evaluation" / "test"
    of_run: list[Block] = [Note(f"Of one of the runs: {record.name}.")] if len(group.records) > 1 else []
    predictions = prediction_blocks(evaluation.tables, folder)
    others = [table for table in evaluation.tables if table.name not in ("worst", "best")]
    rest = evaluation_blocks(others, folder, prefix)
    shown = set(group.figures())
    if further := [name for name in evaluation.figures if name not in shown]:
        values = [evaluation.figures[name] for name in further]
        rows = [[name, "" if v != v else f"{v:.4g}"] for name, v in zip(further, values, strict=True)]
        rest.append(TableBlock("Further figures", ["figure", "value"], rows, frozenset({1})))
    return [*of_run, *predictions] if predictions else [], [*of_run, *rest]


def _model(group: Group, groups: Sequence[Group], options: Options, prefix: str) -> list[Block]:
    if not options.models or group.first.result.get("num_parameters") == 0:
        return []
    from graphzoo.report.models.choose import model_blocks

    trained = (one for one in group.records if any((one.path / "checkpoints").glob("*.ckpt")))
    record = next(trained, group.first)
    try:
        blocks = model_blocks(record, options, prefix, depth_drawn=on_depth_curve(group, groups))
    except UsageError as error:
        if options.facts:
            raise  # the user gave a wrong fact
        return [Note(f"There is no picture of the model: {error}", warning=True)]
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        text = "There is no picture of the model: it needs more memory than there is. Try another --device."
        return [Note(text, warning=True)]
    if len(group.records) > 1 and blocks:
        blocks.insert(0, Note(f"Of one of the runs: {record.name}."))
    return blocks


def _facts(group: Group) -> list[Block]:
    from graphzoo.system.units import duration

    record = group.first
    result = record.result
    rows: list[list[str]] = []

    def add(name: str, value: Any) -> None:
        if value not in (None, "", {}):
            rows.append([name, str(value)])

    add("model", record.model)
    add("data", record.data_name)
    add("recipe", record.recipe)
    add("claim", group.row.get("claim"))
    if result.get("num_parameters") is not None:
        add("parameters", f"{result['num_parameters']:,}")
    seconds = [one.result.get("fit_seconds") for one in group.records]
    if seconds := [value for value in seconds if isinstance(value, int | float)]:
        mean = sum(seconds) / len(seconds)
        add("training time", duration(mean) + (" a run" if len(seconds) > 1 else ""))
    add("epochs", result.get("epochs"))
    split = result.get("split") or {}
    parts = [name for name in ("train", "valid", "test") if isinstance(split.get(name), int)]
    of = {"valid": " of the second graph"} if split.get("validate_on") == "inference" else {}
    sizes = [f"{name} {split[name]:,}{of.get(name, '')}" for name in parts]
    add("split", ", ".join(filter(None, [str(split.get("name") or ""), *sizes])))
    add("data fingerprint", str(result.get("data_fingerprint") or "")[:16])
    add("settings hash", result.get("config_hash"))
    versions = result.get("versions") or {}
    add("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))
    folders = [str(one.path) for one in group.records]
    add("folder", ", ".join([*folders[:3], *(["..."] if len(folders) > 3 else [])]))
    title = "Facts of the run" + "s" * (len(folders) > 1)
    blocks: list[Block] = [TableBlock(title, ["fact", "value"], rows)]
    if changed := changed_settings(record):
        cells = [
            [name, word_of(value), "none" if usual is None else word_of(usual)]
            for name, (value, usual) in changed.items()
        ]
        columns = ["setting", "this run", "preset"]
        blocks.append(TableBlock("Settings that differ from the preset", columns, cells))
    elif record.config:
        blocks.append(Note("All settings are those of the presets."))
    if command := group.row.get("command"):
        blocks.append(Code("All runs again, with mean and deviation:", str(command)))
    if record.resumed:
        blocks.append(Note(f"Resumed {record.resumed}: no single command repeats it."))
    elif record.config:
        title = "This run again" if len(group.records) == 1 else f"The run of {record.name} again"
        blocks.append(Code(f"{title}:", repeat_command(record)))
    return blocks
