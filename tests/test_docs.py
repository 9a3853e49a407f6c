"""README and docs are right: links have targets, examples run, commands are valid.

A fenced `python` or `bash` block below `<!-- run -->` is run. The blocks of a page run in order, in one empty
folder. A `python` block below `<!-- continue -->` continues the session of the block before it, as in a
notebook. A block below `<!-- file -->` is written to the file that its title names. The lines of a block
below `<!-- output -->` must be printed by the block before it, in this order and with nearly these numbers
(`is_like`). Every other `bash` block is checked command by command: the parser must accept its `graphzoo`
commands, and each `make` target and extra must exist.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from helpers.warm_python import python

from graphzoo.catalog.presets import find_preset, list_presets
from graphzoo.cli import main
from graphzoo.cli.commands import parser_of
from graphzoo.training.options import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(
    r"^(?P<mark><!-- [^\n]* -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[\w.]+)\")?[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    mark: str
    title: str

    @property
    def run(self):
        return self.mark in ("run", "continue")

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks_of(page):
    source = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    found = []
    for match in FENCE.finditer(source):
        mark = (match["mark"] or "").strip().removeprefix("<!-- ").removesuffix(" -->")
        assert mark in ("", "run", "continue", "output", "file"), f"{name}: unknown mark {mark}"
        line = source.count("\n", 0, match.start("text"))
        text = textwrap.dedent(match["text"]) if match["indent"] else match["text"]
        found.append(Block(name, line, match["language"], text, mark, match["title"] or ""))
    return found


BLOCKS = {page.relative_to(ROOT).as_posix(): blocks_of(page) for page in PAGES}


def commands(block):
    """Yield each command of the block as a list of words, without comments, `NAME=value` and launchers."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words and words[0] in ("torchrun", "srun"):
            at = next(place for place, word in enumerate(words) if word in ("graphzoo", "graphzoo.cli"))
            words = ["graphzoo", *words[at + 1 :]]
        if words:
            yield words


def graphzoo_commands():
    """Words after `graphzoo` of every command in the blocks that are not run."""
    return [
        words[1:]
        for blocks in BLOCKS.values()
        for block in blocks
        if block.language == "bash" and not block.run
        for words in commands(block)
        if words[0] == "graphzoo"
    ]


def environment(folder):
    """Variables of a block: `python` and `graphzoo` that start fast, an empty cache, W&B offline."""
    path = os.pathsep.join([str(Path(python()).parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "WANDB_MODE": "offline", "XDG_CACHE_HOME": str(folder / "cache")}


NEXT = "---- next block ----"


def sessions(blocks):
    """Group the blocks that are run or written by session."""
    found = []
    for block in blocks:
        if block.mark in ("run", "file"):
            found.append([block])
        elif block.mark == "continue":
            assert block.language == found[-1][-1].language == "python", f"{block}: nothing to go on with"
            found[-1].append(block)
    return found


def run_session(blocks, folder):
    """Run the blocks of a session in a folder; return the output of each block."""
    if blocks[0].mark == "file":
        assert len(blocks) == 1 and blocks[0].title, f"{blocks[0]}: a file needs a title"
        (folder / blocks[0].title).write_text(blocks[0].text, encoding="utf-8")
        return {str(blocks[0]): ""}
    if blocks[0].language == "python":
        text = f"print({NEXT!r}, flush=True)\n".join(block.text for block in blocks)
        (folder / "example.py").write_text(text, encoding="utf-8")
        command = [python(), "example.py"]
    else:
        assert blocks[0].language == "bash", f"{blocks[0]}: cannot run {blocks[0].language!r}"
        command = ["bash", "-euo", "pipefail", "-c", blocks[0].text]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{blocks[0]}\n{done.stdout[-6000:]}"
    printed = done.stdout.split(NEXT)
    assert len(printed) == len(blocks)
    return dict(zip(map(str, blocks), printed, strict=True))


def is_like(shown, printed):
    """Whether two lines have equal words, and numbers with a decimal point within 0.05 or 15 %.

    Rounding in training depends on the processor; one relation's MRR may differ by a tenth. Rates
    (`1860 queries/s`) may be any number.
    """
    one, other = shown.split(), printed.split()
    if len(one) != len(other):
        return False
    for place, (a, b) in enumerate(zip(one, other, strict=True)):
        number = r"-?\d+\.\d+(e-?\d+)?"
        if re.fullmatch(number, a) and re.fullmatch(number, b):
            if abs(float(a) - float(b)) > max(0.05, 0.15 * abs(float(b))):
                return False
        elif a != b and not (place + 1 < len(one) and one[place + 1].endswith("/s") and b.isdecimal()):
            return False
    return True


def missing_line(shown, printed):
    """First line of `shown` that was not printed after the line before it, or None; `...` is any lines."""
    rest = iter(printed.splitlines())
    for line in shown.splitlines():
        if line.strip() in ("", "..."):
            continue
        if not any(is_like(line, candidate) for candidate in rest):
            return line
    return None


@pytest.mark.parametrize("page", [name for name, blocks in BLOCKS.items() if any(b.run for b in blocks)])
def test_examples_run(page, tmp_path):
    """Marked blocks end without error, in the order of the page, and print the output that the page shows."""
    printed = {}
    for blocks in sessions(BLOCKS[page]):
        printed |= run_session(blocks, tmp_path)
    before = None
    for block in BLOCKS[page]:
        if block.mark == "output":
            line = missing_line(block.text, printed[str(before)])
            assert line is None, f"{block}: not printed: {line}\n{printed[str(before)][-6000:]}"
        else:
            before = block


def test_output_that_is_not_printed_is_found():
    printed = "epoch 1/2 1860 queries/s\n  mrr 0.812\n steroid known\n"
    assert missing_line("epoch 1/2 999 queries/s\n...\nmrr 0.83", printed) is None
    assert missing_line("mrr 0.962", printed) == "mrr 0.962"
    assert missing_line("steroid known\nmrr 0.812", printed) == "mrr 0.812"
    assert missing_line("epoch 2/2 1860 queries/s", printed) == "epoch 2/2 1860 queries/s"
    assert missing_line("steroid unknown", printed) == "steroid unknown"


def test_bash_commands_are_known():
    """Make targets, extras and modules in command blocks exist; every command has a check."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for blocks in BLOCKS.values():
        for block in blocks:
            if block.language != "bash" or block.run:
                continue
            for words in commands(block):
                if words[0] == "make":
                    named = {word for word in words[1:] if "=" not in word}
                    assert named <= targets, f"{block}: {words}"
                elif words[0] == "pip":
                    assert words[1] == "install", f"{block}: {words}"
                    for extra in re.findall(r"\[([\w,]+)\]", " ".join(words)):
                        assert set(extra.split(",")) <= extras, f"{block}: {words}"
                elif words[0] == "python":
                    module = ROOT / words[2].replace(".", "/")
                    there = module.is_dir() or module.with_suffix(".py").is_file()
                    assert words[1] == "-m" and there, f"{block}: {words}"
                elif words[0] == "source":  # activates the environment that `make` creates
                    assert words[1:] == [".venv/bin/activate"], f"{block}: {words}"
                else:
                    assert words[0] in {"graphzoo", ".ci/run", "wandb"}, f"{block}: nothing checks {words}"


CHECK = """
import contextlib, io, json, sys

from graphzoo.cli import main

failed = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([*words, "--print_config"])
    if status != 0 or "class_path: graphzoo.tasks." not in out.getvalue():
        failed.append([" ".join(words), status, err.getvalue()])
print(json.dumps(failed))
"""


def run_check(commands_to_check, tmp_path):
    done = subprocess.run(
        [python(), "-c", CHECK],
        input=json.dumps(commands_to_check),
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_fit_commands_are_accepted(tmp_path):
    """The parser accepts all options of each `fit`, `validate` and `test` that is not run."""
    shown = [words for words in graphzoo_commands() if words[0] in ("fit", "validate", "test")]
    distinct = {" ".join(words): words for words in shown if "--print_config" not in words}
    assert len(distinct) > 10
    assert run_check(list(distinct.values()), tmp_path) == []


def test_wrong_commands_are_found(tmp_path):
    wrong = [
        ["fit", "--model", "knowfromer", "--data", "umls"],
        ["fit", "--model", "knowformer", "--data", "umls", "--trainer.max_epoch", "3"],
        ["fit", "--model", "knowformer", "--data", "umls", "--model.encoder.num_layer", "3"],
    ]
    assert len(run_check(wrong, tmp_path)) == len(wrong)


def assert_options_of_fit(others, words):
    names = [word.partition("=")[0][2:] for word in others if word.startswith("--")]
    assert all("." in name or name in (*OPTIONS, "no-test", "quiet") for name in names), words


def test_other_commands_are_accepted():
    """The presets that they name exist; `list` is run."""
    for words in graphzoo_commands():
        command, *rest = words
        parser = parser_of(command)
        if parser is None:
            continue  # fit, validate and test have their own test
        given, others = parser.read_some(rest)
        if command == "list":
            assert main(words) == 0
        elif command == "download":
            assert all(find_preset("data", name).name == name for name in given.name)
        elif getattr(given, "all", None):
            assert_options_of_fit(others, words)  # a file names models and data sets
        elif command in ("reproduce", "search"):
            assert find_preset("model", given.model).name == given.model, words
            assert find_preset("data", given.data).name == given.data, words
            for kind in ("recipe", "ablation"):
                name = getattr(given, kind, "") or ""
                assert not name or name.endswith(".yaml") or find_preset(kind, name, model=given.model)
            if command == "search":
                assert find_preset("search", given.space or given.model)
            assert_options_of_fit(others, words)
        elif command == "compare":
            assert find_preset("data", given.data).name == given.data, words
            assert_options_of_fit(others, words)
        else:
            assert others == [], words


def test_tables_of_results_are_those_of_the_kept_rows():
    """README and docs show what `graphzoo results benchmarks/results/rows` prints."""
    from benchmarks.results_tables import BLOCK, renewed

    tables = {page: page.read_text(encoding="utf-8") for page in PAGES}
    with_tables = {page.name for page, text in tables.items() if BLOCK.search(text)}
    # The page of kg also has a table that is not generated.
    kinds = ("nodes", "links", "kg", "baselines", "ablations", "papers")
    assert with_tables == {
        "README.md",
        "knowformer-any.md",
        *(f"results-{kind}.md" for kind in kinds),
    }
    stale = [page.name for page, text in tables.items() if renewed(text) != text]
    assert stale == [], "run python -m benchmarks.results_tables"
    for text in tables.values():
        damaged = BLOCK.sub(lambda found: re.sub(r"\d ±", "0 ±", found[0]), text)
        assert renewed(damaged) == text, "a changed score would be noticed"


def test_several_runs_come_before_one_then_the_default_recipe_then_the_larger_model():
    from benchmarks.results_tables import per_model

    def row(model: str, runs: str, ours: str) -> dict[str, str]:
        shared = {"data": "cora", "metric": "acc", "paper": "2.0", "": "met", "differs": ""}
        return shared | {"model": model, "runs": runs, "ours": ours}

    one, several, more = (
        row("gcn", "1", "0.1"),
        row("gcn (narrow)", "3", "0.2"),
        row("gcn (wide)", "3", "0.3"),
    )
    for rows, chosen in (
        ([one, several], several),
        ([several, one], several),
        ([one, row("gcn (narrow)", "1", "0.2")], one),
        ([several, more, row("gcn", "3", "0.4")], row("gcn", "3", "0.4")),
        ([several, more], more),
    ):
        assert chosen["ours"] in per_model(rows, [], {"gcn/narrow": 8, "gcn/wide": 9})[0]["gcn"]


def test_what_differs_from_the_paper_becomes_numbered_notes():
    from benchmarks.results_tables import per_model, with_notes

    row = {
        "data": "cora",
        "model": "gcn",
        "metric": "acc",
        "ours": "1.0",
        "runs": "3",
        "paper": "2.0",
        "": "met",
    }
    narrow = row | {"model": "gcn (narrow)", "ours": "0.5", "runs": "1", "": "below", "differs": "width"}
    other = narrow | {"model": "mlp (narrow)"}
    rows = [narrow, row | {"differs": ""}, other]
    notes: list[str] = []
    shown = with_notes(rows, notes)
    assert [(line["ours"], "differs" in line) for line in shown] == [
        ("0.5 ¹", False),
        ("1.0", False),
        ("0.5 ¹", False),
    ]
    assert notes == ["width"]
    notes.clear()
    (line,) = per_model(rows, notes, {})  # the default recipe before another one
    assert line == {"data": "cora", "metric": "acc", "gcn": "**1.0** (2.0)", "mlp": "0.5 (2.0) ¹"}
    assert notes == ["`narrow`; width; one run"]
    notes.clear()
    per_model([narrow | {"runs": "2"}], notes, {})
    assert notes == ["`narrow`; width; 2 runs"]
    notes.clear()
    theirs = row | {"model": "gcn (cora-published)", "ours": "0.7", "": "below", "differs": ""}
    elsewhere = theirs | {"model": "gcn (cora-random-published)", "paper": "3.0"}
    per_model([theirs, elsewhere, row | {"differs": "rate"}], notes, {})
    assert notes == ["rate; `cora-published`: 0.7"], "also what the authors' settings have, on the same split"


def test_scores_of_knowledge_graphs_are_those_of_the_kept_rows():
    """docs/results-kg.md shows MRR, hits@1 and hits@10 of every kept row."""
    page = (ROOT / "docs" / "results-kg.md").read_text(encoding="utf-8")
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line[:1] == "|"
    ]
    kept = sorted((ROOT / "benchmarks" / "results" / "rows").glob("knowformer-*/row.json"))
    rows = [row for row in map(json.loads, map(Path.read_text, kept)) if not row["data"].endswith("-link")]
    assert len(rows) >= 6
    for row in rows:
        metrics = [row["metrics"][f"test/{name}"] for name in ("mrr", "hits@1", "hits@10")]
        several = len(row["seeds"]) > 1
        cells = [f"{of['mean']:.4f} ± {of['std']:.4f}" if several else f"{of['mean']:.4f}" for of in metrics]
        assert cells in [line[1:] for line in lines], f"{row['recipe']}: {cells}"


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_lines_of_prose_fit_a_screen(page):
    """Code, tables and formulas may be longer."""
    text = re.sub(
        r"^( *)```.*?^\1```$|^\$\$.*?\$\$$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    prose = (line for line in text.splitlines() if not line.startswith(("|", "<!--")))
    assert [line for line in prose if len(line) > 119] == []


def test_readme_badges_are_true_and_results_begin_within_ninety_lines():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert re.findall("`([^`]+)`", text.splitlines()[2]) == [
        f"version {project['version']}",
        f"Python {project['requires-python']}",
        project["license"],
        "typed",
    ]
    assert "Typing :: Typed" in project["classifiers"] and (ROOT / "graphzoo" / "py.typed").is_file()
    assert len(text.partition("## Results")[0].splitlines()) <= 90


def anchors(page):
    """Anchors that GitHub gives to the headings of a page."""
    headings = re.findall(
        r"^#+ +(.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_have_targets(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    broken = []
    for link in links:
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_holds_tabs(page):
    """The site turns tabs into spaces: a table copied from it would have one column."""
    assert "\t" not in page.read_text(encoding="utf-8")


def test_every_page_is_reachable_from_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {
        "index.md"
    }
    api = (ROOT / "docs" / "api" / "index.md").read_text()
    missing = {name for name in pages if f"({name})" not in index}
    assert {name for name in missing if f"({name.removeprefix('api/')})" not in api} == set()
    assert "(docs/index.md)" in (ROOT / "README.md").read_text()


def test_every_preset_is_documented():
    """Each data set, recipe and overlay is named on the page where a user would look for it."""
    where = {
        "recipe/knowformer": "knowformer.md",
        "recipe/nodeformer": "node-classification.md",
        **{
            f"recipe/{name}": "node-classification.md"
            for name in ("galit", "gcn", "gat", "sgc", "mlp", "sgformer", "sgformer-pyg")
        },
        "recipe/pencil": "link-prediction.md",
        "model": "link-prediction.md",
        "trainer": "command.md",
        "logger": "command.md",
        "search": "command.md",
        "ablation/galit": "command.md",
        "ablation/knowformer": "command.md",
        "ablation/nodeformer": "command.md",
        "ablation/pencil": "command.md",
    }
    for folder, page in where.items():
        text = (ROOT / "docs" / page).read_text()
        names = {path.stem for path in (ROOT / "configs" / folder).glob("*.yaml")}
        assert names
        assert {name for name in names if f"`{name}`" not in text} == set(), f"{folder}: not in docs/{page}"
    pages = {
        "kg-completion": "data-kg.md",
        "node-classification": "data-nodes.md",
        "link-prediction": "data-links.md",
        "heuristic-estimation": "heuristics.md",
    }
    for preset in list_presets("data"):
        page = pages[preset.header["task"]]
        assert f"`{preset.name}`" in (ROOT / "docs" / page).read_text(), f"{preset.name}: not in docs/{page}"


def test_recipe_table_agrees_with_the_recipes():
    """docs/knowformer.md lists the published settings of configs/recipe/knowformer."""
    rows = re.findall(r"^\| (`[^|]+) \|([^\n]+)\|$", (ROOT / "docs" / "knowformer.md").read_text(), re.M)
    table = {
        name: [cell.strip() for cell in cells.split("|")]
        for names, cells in rows
        for name in re.findall(r"`([\w-]+)`", names)
    }
    published = [
        path
        for path in sorted((ROOT / "configs" / "recipe" / "knowformer").glob("*.yaml"))
        if "# settings: the authors' README" in path.read_text()
    ]
    assert len(published) > 10
    for path in published:
        recipe = yaml.safe_load(path.read_text())
        task = recipe["model"]["init_args"]
        encoder = task.get("encoder", {}).get("init_args", {})
        negatives = str(task["num_negatives"]) if task["loss"] == "bce" else "–"
        shown = table[path.stem]
        assert shown[0] == str(recipe["data"]["init_args"]["batch_size"]), path.stem
        assert shown[1] == str(encoder.get("hidden_channels", 32)), path.stem
        assert shown[2] == task["loss"], path.stem
        assert shown[3] == negatives, path.stem
        assert shown[4] == (f"{task['adversarial_temperature']:g}" if task["loss"] == "bce" else "–"), (
            path.stem
        )
        assert float(shown[5]) == task["weight_decay"], path.stem
        assert shown[6] == task["remove_facts"], path.stem
        assert shown[7] == str(recipe["trainer"]["max_epochs"]), path.stem
