"""`graphzoo results [PATH...]`: finished rows and runs as one table."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphzoo.catalog.tasks import PERCENT, is_error
from graphzoo.cli.options import Parser
from graphzoo.errors import UsageError, suggestion
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.collect import WHO, all_seeds, collect, ranges, seeds_of
from graphzoo.runs.published import PROTOCOLS, VERDICTS, compare, split_protocol
from graphzoo.runs.row import main_metric
from graphzoo.runs.tables import spread
from graphzoo.system.paths import typed
from graphzoo.system.shown import cell, console, tell_damaged, visible

_FORMATS = ("table", "markdown", "latex", "csv")
_COLUMNS = ("data", "model", "metric", "ours", "runs", "seeds", "paper", "", "protocol", "differs", "command")
_VERDICT = _COLUMNS.index("")
_DIFFERS = _COLUMNS.index("differs")
_FILE_WIDTH, _MOST_NAMED = 200, 8
# Characters that mean something else in LaTeX.
_ESCAPED = {character: f"\\{character}" for character in "&%$#_{}"}
_WORDS = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_FONTS = {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}  # others in the default encoding
_STARTS = {character: f"{{{character}}}" for character in "[*"}  # options of the command before a cell
_LATEX = str.maketrans(_ESCAPED | _WORDS | _FONTS | _STARTS)


def results_parser() -> Parser:
    """The options."""
    parser = Parser(
        "results",
        "[PATH...] [options]",
        "Print finished runs as a table, beside the scores of the papers. Runs of the same settings with "
        "several seeds or splits are one row, with their mean.",
    )
    add = parser.add_argument
    add(
        "path",
        nargs="*",
        type=Path,
        default=[RUNS],
        metavar="PATH",
        help="folder of runs, or row.json of `graphzoo reproduce` (default: runs)",
    )
    add("--format", default="table", choices=_FORMATS, help="output format (default table)")
    add("--metric", default="", metavar="NAME", help="metric to print (default: the main metric of each row)")
    add("--data", default="", metavar="A,B", help="only these data sets")
    add("--model", default="", metavar="A,B", help="only these models")
    add("--published", action="store_true", help="only rows with a published score")
    add("--commands", action="store_true", help="add the command that produces each row")
    return parser


def results_main(argv: list[str]) -> int:
    """Print rows that `graphzoo reproduce` made, and means of single runs, beside the paper's scores."""
    args = results_parser().read(argv)
    commands, form = args.commands, args.format
    damaged: list[UsageError] = []
    rows = found = collect(args.path, commands=commands, damaged=damaged)
    metric = f"test/{args.metric.removeprefix('test/')}" if args.metric else ""
    for key, names in (("data", args.data), ("model", args.model)):
        if names:
            rows = [row for row in rows if row[key] in re.split(r"\s*,\s*", names.strip())]
    if metric and rows and not any(metric in row["metrics"] for row in rows):
        known = list(dict.fromkeys(name.removeprefix("test/") for row in rows for name in row["metrics"]))
        hint = suggestion(args.metric, known) or "There are: " + ", ".join(known)
        raise UsageError(f"no result has the metric {args.metric!r}\n{hint}")
    rows = [row for row in rows if not metric or metric in row["metrics"]]
    if args.published:
        rows = [row for row in rows if row["metrics"][metric or main_metric(row)].get("paper") is not None]
    if not found and damaged:
        raise damaged[0]
    if not rows:
        for path in args.path:
            if (table := path / "compare.json").is_file():
                again = "The same graphzoo compare command shows it again"
                raise UsageError(f"{path} is a comparison, whose table is in {table}\n{again}")
            if (path / "config.yaml").is_file() and not (path / "results.json").is_file():
                run = typed(path)
                remedy = f"Test it: graphzoo test {run}, or train it on: graphzoo fit {run}"
                raise UsageError(f"{path} is a run that was not tested\n{remedy}")
        missing = "there are no such results" if found else "no finished runs were found"
        raise UsageError(f"{missing}\n{_what_there_is(found)}")
    shown = [(row, name) for row in rows for name in ([metric] if metric else _with_other_protocol(row))]
    lines = [_line(row, name, commands=commands) for row, name in shown]
    if form == "table":
        _print(lines)
    elif form == "csv":
        sys.stdout.write(_to_csv(rows, metric, commands))
    else:
        sys.stdout.write(to_markdown(lines) if form == "markdown" else _to_latex(shown, lines))
    return tell_damaged("results", damaged)


def _what_there_is(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(f"{row['model']} on {row['data']}" for row in rows))
    if not names:
        return "Make some: graphzoo reproduce galit cora --seeds 0,1,2"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"There are: {', '.join(names[:_MOST_NAMED])}{more}"


def _line(row: Mapping[str, Any], metric: str, *, commands: bool) -> list[str]:
    figure = row["metrics"][metric]
    name, protocol = split_protocol(metric)
    model = row["model"]
    recipe = (row.get("recipe") or "").rpartition("/")[2]
    if recipe and recipe != row["data"]:
        model += f" ({recipe})"
    if row.get("name"):
        model += f": {row['name']}"
    paper, paper_std = figure.get("paper"), figure.get("paper_std")
    published = "" if paper is None else spread(name, paper, paper_std)
    ours = spread(name, figure["mean"], figure["std"])
    command = (row.get("command") or "") if commands else ""
    command = f"`{command}`" if command.startswith("graphzoo ") else command
    who = [row["data"], model, PERCENT.get(name, name), ours, str(len(figure["values"])), seeds_of(row)]
    remarks = [_verdict(row, metric), protocol or row.get("protocol") or "", row.get("differs") or ""]
    return [*who, published, *remarks, command]


def _with_other_protocol(row: Mapping[str, Any]) -> list[str]:
    """The metric that a row is shown by, and the same under its other protocol where both were tested."""
    main = main_metric(row)
    others = (main.replace("/", f"/{protocol}/", 1) for protocol in PROTOCOLS)
    return [main, *(name for name in others if name in row["metrics"])]


def _verdict(row: Mapping[str, Any], metric: str) -> str:
    figure = row["metrics"][metric]
    papers, runs = (figure.get("paper"), figure.get("paper_std")), len(figure["values"])
    return compare(metric, figure["mean"], *papers, std=figure["std"], runs=runs, tested=row.get("tested"))


def _print(lines: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    screen = console()
    if not screen.is_terminal:
        screen = Console(width=_FILE_WIDTH)  # a file has no edge to fold at
    kept = _kept(lines)
    notes: list[str] = []
    if sum(max(len(line[place]) for line in [*lines, list(_COLUMNS)]) + 3 for place in kept) >= screen.width:
        # long words beside narrow figures would fold to columns of single syllables
        notes = list(dict.fromkeys(line[_DIFFERS] for line in lines if line[_DIFFERS]))
        numbers = {text: f"({number})" for number, text in enumerate(notes, 1)} | {"": ""}
        lines = [[*line[:_DIFFERS], numbers[line[_DIFFERS]], *line[_DIFFERS + 1 :]] for line in lines]
    table = Table(box=SIMPLE_HEAD, collapse_padding=True) if notes else Table()
    for place in kept:
        name = _COLUMNS[place]
        right = name in ("ours", "runs", "seeds", "paper")
        whole = name in ("metric", "ours", "paper")
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for line in lines:
        table.add_row(*(cell(line[place]) for place in kept))
    screen.print(table)
    for number, note in enumerate(notes, 1):
        screen.print(cell(f"({number}) {note}"))
    if any(line[_VERDICT] for line in lines):
        screen.print(cell(f"{VERDICTS} Otherwise: met."))


def _kept(lines: Sequence[Sequence[str]]) -> list[int]:
    """Places of the columns that are not empty everywhere."""
    return [place for place in range(len(_COLUMNS)) if any(line[place] for line in lines)]


def to_markdown(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a Markdown table; columns that are empty everywhere are left out."""
    kept = _kept(lines)

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(visible(cells[place]).replace("|", "\\|") for place in kept) + " |\n"

    return row(_COLUMNS) + "|" + "---|" * len(kept) + "\n" + "".join(map(row, lines))


def _to_latex(shown: Sequence[tuple[Mapping[str, Any], str]], lines: Sequence[Sequence[str]]) -> str:
    """Models by data sets and metrics, for the LaTeX package booktabs, with what differs as notes.

    Commands are comments below.
    """
    columns: dict[str, list[float]] = {}  # means
    table: dict[tuple[str, int], dict[str, tuple[float, str, str]]] = {}
    for (row, metric), line in zip(shown, lines, strict=True):
        cells = dict(zip(_COLUMNS, (visible(text).translate(_LATEX) for text in line), strict=True))
        column = f"{cells['data']}, {cells['metric']} {cells['protocol']}".rstrip()
        # Of two scores the larger one is better.
        score = row["metrics"][metric]["mean"] * (-1 if is_error(metric) else 1)
        columns.setdefault(column, []).append(-math.inf if math.isnan(score) else score)
        # Rows with and without a recipe may have the same name.
        same = sum(name == cells["model"] and column in found for (name, _), found in table.items())
        table.setdefault((cells["model"], same), {})[column] = score, cells["ours"], cells["differs"]
    body, notes = [], dict[str, int]()
    for (name, _), found in table.items():
        body.append([name])
        for column, scores in columns.items():
            score, text, note = found.get(column, (math.nan, "", ""))
            mark = rf"$^{{{notes.setdefault(note, len(notes) + 1)}}}$" if note else ""
            is_best = len(scores) > 1 and score == max(scores)
            body[-1].append((rf"\textbf{{{text}}}" if is_best else text) + mark)
    head, *rows = (" & ".join(cells) + r" \\" for cells in [["model", *columns], *body])
    runs = {len(row["metrics"][metric]["values"]) for row, metric in shown}
    counts = " to ".join(map(str, sorted({min(runs), max(runs)})))
    texts = [
        r"% Needs \usepackage{booktabs}. Bold: the best mean of a column.",
        f"% Mean and sample standard deviation; number of runs: {counts}.",
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        *(r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"),
        *(rf"\par{{\footnotesize $^{{{number}}}$ {note}\par}}" for note, number in notes.items()),
        *(f"% {visible(': '.join((line[0], line[1], line[-1])))}" for line in lines if line[-1]),
    ]
    return "\n".join(texts) + "\n"


def _to_csv(rows: Sequence[Mapping[str, Any]], only: str, commands: bool) -> str:
    """All metrics of all rows, or one of them alone, in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measured = ["mean", "std", "runs", "seeds", "splits", "paper", "paper_std", "verdict", "differs"]
    writer.writerow([*WHO, "metric", *measured, "protocol", *(["command"] if commands else [])])
    for row in rows:
        lists = [all_seeds(row), ranges(row.get("splits") or [])]
        for metric, figure in row["metrics"].items():
            if only not in ("", metric):
                continue
            paper, paper_std = figure.get("paper"), figure.get("paper_std")
            figures = [figure["mean"], figure["std"], len(figure["values"]), *lists, paper, paper_std]
            remarks = [_verdict(row, metric), visible(row["differs"]) if row.get("differs") else None]
            remarks.append(split_protocol(metric)[1] or row.get("protocol"))
            remarks += [visible(row.get("command") or "")] if commands else []
            # a terminal may be what reads it
            who = [visible(row[key]) if row.get(key) else None for key in WHO]
            writer.writerow([*who, metric.removeprefix("test/"), *figures, *remarks])
    return text.getvalue()
