"""Every score quoted in prose or a hand-made table is in a kept file, or is noted as an exception.

`test_docs.py` renders the generated tables again. Here each page is compared only with the files that its
scores come from: among all files, a wrong figure would often match another one by chance.
"""

import bisect
import csv
import json
import re
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

from graphzoo.catalog.presets import list_presets
from graphzoo.runs.published import parse_published

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
# Files that each page may quote; other pages may quote those of `USUAL`.
SOURCES = {
    "docs/results-kg.md": [
        "rows/knowformer*",
        "neighbourhood*",
        "neighbourhood_runs/*",
        "evaluation_neighbourhoods.csv",
        "second_graph.csv",
        "second_graph_trials.csv",
        "chosen_on_test.csv",
        "reverse_weights.csv",
        "fine_tun*",
        "zero_shot.csv",
        "first_steps/*",
        "path_lengths.csv",
        "kg_defaults.csv",
    ],
    "docs/knowformer-any.md": [
        "zero_shot.csv",
        "fine_tun*",
        "knowformer_any*",
        "pretrained.csv",
        "neighbourhood_runs/knowformer-any*",
        "neighbourhood_tests.csv",
        "rows/knowformer*",
    ],
    "docs/knowformer.md": ["neighbourhood*", "rows/knowformer*"],
    "docs/results-nodes.md": [
        "rows/*galit*",
        "rows/*nodeformer*",
        "nodeformer_squirrel_trials.csv",
        "node_models.csv",
        "galit*",
        "ablations/galit*",
        "ablations/nodeformer*",
        "checkpoint_choice.csv",
    ],
    "docs/results-ablations.md": ["rows/*", "ablations/*"],
    "docs/results-links.md": [
        "rows/pencil*",
        "rows/heuristic*",
        "rows/*-link*",
        "rows/*-pair*",
        "link_*.csv",
        "training/pencil*",
        "training/*link*",
        "ablations/pencil*",
        "ablations/gat*",
    ],
    "docs/results-baselines.md": ["rows/*", "checkpoint_choice.csv"],
    "README.md": ["rows/*", "fine_tuned.csv"],
}
USUAL = ["rows/*", "*.csv"]
# An MRR or accuracy with three or four decimals, or a percentage with one or two.
_FIGURE = r"(?<![\w.])(?:0?\.\d{3,4}|\d{2}\.\d{1,2})(?!\d|\.\d)"
FIGURE = re.compile(_FIGURE)
SPREAD = re.compile(rf"({_FIGURE}) ± (\d+\.\d+)")
SCORES = {"mrr", *(f"hits@{k}" for k in (1, 3, 10, 20, 50, 100)), "acc", "auroc", "ap", "rmse"}
NO_SCORES = {
    "commit",
    "machine",
    "date",
    "config",
    "torch",
    "seconds",
    "hours",
    "minutes",
    "p20",
    "p80",
    "lr",
    "train/lr",
}
NUMBER = re.compile(r"(?<![\w.])\d*\.\d+(?:e-?\d+)?")
QUOTING = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


def figures(text, regex=FIGURE):
    """Yield (section, figure) outside of code, formulas and generated tables."""
    for pattern in (r"<!-- results.*?<!-- end of results -->", r"```.*?```", r"`[^`\n]*`", r"\$[^$]*\$"):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    section = ""
    for line in text.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        for found in regex.findall(line):
            yield section, found


def chosen(patterns, name):
    """Kept files of this name (a glob) that match a pattern; `*` without a slash matches no subfolder."""
    for file in sorted(RESULTS.rglob(name)):
        path = file.relative_to(RESULTS).as_posix()
        if file.name != "noted.csv" and any(
            fnmatch(path, p) and ("/" in p or "/" not in path) for p in patterns
        ):
            yield file


def lines_of(file):
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def kept(patterns):
    """Scores in the kept files that match a pattern, sorted.

    Of rows: the metrics, with the published ones and those of validation. Of tables: all numbers but times
    and settings.
    """
    numbers = set()
    for file in chosen(patterns, "*.csv"):
        for line in lines_of(file):
            cells = [str(cell) for name, cell in line.items() if name not in NO_SCORES]
            numbers.update(map(float, NUMBER.findall(" ".join(cells))))
    for file in chosen(patterns, "row.json"):
        row = json.loads(file.read_text(encoding="utf-8"))
        scores = list(row["metrics"].items())
        for run in row["runs"]:
            scores += [(name, {"mean": value}) for name, value in (run.get("validation") or {}).items()]
        for name, found in scores:
            if name.rpartition("/")[2] in SCORES:
                numbers.update(found.pop("values", []))
                numbers.update(value for value in found.values() if isinstance(value, float))
    return sorted(numbers)


def is_kept(figure, numbers):
    """Whether one of the sorted numbers rounds to the figure, or to a hundredth of it (for a percentage)."""
    half = 0.5001 * 10.0 ** -len(figure.partition(".")[2])
    for scale in (1, 100):
        place = bisect.bisect_left(numbers, (float(figure) - half) / scale)
        if place < len(numbers) and numbers[place] <= (float(figure) + half) / scale:
            return True
    return False


def kept_spreads(patterns):
    """(mean, deviation) of metrics and validation scores of kept rows, of published ones, and in tables."""
    pairs, several = set(), {}
    for file in chosen(patterns, "row.json"):
        row = json.loads(file.read_text(encoding="utf-8"))
        for found in row["metrics"].values():
            pairs.update(
                {(found["mean"], found["std"] or 0.0), (found["paper"] or 0.0, found["paper_std"] or 0.0)}
            )
        for run in row["runs"]:
            for name, value in (run.get("validation") or {}).items():
                several.setdefault((file, name), []).append(value)
    for file in chosen(patterns, "*.csv"):
        text = file.read_text(encoding="utf-8")
        pairs.update((float(a), float(b)) for a, b in re.findall(r"(\d*\.\d+) ?± ?(\d*\.\d+)", text))
        for line in lines_of(file):
            if file.name == "reverse_weights.csv":
                several.setdefault((line["row"], line["split"], line["reverse_weight"]), []).append(
                    line["mrr"]
                )
            if file.name == "link_facts.csv" and line["fact"].endswith((", mean", ", deviation")):
                several.setdefault((line["data"], line["fact"].rpartition(", ")[0]), []).append(line["value"])
    for key, values in several.items():
        numbers = np.array(values, dtype=float)
        # A fact has a line for its mean and one for its deviation.
        if len(key) == 2 and isinstance(key[0], str):
            pairs.add((numbers[0], numbers[1]))
        elif numbers.size > 1:
            pairs.add((numbers.mean(), numbers.std(ddof=1)))
    return pairs


def noted():
    """Figures that no file holds, as (page, section, figure); the column `why` has the reason."""
    with (RESULTS / "noted.csv").open(encoding="utf-8", newline="") as file:
        return [(row["page"], row["section"], row["figure"]) for row in csv.DictReader(file)]


def not_kept(page):
    patterns = SOURCES.get(page, USUAL)
    numbers = sorted({*kept(patterns), *(mean for mean, _ in kept_spreads(patterns))})
    return {
        (page, *found)
        for found in figures((ROOT / page).read_text(encoding="utf-8"))
        if not is_kept(found[1], numbers)
    }


@pytest.mark.parametrize("page", QUOTING)
def test_a_quoted_score_is_in_a_kept_file(page):
    assert not_kept(page) - set(noted()) == set(), "keep the file that it comes from, or leave it out"


def spreads_not_kept(page):
    pairs = kept_spreads(SOURCES.get(page, USUAL))
    return {
        (page, section, " ± ".join(quoted))
        for section, quoted in figures((ROOT / page).read_text(encoding="utf-8"), SPREAD)
        if not any(is_kept(quoted[0], [mean]) and is_kept(quoted[1], [std]) for mean, std in pairs)
    }


@pytest.mark.parametrize("page", QUOTING)
def test_a_quoted_deviation_is_that_of_its_mean(page):
    """Mean and deviation come from one row: a wrong pair seldom matches by chance."""
    assert spreads_not_kept(page) - set(noted()) == set(), "keep the row that it comes from, or leave it out"


def test_means_and_deviations_are_those_of_the_runs():
    """NumPy computes them again, for every metric of every kept row."""
    files = list(RESULTS.rglob("row.json"))
    assert files
    for file in files:
        row = json.loads(file.read_text(encoding="utf-8"))
        for name, found in row["metrics"].items():
            values = np.array(found["values"])
            assert found["mean"] == pytest.approx(values.mean(), rel=1e-12), (file, name)
            assert (found["std"] is None) == (values.size == 1), (file, name)
            if found["std"] is not None:
                assert found["std"] == pytest.approx(values.std(ddof=1), rel=1e-9, abs=1e-15), (file, name)


def test_every_noted_figure_is_quoted_and_in_no_file():
    rows = noted()
    assert len(rows) == len(set(rows))
    missing = {row for page in QUOTING for row in not_kept(page) | spreads_not_kept(page)}
    assert set(rows) - missing == set()


def test_scores_of_recipes_are_those_of_the_kept_rows():
    """`measured` in the header of a recipe holds the scores of its runs; `graphzoo list` shows it."""
    rows = {}
    for file in (RESULTS / "rows").glob("*/row.json"):
        row = json.loads(file.read_text(encoding="utf-8"))
        rows.setdefault(row["recipe"], []).append(row["metrics"])
    without = set()
    for recipe in list_presets("recipe"):
        header = recipe.header.get("measured", "").partition(", ")[0].partition(";")[0]
        scores = {name: value for name, value in re.findall(r"([\w@]+)=(\d\.\d+)", header)}
        if not scores:
            continue
        if recipe.name not in rows:
            without.add(recipe.name)
            continue
        assert any(
            all(is_kept(value, [metrics[f"test/{name}"]["mean"]]) for name, value in scores.items())
            for metrics in rows[recipe.name]
        ), recipe.name
    # The first has a validation score only; CI runs the second.
    assert without == {"knowformer-any/mixture", "knowformer/umls-demo"}


TIME = re.compile(r"([\d.]+)(?: to ([\d.]+))? (second|minute|hour)s?(?: a run)?(?:$|[,;])")
SECONDS = {"second": 1, "minute": 60, "hour": 3600}


def test_times_of_recipes_are_those_of_the_kept_runs():
    """`measured` in the header of a recipe holds the time of `fit`, within its unit or a tenth."""
    rows = {}
    for file in (RESULTS / "rows").glob("*/row.json"):
        row = json.loads(file.read_text(encoding="utf-8"))
        seconds = [run.get("fit_seconds") for run in row["runs"]]
        if row["recipe"] and all(seconds):
            rows[row["recipe"]] = min(seconds), max(seconds)
    compared = 0
    for recipe in list_presets("recipe"):
        header = TIME.search(recipe.header.get("measured", ""))
        if header is None or recipe.name not in rows:
            continue
        unit = SECONDS[header[3]]
        for text, measured in zip((header[1], header[2] or header[1]), rows[recipe.name], strict=True):
            given = float(text) * unit
            assert abs(given - measured) <= max(unit, 0.1 * given), (recipe.name, header[0], measured)
        compared += 1
    assert compared > 60


def test_each_line_of_the_papers_tables_has_a_score_or_a_reason():
    with (RESULTS / "papers.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["paper"] for line in lines} == {"GALiT", "NodeFormer", "KnowFormer", "PENCIL"}
    for line in lines:
        assert bool(line["kept"]) != bool(line["why"]), line
        if line["why"].startswith(("too long", "not run")):
            assert all(float(hours) > 0 for hours in line["hours"].split(" to ")), line
        if not line["kept"]:
            continue
        assert (RESULTS / line["kept"]).exists(), line
        row = RESULTS / line["kept"] / "row.json"
        if line["published"] and row.exists():
            found = json.loads(row.read_text(encoding="utf-8"))["metrics"][f"test/{line['metric']}"]
            assert parse_published(f"{line['metric']}={line['published']}") == {
                f"test/{line['metric']}": (found["paper"], found["paper_std"])
            }, line


def test_neighbourhood_scores_have_protocol_seed_and_commit():
    """Each data set, protocol and seed occurs once, and the means are those of the kept rows."""
    with (RESULTS / "neighbourhood_tests.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len({(line["data"], line["protocol"], line["seed"]) for line in lines}) == len(lines)
    assert {line["protocol"] for line in lines} == {"neighbourhood", "whole graph"}
    assert all(
        re.fullmatch(r"\d?", line["seed"]) and re.fullmatch(r"[0-9a-f]{7}", line["commit"]) for line in lines
    )
    scores = {}
    for line in lines:
        scores.setdefault((line["data"], line["protocol"]), []).append(float(line["mrr"]))
    compared = set()
    for file in (RESULTS / "rows").glob("knowformer-*-local/row.json"):
        row = json.loads(file.read_text(encoding="utf-8"))
        if row["data"].endswith("-link"):
            continue  # evaluated by AUROC
        # A test graph of fewer than K nodes is evaluated whole.
        own = "whole graph" if row["protocol"] == "on the whole graph" else "neighbourhood"
        for metric, protocol in (("test/mrr", own), ("test/whole_graph/mrr", "whole graph")):
            if metric in row["metrics"]:
                mean = row["metrics"][metric]["mean"]
                assert np.mean(scores[row["data"], protocol]) == pytest.approx(mean, abs=6e-5)
                compared.add(protocol)
    assert compared == {"neighbourhood", "whole graph"}


def test_what_counts_as_a_figure():
    text = "# A b\nMRR 0.4062 and 84.4 ± 0.45 %, `0.123`, $0.456$, version 2.13.0, 3.1 s\n"
    text += "```\n0.999\n```\nIt is 0.886.\n"
    assert list(figures(text)) == [("A b", "0.4062"), ("A b", "84.4"), ("A b", "0.886")]
    assert list(figures(text, SPREAD)) == [("A b", ("84.4", "0.45"))]
    assert is_kept("0.4062", [0.40618]) and is_kept("84.4", [0.8442]) and not is_kept("0.4062", [0.4063])
