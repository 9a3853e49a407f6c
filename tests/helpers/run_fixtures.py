"""Trained runs of a few steps: UMLS from the package, an inductive pair of toy graphs, links."""

import logging
import shutil
import warnings
from types import SimpleNamespace

import pytest


def train(run, datamodule, *, loss="ce"):
    """Train three steps and write a run directory in the form of `graphzoo fit`."""
    from lightning.pytorch import Trainer, seed_everything

    from graphzoo.encoders import KnowFormer
    from graphzoo.tasks import KGCompletion

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    settings = {
        "hidden_channels": 8,
        "num_layers": 1,
        "num_heads": 2,
        "num_query_layers": 1,
        "num_value_layers": 2,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed_everything(1, verbose=False)
        task = KGCompletion(lambda spec: KnowFormer(spec, **settings), loss=loss, num_negatives=4)
        trainer = Trainer(
            max_steps=3,
            limit_val_batches=0,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(task, datamodule=datamodule)
        trainer.save_checkpoint(run / "checkpoints" / "best.ckpt")
        datamodule.save_artifacts(run / "graph")
        metrics = trainer.test(task, datamodule=datamodule, verbose=False)[0]
    return SimpleNamespace(path=run, task=task, datamodule=datamodule, metrics=metrics)


@pytest.fixture(scope="session")
def umls_run(tmp_path_factory):
    from graphzoo.datamodules import KGDataModule

    root = tmp_path_factory.mktemp("no-data")
    run = tmp_path_factory.mktemp("runs") / "umls"
    return train(run, KGDataModule(name="umls", root=str(root), batch_size=32))


@pytest.fixture(scope="session")
def near_run(tmp_path_factory):
    """A run in neighbourhoods of 40 of the 135 entities."""
    from graphzoo.datamodules import KGDataModule

    data = KGDataModule(name="umls", batch_size=32, neighbourhood=40, test_both=False)
    return train(tmp_path_factory.mktemp("runs") / "near", data)


@pytest.fixture(scope="session")
def umls(umls_run):
    import graphzoo

    return graphzoo.load(umls_run.path)


@pytest.fixture(scope="session")
def inductive_run(tmp_path_factory):
    """A run on people, with planets as the second graph, which lacks one of the relations."""
    from graphzoo.datamodules import KGDataModule

    folder = tmp_path_factory.mktemp("pair")
    people = [
        f"person{i}\t{r}\tperson{(3 * i + j) % 12}"
        for i in range(12)
        for j, r in enumerate(("knows", "likes", "owes"))
    ]
    planets = [
        f"planet{i}\t{r}\tplanet{(2 * i + j) % 7}"
        for i in range(7)
        for j, r in enumerate(("likes", "knows"), 1)
    ]
    for name, lines in (("people", people), ("planets", planets)):
        (folder / name).mkdir()
        (folder / name / "train.txt").write_text("\n".join(lines[3:]) + "\n")
        (folder / name / "valid.txt").write_text("\n".join(lines[:1]) + "\n")
        (folder / name / "test.txt").write_text("\n".join(lines[1:3]) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths = [str(folder / "people"), str(folder / "planets")]
        run = train(
            tmp_path_factory.mktemp("runs") / "pair",
            KGDataModule(name="kg", path=paths, batch_size=8),
            loss="bce",
        )
    run.planets, run.people = folder / "planets", folder / "people"
    return run


@pytest.fixture
def copied_run(umls_run, tmp_path):
    """A copy of a run that a test may damage."""
    return shutil.copytree(umls_run.path, tmp_path / "copy")


@pytest.fixture(scope="session")
def link_runs(tmp_path_factory):
    """One run per kind of encoder; pairs are scored in both directions and two orders of nodes."""
    from helpers.link_runs import encoders, link_data, train_links

    folder = tmp_path_factory.mktemp("links")
    settings = {"both_directions": True, "num_relabelings": 2, "normalize_features": True}
    return {name: train_links(folder / name, name, link_data(**settings)) for name in encoders()}


@pytest.fixture(scope="session")
def named_links(tmp_path_factory):
    """A run on links between named nodes."""
    from helpers.link_graphs import NODES, make_link_graph
    from helpers.link_runs import link_data, train_links

    names = tuple(f"person{number}" for number in range(NODES))
    return train_links(
        tmp_path_factory.mktemp("named"), "galit", link_data(make_link_graph(node_names=names))
    )
