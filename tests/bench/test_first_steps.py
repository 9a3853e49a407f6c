"""`benchmarks.first_steps` reads a run's metrics and writes table, figure and summary."""

import csv
import json

import pytest

from benchmarks import first_steps

HEAD = "step,lr-Adam,train/loss,train/peak_memory_gib,train/grad_norm,train/step_seconds,epoch,val/mrr\n"


def line(step, *, loss="", seconds=2.0, memory=1.0, mrr=""):
    if mrr:
        return f"{step},,,,,,0,{mrr}\n"
    return f"{step},,{loss},{memory},0.5,{seconds},0,\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run of 24 steps with losses 24, 23, ..., 1. Step 12 was repeated; the line of step 25 is cut off."""
    monkeypatch.setattr(first_steps, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(first_steps, "FIGURES", tmp_path / "figures")
    lines = [line(k, loss=24 - k, seconds=1.0 + (k > 0)) for k in range(12)]
    lines += [line(11, mrr=0.25), line(11, loss=13, memory=2.5), line(11, mrr=0.5)]
    lines += [line(k, loss=24 - k) for k in range(12, 24)]
    run, before = tmp_path / "run", tmp_path / "before"
    run.mkdir()
    before.mkdir()
    (run / "metrics.csv").write_text(HEAD + "0,0.1,,,,,,\n" + "".join(lines) + "24,,0.1", encoding="utf-8")
    (before / "metrics.csv").write_text(HEAD + line(0, loss=9) + line(0, mrr=0.125), encoding="utf-8")
    return tmp_path


def test_steps_count_from_one_and_the_last_line_of_a_step_counts(folder):
    steps = first_steps.read_steps(folder / "run")
    assert list(steps) == list(range(1, 25))
    assert [steps[step]["train/loss"] for step in steps] == list(range(24, 0, -1))
    assert first_steps.validated(steps) == {12: 0.5}


def test_table_figure_and_summary(folder, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    runs = [f"{folder}/run", "--before", f"{folder}/before"]
    monkeypatch.setattr("sys.argv", ["first_steps", *runs, "--name=a", "--epoch_steps=1800"])
    first_steps.main()
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 24
    assert (found["loss, first ten"], found["loss, last ten"]) == (19.5, 5.5)
    assert (found["val/mrr after 0"], found["val/mrr after 12"]) == (0.125, 0.5)
    assert (found["seconds a step"], found["steps/s"], found["hours an epoch"]) == (2.0, 0.5, 1.0)
    assert found["peak memory GiB"] == 2.5
    with (folder / "results/first_steps/a.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == [str(step) for step in range(25)]
    assert (rows[0]["train/loss"], rows[0]["val/mrr"], rows[12]["train/loss"]) == ("", "0.125", "13")
    assert (folder / "figures/first-steps-a.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "no metrics.csv with values"),
        (line(9, loss=1) + line(19, loss=1), "log_every_n_steps 1"),
        (line(0, mrr=0.5), "step 1 has no train/loss"),
        (line(0, loss=1), "never validated"),
    ],
    ids=["empty", "every tenth", "no loss", "never validated"],
)
def test_missing_metrics_are_reported_before_a_file_is_written(folder, monkeypatch, lines, message):
    (folder / "run/metrics.csv").write_text(HEAD + lines, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["first_steps", f"{folder}/run", "--name=a", "--epoch_steps=1"])
    with pytest.raises(SystemExit, match=message):
        first_steps.main()
    assert not (folder / "results").exists() and not (folder / "figures").exists()
