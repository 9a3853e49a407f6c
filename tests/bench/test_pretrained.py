"""`python -m benchmarks.pretrained` exports the best run by validation in two forms and keeps its figures."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch

import graphzoo
from benchmarks import pretrained
from benchmarks.common import RESULTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def rows(umls_run, tmp_path, monkeypatch):
    """A row of two runs; the second is better on validation and worse on test."""
    for seed, (val, test) in enumerate([(0.5, 0.9), (0.6, 0.8)]):
        run = shutil.copytree(umls_run.path, tmp_path / "rows" / "knowformer-umls" / f"seed-{seed}")
        found = {"validation": {"best val/mrr": val}, "metrics": {"test/mrr": test}, "num_parameters": 7}
        (run / "results.json").write_text(json.dumps(found | {"seed": seed, "best_epoch": 0}))
        checkpoint = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
        checkpoint["hyper_parameters"]["reverse_weight"] = seed / 2  # a program supports a weight of 0 only
        torch.save(checkpoint, run / "checkpoints" / "best.ckpt")
    asked = []
    monkeypatch.setattr(pretrained, "graphzoo", lambda argv: asked.append(argv) or 0)
    return tmp_path / "rows", asked


def test_the_run_that_is_best_on_validation_is_exported(rows, tmp_path, umls):
    folder, asked = rows
    table, out = tmp_path / "made.csv", tmp_path / "out"
    words = ["knowformer-umls", "--rows", str(folder), "--out", str(out), "--table", str(table)]
    pretrained.main([*words, "--trainer.accelerator=cpu"])
    assert asked == [
        ["reproduce", "knowformer", "umls", "--seeds", "0,1,2", "--out", str(folder / "knowformer-umls"),
         "--trainer.accelerator=cpu"]
    ]  # fmt: skip
    (made,) = csv.DictReader(table.open())
    assert (made["run"], made["test"], made["validation"]) == ("seed-1", "0.8000", "0.6000")
    model = graphzoo.load(out / "knowformer-umls")
    assert model.task.reverse_weight == 0.5
    model.task.reverse_weight = 0.0
    answers = model.predict(head="steroid", relation="interacts_with", k=3)
    assert answers.equals(umls.predict(head="steroid", relation="interacts_with", k=3))
    assert (out / "knowformer-umls-program" / "model.pt2").is_file()
    table.write_text(table.read_text().replace("knowformer-umls,", "galit-cora,").replace("0.8000", "0.7000"))
    pretrained.main(words)  # replaces the export and keeps the other lines
    both = {row["model"]: row["test"] for row in csv.DictReader(table.open())}
    assert both == {"knowformer-umls": "0.8000", "galit-cora": "0.7000"}
    assert sorted(path.name for path in out.iterdir()) == ["knowformer-umls", "knowformer-umls-program"]


def test_a_folder_that_is_not_an_exported_model_is_kept(rows):
    folder, _ = rows
    with pytest.raises(graphzoo.errors.UsageError, match="holds no exported model and is left as it is"):
        pretrained.main(
            ["knowformer-umls", "--rows", str(folder), "--out", str(folder), "--table", "none.csv"]
        )
    assert len(list(folder.glob("knowformer-umls/seed-*/results.json"))) == 2


def test_unknown_models_and_missing_runs_are_refused(rows, tmp_path, capsys):
    with pytest.raises(SystemExit):
        pretrained.main(["galit-coral"])
    assert "no such model: galit-coral; there are knowformer-umls" in capsys.readouterr().err
    with pytest.raises(graphzoo.errors.UsageError, match="no finished run inside"):
        pretrained.main(["galit-cora", "--rows", str(tmp_path / "none"), "--out", str(tmp_path / "o")])


def test_the_page_agrees_with_the_table():
    page = (ROOT / "docs" / "sharing.md").read_text(encoding="utf-8")
    kept = list(csv.DictReader((RESULTS / "pretrained.csv").open(encoding="utf-8")))
    assert {row["model"] for row in kept} == set(pretrained.MODELS)
    for row in kept:
        line = next(line for line in page.splitlines() if line.startswith(f"| `{row['model']}` |"))
        assert f" {row['test']} " in line and f"{row['megabytes']} MB" in line and row["sha256"][:12] in line
