"""Runs with offline files of Weights & Biases, one or more of each task."""

import shutil
from types import SimpleNamespace

import pytest

from helpers import process_jobs
from helpers.wandb_records import read_run_file

QUIET = [
    "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1", "--trainer.enable_progress_bar=false",
    "--model.encoder.hidden_channels=8", "--logger=wandb",
]  # fmt: skip
PUBLISHED = {
    "knowformer/kg": "mrr=0.9 hits@1=0.9 hits@10=0.9",
    "galit/nodes": "acc=0.9",
    "nodeformer/nodes": "auroc=0.9",
    "pencil/links": "mrr=0.9 hits@20=0.9 hits@50=0.9 hits@100=0.9 auroc=0.9 ap=0.9",
}


def fit(*words):
    from graphzoo.cli import main

    assert main(["fit", *map(str, words), *QUIET]) == 0


@pytest.fixture(scope="session")
def wandb_runs(tmp_path_factory):
    """Run directories and the content of their Weights & Biases files; `kg` is `once`, resumed.

    `nodes` has classes, and `labels` has yes-no labels with ROC-AUC.
    """
    pytest.importorskip("wandb")
    from helpers.link_files import write_links

    folder = tmp_path_factory.mktemp("wandb")
    process_jobs.write_data(folder)
    write_links(folder / "own")
    for recipe, figures in PUBLISHED.items():
        path = folder / "configs" / "recipe" / f"{recipe}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# title: toy\n# paper: {figures}\ntrainer:\n  max_epochs: 2\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        patch.setenv("GRAPHZOO_CONFIGS", str(folder / "configs"))
        patch.delenv("GRAPHZOO_RUN_DIR", raising=False)
        fit("--model=knowformer", "--data=kg", "--data.path=families", "--data.batch_size=20", "--run_dir=kg")
        fit("--model=galit", "--data=nodes", "--data.path=classes.npz", "--run_dir=nodes")
        fit(
            "--model=nodeformer", "--data=nodes", "--data.path=labels.npz", "--model.metric=roc_auc",
            "--run_dir=labels",
        )  # fmt: skip
        fit(
            "--model=pencil", "--data=links", "--data.path=own", "--run_dir=links", "--data.depth=1",
            "--model.encoder.num_layers=1", "--model.encoder.num_heads=2", "--model.encoder.ffn_channels=8",
        )  # fmt: skip
        shutil.copytree("kg", "once")
        fit("--ckpt_path=kg", "--trainer.max_epochs=3")
    found = {}
    for name in ("once", "kg", "nodes", "labels", "links"):
        files = (folder / name).glob("wandb/offline-run-*/run-*.wandb")
        found[name] = [read_run_file(path) for path in sorted(files, key=lambda path: path.stat().st_mtime)]
    return SimpleNamespace(folder=folder, **found)
