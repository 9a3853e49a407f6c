"""Fixtures of tiny graphs in files, and of the command in this process; the root conftest loads them."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers import warm_python
from helpers.own import QUIET_CPU, SMALL, SMALL_LINKS

REPOSITORY = Path(__file__).resolve().parents[2]


def pytest_sessionfinish():
    """End the process server that the tests share."""
    warm_python.stop()


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty current folder, without the caller's environment variables."""
    monkeypatch.chdir(tmp_path)
    for name in ("GRAPHZOO_RUN_DIR", "GRAPHZOO_CONFIGS", "LOCAL_RANK", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["graphzoo"])
    return tmp_path


@pytest.fixture(scope="session")
def tiny_kg(tmp_path_factory):
    """A folder with 60 / 12 / 12 triples over 20 entities and 3 relations."""
    folder = tmp_path_factory.mktemp("tiny")
    generator = random.Random(7)
    names = [f"entity{number}" for number in range(20)]
    chain = [(names[i], "next", names[(i + 1) % 20]) for i in range(20)]
    others = {
        (generator.choice(names), f"rel{generator.randrange(2)}", generator.choice(names)) for _ in range(200)
    }
    drawn = sorted(others)
    generator.shuffle(drawn)
    splits = {"train": chain + drawn[:40], "valid": drawn[40:52], "test": drawn[52:64]}
    for split, triples in splits.items():
        (folder / f"{split}.txt").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    return folder


@pytest.fixture
def cli(capsys, workplace):
    """`cli(*arguments)` runs the command in an empty folder and returns its status, out and err."""
    from graphzoo.cli import main

    def run(*arguments):
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(status=status, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def fit(cli, tiny_kg):
    """`fit(*more)` trains a small KnowFormer on the tiny graph; a test fails at another status."""

    def run(*arguments, epochs=2, status=0):
        command = ["fit", "--model", "knowformer", "--data", "kg", "--data.path", tiny_kg, *SMALL]
        result = cli(*command, f"--trainer.max_epochs={epochs}", *arguments)
        assert result.status == status, result.err
        return result

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory, tiny_kg):
    """A finished run of two epochs."""
    from graphzoo.cli import main

    run = tmp_path_factory.mktemp("finished") / "run"
    names = ["--model=knowformer", "--data=kg", f"--data.path={tiny_kg}"]
    assert main(["fit", *names, *SMALL, "--trainer.max_epochs=2", f"--run_dir={run}"]) == 0
    return run


@pytest.fixture
def trained(finished, workplace):
    """A copy of the finished run outside the current folder."""
    return Path(shutil.copytree(finished, workplace.parent / f"{workplace.name}-trained"))


@pytest.fixture(scope="session")
def tiny_nodes(tmp_path_factory):
    """An .npz file with 60 nodes of 3 classes, 12 features and a split."""
    from helpers.node_graphs import write_npz

    return write_npz(tmp_path_factory.mktemp("tiny-graph") / "tiny.npz")


@pytest.fixture
def fit_nodes(cli, tiny_nodes):
    """`fit_nodes(*more)` trains a small GALiT on the tiny graph; a test fails at another status."""

    def run(*arguments, model="galit", epochs=3, status=0):
        command = ["fit", "--model", model, "--data", "nodes", "--data.path", tiny_nodes]
        small = ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", "--logger=csv"]
        result = cli(*command, *small, f"--trainer.max_epochs={epochs}", *arguments)
        assert result.status == status, result.err
        return result

    return run


@pytest.fixture(scope="session")
def links(tmp_path_factory):
    """A folder of own links: the graph, split and features of `make_link_graph`."""
    from helpers.link_files import write_links

    return write_links(tmp_path_factory.mktemp("links"))


@pytest.fixture
def fit_links(cli, links):
    """`fit_links(*more, model=...)` trains on the own links; a test fails at another status."""

    def run(*arguments, model="pencil", epochs=2, status=0):
        names = ["fit", "--model", model, "--data", "links", "--data.path", links]
        result = cli(*names, *SMALL_LINKS[model], *QUIET_CPU, f"--trainer.max_epochs={epochs}", *arguments)
        assert result.status == status, result.err
        return result

    return run


@pytest.fixture
def results():
    def read(run):
        return json.loads((Path(run) / "results.json").read_text())

    return read


@pytest.fixture
def process():
    """`process(*arguments)` runs the command in another process; `options` are for the interpreter."""

    def run(*arguments, options=()):
        code = "import sys; from graphzoo.cli import main; sys.exit(main())"
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        python = sys.executable if options else warm_python.python()
        return subprocess.run(
            [python, *options, "-c", code, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
        )

    return run
