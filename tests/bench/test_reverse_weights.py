"""`benchmarks.reverse_weights` gives the MRR of `graphzoo validate` and `graphzoo test`."""

import csv
import json
import sys
from pathlib import Path

import pytest

from benchmarks import reverse_weights


@pytest.fixture
def table(monkeypatch, tmp_path, workplace):
    monkeypatch.setattr(reverse_weights, "RESULTS", tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["reverse_weights", *words])
        reverse_weights.main()
        with (tmp_path / "reverse_weights.csv").open() as file:
            return list(csv.DictReader(file))

    return run


def mrr(run, name):
    return f"{json.loads((Path(run) / 'results.json').read_text())['metrics'][name]:.6f}"


def test_mrr_is_that_of_the_commands(fit, cli, table, capsys):
    fit("--run_dir=row/seed-0")
    assert cli("validate", "--ckpt_path=row/seed-0", "--model.reverse_weight=0.5", "--run_dir=v").status == 0
    capsys.readouterr()
    assert table("row", "--test_one_end") == table("row", "--test_one_end"), (
        "lines of a row replace older ones"
    )
    lines = {(line["split"], line["reverse_weight"]): line["mrr"] for line in table("row", "--test_one_end")}
    assert len(lines) == len(reverse_weights.WEIGHTS) + 1
    assert lines["test", "0"] == mrr("row/seed-0", "test/mrr")
    assert lines["val", "0.5"] == mrr("v", "val/mrr") != lines["val", "0"]
    assert f"test 0: {float(lines['test', '0']):.4f} over 1 runs" in capsys.readouterr().out


def test_other_folders_are_refused(table, workplace):
    with pytest.raises(SystemExit):
        table(str(workplace))
