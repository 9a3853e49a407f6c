"""Control characters in names are escaped in the terminal, in tables and in reports."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from graphzoo.catalog.tasks import TASKS
from graphzoo.cli import main
from graphzoo.datasets.files.text import warn
from graphzoo.inference import writers
from graphzoo.report.content import Code, Note, Report, Section, TableBlock
from graphzoo.report.page import to_html
from graphzoo.runs.tables import print_rows, print_table
from graphzoo.system.shown import console, say, tell, visible

PACKAGE = Path(__file__).resolve().parents[2] / "graphzoo"
# Clears the screen, renames the window, reverses the text, is invisible, and is markup of rich.
NASTY = "a\x1b[2Jb\x1b]0;owned\x07c\x9bm\u202ed\u2066e\u200bf\ufeffg\r\x00[bold]h[/x]"
ESCAPED = r"a\x1b[2Jb\x1b]0;owned\x07c\x9bm\u202ed\u2066e\u200bf\ufeffg\r\x00[bold]h[/x]"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff]")
METRICS = {"test/acc": {"mean": 0.5, "std": 0.1, "paper": None, "values": [0.5]}}
ROW = {"model": NASTY, "data": NASTY, "recipe": None, "name": NASTY, "differs": NASTY, "metrics": METRICS}


def test_control_characters_are_escaped():
    assert visible(NASTY) == ESCAPED
    plain = "café 数据 می\u200cخواهم 👩\u200d🔬 $x$ <b>"
    assert visible(plain) == plain
    assert visible("\ud800") == r"\ud800"


@pytest.mark.fault(
    ("a name has control characters: to clear the terminal, rename the window, or reverse the text"),
    "they are shown as escapes in answers, tables and messages",
)
@pytest.mark.parametrize("form", ["table", "markdown", "latex", "csv"])
def test_tables_of_results_are_escaped(tmp_path, capsys, form):
    (tmp_path / "row.json").write_text(json.dumps(ROW))
    assert main(["results", str(tmp_path), f"--format={form}", "--commands"]) == 0
    shown = capsys.readouterr().out
    assert not RAW.search(shown), RAW.findall(shown)
    if form == "latex":
        shown = shown.replace(r"\textbackslash{}", "\\").replace("{[}", "[")
    assert r"\x1b[2Jb" in shown.replace("\n", "")


def test_tables_of_runs_are_escaped(capsys):
    print_rows(NASTY, [ROW, ROW])
    row = {"relation": "all", "direction": "head", "acc": 0.5}
    print_table(NASTY, {"test/acc": 0.5, "test/loss": 1.0}, [row], "test", TASKS["node-classification"])
    print_table("own", {f"test/{NASTY}": 0.5}, [], "test", None)
    shown = capsys.readouterr().out
    assert not RAW.search(shown) and r"\x1b[2Jb" in shown


@pytest.mark.fault(
    "the name of a folder has control characters",
    "they are shown as escapes where the command prints the folder",
)
def test_names_of_folders_are_escaped(capsys, monkeypatch, tmp_path):
    say(f"{NASTY}\n")
    tell(f"{NASTY}\n")
    said = capsys.readouterr()
    assert said.out == said.err == f"{ESCAPED}\n"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a\x1b[2J"))
    main(["doctor"])
    assert r"a\x1b[2J" in (shown := capsys.readouterr().out) and not RAW.search(shown)


@pytest.mark.fault("a terminal of one column", "tables are 40 columns wide; no command fails")
@pytest.mark.parametrize("width", ["1", "2", "7"])
def test_a_narrow_terminal(capsys, monkeypatch, width):
    from rich import get_console

    monkeypatch.setattr(get_console(), "_width", int(width))
    row = {"relation": "all", "direction": "head", "acc": 0.5}
    print_table("own", {"test/acc": 0.5, "test/loss": 1.0}, [row], "test", TASKS["node-classification"])
    print_rows("own", [ROW, ROW])
    console().print("50.00")
    assert "50.00" in capsys.readouterr().out


def test_only_these_calls_write_to_the_terminal_unescaped():
    """Text that contains no value of the user needs no escapes."""
    found = {
        path.relative_to(PACKAGE).as_posix(): re.findall(r"std(?:err|out)\.write\((.*)", path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    assert {name: calls for name, calls in found.items() if calls} == {
        "system/shown.py": [r'"\n".join(map(visible, text.split("\n"))))'] * 2,
        "cli/terminal.py": [r'text.rstrip() + "\n")'],  # the help
        "cli/completion.py": [  # scripts and words for a shell
            "SCRIPTS[completion_parser().read(argv).shell])",
            r'"".join(word + "\n" for word in words))',
        ],
        "cli/lists.py": [r'json.dumps(tables, indent=2, ensure_ascii=False) + "\n")'],
        "system/streams.py": [r'"\n")'],  # a line end
        "cli/results.py": [
            "_to_csv(rows, metric, commands))",
            'to_markdown(lines) if form == "markdown" else _to_latex(shown, lines))',
        ],
    }


def test_answers_are_escaped_in_the_terminal_and_kept_in_files(capsys, tmp_path):
    table = pd.DataFrame({"head": [NASTY, None], NASTY: ["x\ty", "z"], "score": [-1.5, 2.0]})
    assert writers.write_tables([table, table[:0], table], "-") == 4
    shown = capsys.readouterr().out
    assert not RAW.search(shown.replace("\t", ""))
    rows = list(csv.reader(io.StringIO(shown), delimiter="\t"))
    assert rows[1] == [ESCAPED, r"x\ty", "-1.5"] and rows[2] == ["", "z", "2.0"] and len(rows) == 5
    # a file keeps what it was given
    writers.write_tables([table], str(tmp_path / "a.jsonl"))
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["head"] == NASTY


def test_small_probabilities_are_not_rounded_to_zero(tmp_path):
    shares = np.array([4.6e-20, 0.1, np.inf], dtype=np.float32)
    table = pd.DataFrame({"name": ["a", None, "c"], "share": shares, "known": [True, False, True]})
    for kind in ("csv", "jsonl"):
        writers.write_tables([table], str(tmp_path / f"a.{kind}"))
    assert (tmp_path / "a.csv").read_text().splitlines()[1:3] == ["a,4.6e-20,True", ",0.1,False"]
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [list(row.values()) for row in rows] == [
        ["a", 4.6e-20, True],
        [None, 0.1, False],
        ["c", None, True],
    ]


def test_quotes_are_part_of_a_name_in_tsv(tmp_path, capsys):
    """Files of triples are read that way, so `answers.tsv` can be read as one."""
    names = ['5" pipe', '"quoted"', "a,b", "it's", ""]
    table = pd.DataFrame({"head": names, 'the "tail"': names, "score": [0.5] * len(names)})
    expected = ['head\tthe "tail"\tscore', *(f"{name}\t{name}\t0.5" for name in names)]
    writers.write_tables([table], str(tmp_path / "a.tsv"))
    assert (tmp_path / "a.tsv").read_text().splitlines() == expected
    writers.write_tables([table], "-")
    assert capsys.readouterr().out.splitlines() == expected
    tabs = (table.assign(head="tab\t"), {}), (table.rename(columns={"score": "tab\t"}), {})
    for quoted, options in ((table, {"spreadsheet": True}), *tabs):
        writers.write_tables([quoted], str(tmp_path / "b.tsv"), **options)
        rows = list(csv.reader((tmp_path / "b.tsv").open(newline=""), delimiter="\t"))
        assert [row[1] for row in rows[1:]] == names


@pytest.mark.fault("a name that a spreadsheet would run as a formula", "--spreadsheet puts a ' before it")
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_formulas_are_quoted_for_spreadsheets(tmp_path, kind):
    names = ["=1+2", "+1", "-1", "@SUM(A1)", "\t=1", "plain", "'quoted", "1-2"]
    table = pd.DataFrame({"=head": names, "score": [-1.5] * len(names)})
    out = tmp_path / f"a.{kind}"
    for spreadsheet in (False, True):
        writers.write_tables([table], str(out), spreadsheet=spreadsheet)
        rows = list(csv.reader(out.open(newline=""), delimiter="\t" if kind == "tsv" else ","))
        mark = "'" if spreadsheet else ""
        assert rows[0] == [f"{mark}=head", "score"]
        assert [row[0] for row in rows[1:]] == [*(mark + name for name in names[:5]), *names[5:]]
        assert {row[1] for row in rows[1:]} == {"-1.5"}


def test_warnings_and_reports_are_escaped():
    with pytest.warns(UserWarning) as said:
        warn(f"{NASTY} was dropped")
    assert not RAW.search(str(said[0].message))
    blocks = [TableBlock(NASTY, [NASTY], [[NASTY]]), Note(NASTY), Code(NASTY, NASTY)]
    page = to_html(Report(NASTY, NASTY, [Section(NASTY, blocks)]))
    assert not RAW.search(page.replace("\t", "").replace("\r", "")) and r"\u202e" in page
