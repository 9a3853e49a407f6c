"""Real runs of a few steps, written by `graphzoo fit`."""

import os
import shutil
from types import SimpleNamespace

import pytest

QUIET = [
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
    "--logger=csv",
    "--trainer.max_epochs=2",
]
KG = [
    "--model.encoder.hidden_channels=8", "--model.encoder.num_heads=2", "--model.encoder.num_layers=1",
    "--model.encoder.num_query_layers=1", "--model.encoder.num_value_layers=1", "--data.batch_size=32",
    "--trainer.limit_train_batches=4", "--trainer.limit_val_batches=2",
]  # fmt: skip
PENCIL = [
    "--model.encoder.hidden_channels=16", "--model.encoder.num_heads=2", "--model.encoder.ffn_channels=16",
    "--data.depth=1",
]  # fmt: skip


@pytest.fixture(scope="session")
def real_runs(tmp_path_factory):
    """Name -> run directory: one of a knowledge graph, two of nodes, two of links with different depths."""
    from helpers.link_files import write_links
    from helpers.node_graphs import write_npz

    from graphzoo.cli import main

    place = tmp_path_factory.mktemp("real-runs")
    links, nodes = write_links(place / "links"), write_npz(place / "nodes.npz")
    own_nodes = ["--data", "nodes", "--data.path", nodes, "--model.encoder.hidden_channels=8"]
    own_links = ["--data", "links", "--data.path", str(links), *PENCIL]
    commands = {
        "kg": ["--model", "knowformer", "--data", "umls", "--recipe", "none", *KG],
        "nodeformer": ["--model", "nodeformer", *own_nodes],
        "galit": ["--model", "galit", *own_nodes],
        "shallow": ["--model", "pencil", *own_links, "--model.encoder.num_layers=1"],
        "deep": ["--model", "pencil", *own_links, "--model.encoder.num_layers=2"],
    }
    before = os.getcwd()
    os.chdir(place)
    try:
        for name, words in commands.items():
            assert main(["fit", *words, *QUIET, "--run_dir", f"runs/{name}"]) == 0
    finally:
        os.chdir(before)
    return SimpleNamespace(place=place, **{name: place / "runs" / name for name in commands})


@pytest.fixture(scope="session")
def chromium():
    """Path of a Chromium browser; without one the test is skipped."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium or Chrome to open the report in")
    return found
