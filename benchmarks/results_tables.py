"""Write the tables of results in README.md and docs/ from benchmarks/results/rows, or from another folder.

    python -m benchmarks.results_tables [--check]

A table is between two comments. The first has the options of `graphzoo results` that select the rows, after
the name of a folder if it is not `rows`:

    <!-- results: --data cora,citeseer -->
    <!-- end of results -->

    <!-- results: ablations/galit-citeseer-attention -->
    <!-- end of results -->

    <!-- results: zero_shot.csv data=graph mrr=MRR -->
    <!-- end of results -->

The last form shows columns of a results file with headings. The next form shows the lines of a paper's
tables, each with the score of a kept row or the reason why there is none:

    <!-- results: papers.csv GALiT -->
    <!-- end of results -->

Differences from the paper are numbered notes below the table. `--by_model` gives a line per data set and
metric and a column per model, from the default recipes or, if a model has none, from the first one.

`--check` writes nothing and prints the pages that would change.
"""

import argparse
import contextlib
import csv
import io
import re
import shlex
import sys
from collections.abc import Container
from pathlib import Path

from benchmarks.common import RESULTS
from graphzoo.catalog.tasks import PERCENT, TASKS
from graphzoo.cli.results import results_main
from graphzoo.runs.collect import AS_PUBLISHED
from graphzoo.runs.published import Published, compare, parse_published
from graphzoo.runs.row import read_row
from graphzoo.runs.tables import spread

ROOT = Path(__file__).parent.parent
TITLES = {name: title for task in TASKS.values() for name, title in task.columns.items()}
BLOCK = re.compile(
    r"(?P<begin>^<!-- results: (?P<options>.*?) -->\n).*?(?P<end>^<!-- end of results -->$)", re.M | re.S
)


def table(options: str) -> str:
    """The table of `graphzoo results` for these options, with notes in place of the column `differs`."""
    words = shlex.split(options)
    if words[0] == "papers.csv":
        return published_by(words[1])
    if words[0].endswith(".csv"):
        return columns_of(RESULTS / words[0], dict(word.split("=", 1) for word in words[1:]))
    folder = words.pop(0) if not words[0].startswith("--") else "rows"
    by_model = "--by_model" in words
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        results_main(
            [str(RESULTS / folder), "--format", "markdown", *(w for w in words if w != "--by_model")]
        )
    lines = text.getvalue().strip().splitlines()
    header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    entries = [dict(zip(header, row, strict=True)) for row in rows]
    notes: list[str] = []
    shown = per_model(entries, notes, sizes_in(RESULTS / folder)) if by_model else with_notes(entries, notes)
    cells = [list(shown[0]), ["---"] * len(shown[0]), *(list(row.values()) for row in shown)]
    written = [f"| {' | '.join(row)} |" for row in cells]
    if notes:
        written += ["", *(f"{place}. {note}" for place, note in enumerate(notes, 1))]
    return "\n".join(written) + "\n"


def columns_of(path: Path, headings: dict[str, str]) -> str:
    """Some columns of a CSV file as a table."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [[row[column] for column in headings] for row in csv.DictReader(file)]
    cells = [list(headings.values()), ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def published_by(paper: str) -> str:
    """The lines of a paper's tables about its model, with our score, or the reason why not and the hours.

    Columns that would be empty are left out.
    """
    with (RESULTS / "papers.csv").open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["paper"] == paper]
    named = {(line["kept"], line["metric"]) for line in lines}
    rows = []
    for line in lines:
        metric = line["metric"]
        figure = (
            parse_published(f"{metric}={line['published']}")[f"test/{metric}"] if line["published"] else None
        )
        rows.append(
            {
                "table": line["table"],
                "what": line["what"],
                "metric": PERCENT.get(metric, metric),
                "paper": "" if figure is None else spread(metric, *figure),
                **ours(line["kept"], metric, figure, named),
                "why not": line["why"],
                "hours": line["hours"],
            }
        )
    kept = [
        name for name in rows[0] if name in ("table", "what", "", "ours") or any(row[name] for row in rows)
    ]
    cells = [kept, ["---"] * len(kept), *([row[name] for name in kept] for row in rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def ours(
    kept: str, metric: str, figure: Published | None, named: Container[tuple[str, str]]
) -> dict[str, str]:
    """The score of a kept row and its comparison; for several rows or a file, the place where they are shown.

    Also the score of the same model on the whole graph, if the row has one, and the row's other metrics in
    the paper, except those that are `named` in other lines.
    """
    cells = dict.fromkeys(("ours", "", "on the whole graph", "other metrics (paper)"), "")
    if not kept:
        return cells
    if kept.startswith("ablations/"):
        rows = len(list((RESULTS / kept).glob("*/row.json")))
        many = f"{rows} rows" if rows > 1 else "one row"
        marker = f"<!-- results: {kept} "
        pages = sorted((ROOT / "docs").glob("results-*.md"))
        page = next(page for page in pages if marker in page.read_text(encoding="utf-8"))
        return cells | {"ours": f"[{many}]({page.name})"}
    if kept.endswith(".csv"):
        return cells | {"ours": f"`{kept}`"}
    row = read_row(RESULTS / kept / "row.json")

    def shown(name: str, figure: Published | None) -> tuple[str, str]:
        found = row["metrics"][f"test/{name}"]
        count, verdict = len(found["values"]), ""
        if figure is not None:
            published, std = (found["mean"], *figure), found["std"]
            verdict = compare(name, *published, std=std, runs=count, tested=row.get("tested"))
        return spread(name, found["mean"], found["std"]), verdict

    cells["ours"], cells[""] = shown(metric, figure)
    if f"test/whole_graph/{metric}" in row["metrics"]:
        cells["on the whole graph"] = ", ".join(filter(None, shown(f"whole_graph/{metric}", figure)))
    others = []
    for full, found in row["metrics"].items():
        name = full.removeprefix("test/")
        if found["paper"] is None or name == metric or (kept, name) in named:
            continue
        published = Published(found["paper"], found["paper_std"])
        score, verdict = shown(name, published)
        others.append(f"{TITLES.get(name, name)} {score} ({spread(name, *published)}) {verdict}")
    cells["other metrics (paper)"] = "; ".join(others)
    return cells


def mark(note: str, notes: list[str]) -> str:
    """The superscript number of a note; a new note is added to `notes`."""
    if not note:
        return ""
    if note not in notes:
        notes.append(note)
    return " " + str(notes.index(note) + 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def with_notes(entries: list[dict[str, str]], notes: list[str]) -> list[dict[str, str]]:
    """The rows with a note mark after our score in place of the column `differs`."""
    rows = []
    for entry in entries:
        row = {name: cell for name, cell in entry.items() if name != "differs"}
        rows.append(row | {"ours": row["ours"] + mark(entry.get("differs", ""), notes)})
    return rows


def sizes_in(folder: Path) -> dict[str, int]:
    """Number of parameters by recipe, 0 if a row does not have it."""
    rows = (read_row(path) for path in folder.glob("*/row.json"))
    return {row["recipe"]: row["runs"][0].get("num_parameters") or 0 for row in rows if row.get("recipe")}


def per_model(entries: list[dict[str, str]], notes: list[str], sizes: dict[str, int]) -> list[dict[str, str]]:
    """A row per data set and metric, a column per model; cells are our score and the paper's in brackets."""
    chosen: dict[tuple[str, str, str], tuple[dict[str, str], str]] = {}
    ranks: dict[tuple[str, str, str], tuple[bool, bool, int]] = {}
    unchanged: dict[tuple[str, str, str], list[tuple[str, dict[str, str]]]] = {}
    for entry in entries:
        model, _, recipe = entry["model"].rstrip(")").partition(" (")
        key = (entry["data"], entry["metric"], model)
        if recipe.endswith(AS_PUBLISHED) or not recipe:
            unchanged.setdefault(key, []).append((recipe, entry))
        # several runs are preferred to one, then the data set's default recipe, then the larger model
        rank = entry["runs"] == "1", bool(recipe), -sizes.get(f"{model}/{recipe}", 0)
        if key not in chosen or rank < ranks[key]:
            chosen[key], ranks[key] = (entry, recipe), rank
    models = sorted({model for _, _, model in chosen})
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for (data, metric, model), (entry, recipe) in chosen.items():
        empty = {"data": data, "metric": metric, **dict.fromkeys(models, "")}
        ours = f"**{entry['ours']}**" if entry[""] in ("met", "above") else entry["ours"]
        tested = [entry.get("protocol", ""), entry["differs"]]
        few = {"1": "one run", "2": "2 runs"}.get(entry["runs"], "")
        others = unchanged.get((data, metric, model), [])
        # rows of the same protocol only: on another split, the paper has another figure
        same = [pair for pair in others if pair[0] != recipe and pair[1]["paper"] == entry["paper"]]
        plain = [f"`{name or data}`: {other['ours']}" for name, other in same]
        said = [f"`{recipe}`" if recipe else "", *tested, few, *plain]
        note = mark("; ".join(filter(None, said)), notes)
        rows.setdefault((data, metric), empty)[model] = f"{ours} ({entry['paper']}){note}"
    return list(rows.values())


def renewed(text: str) -> str:
    """A page with its tables replaced."""
    return BLOCK.sub(lambda found: f"{found['begin']}\n{table(found['options'])}\n{found['end']}", text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    changed = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        before = page.read_text(encoding="utf-8")
        after = renewed(before)
        if after != before:
            changed.append(page.relative_to(ROOT).as_posix())
            if not check:
                page.write_text(after, encoding="utf-8")
    print("\n".join(changed) or "nothing to change")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
