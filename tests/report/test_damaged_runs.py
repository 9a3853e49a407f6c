"""With a damaged run, row or curve, `results` and `plot` still show the others."""

import json
import os

import pytest
from helpers.report_runs import write_row, write_run

from graphzoo.cli import main

GOOD = {"model": "galit", "data": "cora", "command": "fit", "num_parameters": 1, "metrics": {"test/acc": 0.5}}
DAMAGED = {
    "cut short": b'{"metr',
    "empty": b"",
    "no text": bytes(range(256)),
    "lists in lists": b"[" * 100_000,
    "nested values": json.dumps(GOOD).encode()[:-1] + b', "split": ' + b'{"a":' * 200 + b"1" + b"}" * 201,
    "a number of 400 digits": json.dumps({**GOOD, "metrics": {"test/acc": 10**400}}).encode(),
    "a number of 5000 digits": b'{"metrics": {"test/acc": ' + b"9" * 5000 + b"}}",
    "an infinite figure": json.dumps({**GOOD, "metrics": {"test/acc": 1e308}}).encode(),
    "a long metric": json.dumps({**GOOD, "metrics": {"x" * 100_000: 0.5}}).encode(),
    "a long name": json.dumps({**GOOD, "model": "x" * 100_000}).encode(),
    "a name that is none": json.dumps({**GOOD, "data": {"a": 1}}).encode(),
    "a seed of many digits": json.dumps({**GOOD, "seed": 10**300}).encode(),
}


def write_bad(run, content):
    write_run(run, seed=7)
    (run / "results.json").write_bytes(content)


@pytest.mark.fault(
    "one of many runs has a results.json that is truncated, deeply nested, huge or no JSON",
    "the other runs are shown; a message names the file; status 1",
)
@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("command", ["results", "plot"])
def test_other_runs_are_shown_beside_a_damaged_one(tmp_path, monkeypatch, capsys, command, damage):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", seed=0, test=0.8)
    write_bad(tmp_path / "runs" / "b", DAMAGED[damage])
    words = [command, "runs", *(["--no-model"] if command == "plot" else [])]
    assert main(words) == 1
    printed = capsys.readouterr()
    left_out = [line for line in printed.err.splitlines() if "left out" in line]
    assert len(left_out) == 1 and "results.json is damaged" in left_out[0] and len(left_out[0]) < 500
    shown = printed.out if command == "results" else (tmp_path / "report.html").read_text()
    assert "80.00" in shown
    assert main([command, "runs/b", *(["--no-model", "--overwrite"] if command == "plot" else [])]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.fault("a results.json of 20 GB, or a pipe in its place", "refused before it is read")
def test_huge_files_and_pipes_are_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", seed=0, test=0.8)
    for name in ("results.json", "metrics.csv", "config.yaml"):
        write_run(run := tmp_path / "runs" / f"of-{name}", seed=1)
        os.truncate(run / name, 20 << 30)
    os.mkfifo(tmp_path / "runs" / "row.json")
    assert main(["results", "runs"]) == 1
    printed = capsys.readouterr()
    assert "80.00" in printed.out
    assert printed.err.count("left out") == 3, "the pipe, but not metrics.csv, which is not read"
    assert main(["plot", "runs", "--no-model"]) == 1
    assert capsys.readouterr().err.count("left out") == 3


def test_other_runs_are_shown_beside_a_damaged_row_and_curve(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", seed=0, test=0.8)
    row = write_row(tmp_path / "runs" / "row")
    (row / "row.json").write_text("[]")
    write_run(tmp_path / "runs" / "c", seed=2)
    with (tmp_path / "runs" / "c" / "metrics.csv").open("a") as file:
        file.write("1e400,x,y\n")
    assert main(["results", "runs"]) == 1
    assert "row.json is not a row" in capsys.readouterr().err
    assert main(["plot", "runs", "--no-model"]) == 1
    err = capsys.readouterr().err
    assert "row.json is not a row" in err and "metrics.csv, line" in err


@pytest.mark.fault(
    "seeds, splits or notes in a row.json have the wrong type", "the row is left out and named"
)
@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seeds", [0, "x"]),
        ("seeds", "01"),
        ("splits", [None]),
        ("seeds", [True]),
        ("differs", 5),
        ("command", []),
    ],
)
def test_a_row_with_values_of_wrong_types_is_left_out(tmp_path, capsys, key, value, form):
    write_run(tmp_path / "runs" / "a", seed=0, test=0.8)
    path = write_row(tmp_path / "runs" / "row") / "row.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    assert main(["results", str(tmp_path / "runs"), f"--format={form}", "--commands"]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("left out") == 1 and key in printed.err and printed.out


def test_a_row_without_deviations_is_refused(tmp_path, capsys):
    path = write_row(tmp_path / "row") / "row.json"
    row = json.loads(path.read_text())
    for found in row["metrics"].values():
        del found["std"]
    path.write_text(json.dumps(row))
    assert main(["results", str(path)]) == 2
    assert "is not a row of results ('std')" in capsys.readouterr().err
