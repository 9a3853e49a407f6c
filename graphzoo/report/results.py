"""The results section of a report: test results beside the paper's, and those of each run."""

from __future__ import annotations

from collections.abc import Sequence

from graphzoo.catalog.tasks import PERCENT
from graphzoo.report.content import Block, Note, Section, TableBlock
from graphzoo.runs.changes import what_differs
from graphzoo.runs.groups import Group
from graphzoo.runs.published import VERDICTS, split_protocol
from graphzoo.runs.results_file import SELECTED, selection_of
from graphzoo.runs.tables import spread
from graphzoo.system.paths import typed

_NAMES = {"mrr": "MRR", "mr": "mean rank", "rmse": "RMSE"} | PERCENT
# Metrics in the table of several settings, and runs up to which the table of runs is unfolded.
_COMPARED, _FEW_RUNS = 4, 5


def shown_name(metric: str) -> str:
    """The name of a metric in tables and titles, for a logged name with or without `test/`."""
    short, protocol = split_protocol(metric)
    return ", ".join(filter(None, [_NAMES.get(short, short), protocol]))


def common_title(groups: Sequence[Group]) -> str:
    """A title with the models and data of all groups."""
    models = list(dict.fromkeys(group.first.model for group in groups))
    datas = list(dict.fromkeys(group.first.data_name for group in groups))
    return f"{_listed(models)} on {_listed(datas)}"


def _listed(names: Sequence[str]) -> str:
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def headline(group: Group) -> str:
    """A sentence with the main result of a group."""
    figures, published = group.figures(), group.published()
    if not figures:
        several = len(group.records) > 1
        if all(record.state == "not finished" for record in group.records):
            return "No run is finished yet." if several else "The run is not finished yet."
        return "No run was tested." if several else "The run was not tested."
    name = lead_metric(group)
    text = f"Test {shown_name(name)}: {spread(name, *figures[name][:2])}"
    if protocol := _protocol(group):
        text += f" {protocol}"
    if name in published:
        text += f"; the paper: {spread(name, *published[name])}"
    return f"{text}."


def _protocol(group: Group) -> str:
    """Where a model that is trained in neighbourhoods was evaluated; "" for other models."""
    return str(group.first.result.get("protocol") or "")


def lead_metric(group: Group) -> str:
    """The metric for comparing a setting: the first one with a published value, or else its first one."""
    figures, published = group.figures(), group.published()
    return next((name for name in figures if name in published), next(iter(figures)))


def results_section(groups: Sequence[Group]) -> Section:
    """The section with test results of all settings, and of each run of a setting with several."""
    alone = len(groups) == 1
    finished = [group for group in groups if group.figures()]
    single = all(len(group.records) == 1 for group in groups)
    blocks: list[Block] = []
    if not finished:
        blocks.append(Note(_missing(groups), warning=True))
    elif alone:
        blocks.append(_table_of(groups[0], "Test results", single=single))
    else:
        # Tasks have different metrics: in one table, many cells would be empty.
        families: dict[tuple[str, ...], list[Group]] = {}
        for group in finished:
            own = tuple(name for name in group.figures() if not split_protocol(name)[1])
            families.setdefault(own, []).append(group)
        for family in families.values():
            blocks.append(_comparison(family, single=single, alone=len(families) == 1))
        blocks += [
            _table_of(group, f"All test results: {group.label}", single=single, folded=True)
            for group in finished
            if len(group.figures()) > 1
        ]
    if note := _note(finished, single=single):
        blocks.append(Note(note))
    for group in groups:
        if differs := _differs(group):
            who = "" if alone else f"{group.label}: "
            blocks.append(Note(f"{who}differs from the paper's protocol: {differs}"))
    blocks += [_run_table(group, alone=alone) for group in groups if len(group.records) > 1]
    return Section("Results", blocks)


def _differs(group: Group) -> str:
    """How the protocol differs from the paper's, if there are published values; else ""."""
    if group.row or not group.published():
        return str(group.row.get("differs") or "")
    return what_differs(group.first)


def _missing(groups: Sequence[Group]) -> str:
    """Why there are no test results, and the command that gives some."""
    records = [record for group in groups for record in group.records]
    trained = next((record for record in records if record.state == "not tested"), None)
    if trained is None:
        return "No run is finished, so there are no test results yet."
    command = f"graphzoo test --ckpt_path {typed(trained.path)}"
    return f"No run was tested, so there are no test results. This command tests one: {command}"


def _note(groups: Sequence[Group], *, single: bool) -> str:
    """A note that explains the results."""
    sentences = _selections(groups)
    of_groups = {group.label: words for group in groups if (words := _protocol(group))}
    for label, words in of_groups.items():
        sentences.append(f"Evaluated {words}." if len(groups) == 1 else f"{label}: evaluated {words}.")
    if groups and not single:
        sentences.append("The deviation is that of a sample (n - 1).")
    if any(name in group.figures() for group in groups for name in group.published()):
        sentences.append(f"{VERDICTS} Otherwise: met.")
    return " ".join(sentences)


def _selections(groups: Sequence[Group]) -> list[str]:
    """Sentences that say which checkpoints the results are from."""
    by_selection: dict[str, list[str]] = {}
    for group in groups:
        for record in group.records:
            if record.tested and (selection := selection_of(record.result)):
                of = record.name if len(groups) == 1 else group.label
                by_selection.setdefault(selection, []).append(of)
    sentences = []
    for selection, names in by_selection.items():
        of = f" of {_listed(list(dict.fromkeys(names)))}" if len(by_selection) > 1 else ""
        words = selection if selection in SELECTED[1:] else f"checkpoint with the {selection}"
        sentences.append(f"Test results{of} are from the {words}.")
    return sentences


def _table_of(group: Group, caption: str, *, single: bool, folded: bool = False) -> TableBlock:
    """A table of one setting, with a row per metric."""
    published = group.published()
    rows = []
    for name, (mean, deviation, count) in group.figures().items():
        paper = published.get(name)
        comparison = (spread(name, *paper), group.compared(name)) if paper else ("", "")
        rows.append([shown_name(name), spread(name, mean, deviation), str(count), *comparison])
    columns = ["metric", "result" if single else "mean ± std", "runs", "paper", "compared"]
    return _without_empty(caption, columns, rows, {1, 2, 3}, {"runs"} if single else set(), folded=folded)


def _comparison(groups: Sequence[Group], *, single: bool, alone: bool) -> TableBlock:
    """A table with a row per setting, and columns for the most important metrics."""
    metrics: dict[str, bool] = {}  # metric -> whether any paper has it
    for group in groups:
        published = group.published()
        for name in group.figures():
            metrics[name] = metrics.get(name, False) or name in published
    chosen = sorted(metrics, key=lambda name: not metrics[name])[:_COMPARED]
    rows = []
    for group in groups:
        figures, published = group.figures(), group.published()
        cells = [group.short or group.label, str(len(group.records))]
        for name in chosen:
            cells.append(spread(name, *figures[name][:2]) if name in figures else "")
            if metrics[name]:
                cells.append(spread(name, *published[name]) if name in published else "")
        rows.append(cells)
    columns = ["setting", "runs"]
    for name in chosen:
        shown = shown_name(name)
        columns += [shown, f"{shown}, paper"] if metrics[name] else [shown]
    numeric = set(range(1, len(columns)))
    caption = "Test results by setting" if alone else f"Test results of {common_title(groups)}"
    return _without_empty(caption, columns, rows, numeric, {"runs"} if single else set())


def _without_empty(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: set[int],
    dropped: set[str],
    *,
    folded: bool = False,
) -> TableBlock:
    """A table without the columns `dropped` and those that are empty in all rows."""
    filled = [any(row[place] for row in rows) for place in range(len(columns))]
    kept = [place for place, name in enumerate(columns) if name not in dropped and filled[place]]
    cells = [[row[place] for place in kept] for row in rows]
    aligned = frozenset(at for at, place in enumerate(kept) if place in numeric)
    return TableBlock(caption, [columns[place] for place in kept], cells, aligned, folded=folded)


def _run_table(group: Group, *, alone: bool) -> TableBlock:
    metrics = list(group.figures())[:3]
    rows = []
    for record in group.records:
        best = record.best_epoch
        epochs, seconds = record.result.get("epochs"), record.result.get("fit_seconds")
        tested = [(name, record.tested.get(name)) for name in metrics]
        cells = [record.name, *("" if value is None else spread(name, value, None) for name, value in tested)]
        cells += [
            "" if best is None else f"{best + 1}",
            str(record.curves.num_epochs if epochs is None else epochs),
            "" if not isinstance(seconds, int | float) else f"{seconds:,.0f}",
            record.state,
        ]
        rows.append(cells)
    columns = ["run", *map(shown_name, metrics), "best epoch", "epochs", "seconds", "state"]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    title = "Runs" if alone else f"Runs: {group.label}"
    numeric = frozenset(range(1, len(metrics) + 4))
    return TableBlock(title, columns, rows, numeric, folded=len(rows) > _FEW_RUNS)
