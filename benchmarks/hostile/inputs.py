"""Attempts on the files that a user gives: data, configurations, queries, rows and search spaces."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import yaml

from benchmarks.hostile.attempt import FIT, REPRODUCE, SEARCH, Attempt, Kind
from benchmarks.hostile.damage import NAMES, PATHS, put_odd, spoil_structured, spoil_text, spoil_tree
from benchmarks.hostile.runs import lay_run


def read_data(kind: str) -> Callable[[], object]:
    """Read the data with a data module."""

    def read() -> None:
        import graphzoo.datamodules as modules

        name = {"kg": "KGDataModule", "nodes": "NodeDataModule", "links": "LinkDataModule"}[kind]
        module = getattr(modules, name)(path="data")
        module.prepare_data()
        module.setup("fit")

    return read


def data(kind: str) -> Kind:
    """Damaged data files of a kind, which a data module, a training or a prediction reads."""

    def attempt(draw: random.Random, base: Path) -> Attempt:
        shutil.copytree(base / kind / "data", "data")
        files = sorted(Path("data").iterdir())
        for _ in range(draw.choice([1, 1, 2])):
            path = draw.choice(files)
            if draw.random() < 0.15 or not path.is_file() or path.is_symlink():
                put_odd(draw, path)
            elif draw.random() < 0.1:
                files.append(
                    path.rename(
                        path.with_suffix(draw.choice([".tsv", ".csv", ".txt", ".CSV", ".csv.gz", ""]))
                    )
                )
            else:
                path.write_bytes(spoil_text(draw, path.read_bytes()))
        chance = draw.random()
        if chance < 0.72 or kind == "links":
            return Attempt(read_data(kind))
        if chance < 0.76:
            return Attempt([*FIT[kind], "--run_dir", "out", "--quiet"], ("out",))
        shutil.copytree(base / kind / "run", "run")
        shutil.copy(base / "queries.tsv", "queries.tsv")
        asked = ["--queries", "queries.tsv"] if kind == "kg" else []
        return Attempt(["predict", "--ckpt_path", "run", "--data.path", "data", *asked])

    return attempt


def configuration(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    path = Path("run/config.yaml").rename("mine.yaml")
    shutil.rmtree("run")
    if draw.random() < 0.5:
        with contextlib.suppress(ValueError, RecursionError, TypeError, yaml.YAMLError):
            spoil_structured(draw, path)
    elif draw.random() < 0.15:
        put_odd(draw, path)
    else:
        path.write_bytes(spoil_text(draw, path.read_bytes()))
    if draw.random() < 0.6:
        return Attempt(["fit", "--config", "mine.yaml", "--print_config"])
    if draw.random() < 0.5:
        return Attempt([*FIT[kind], "--config", "mine.yaml", "--run_dir", "out"], ("out",), memory=True)
    return Attempt(
        ["fit", "--config", "mine.yaml", "--data.path", "data", "--run_dir", "out"], ("out",), memory=True
    )


def queries(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    name = draw.choice(["queries.tsv", "queries.csv", "queries.txt", "queries.tsv.gz"])
    path = Path(name)
    path.write_bytes(Path("queries.tsv").read_bytes() if kind == "kg" else b"n1\nn2\n")
    if draw.random() < 0.15:
        put_odd(draw, path)
    else:
        path.write_bytes(spoil_text(draw, path.read_bytes()))
    asked = draw.choice(["--queries", "--queries", "--score", "--candidates"]) if kind == "kg" else "--nodes"
    words = ["predict", "--ckpt_path", "run", asked, name]
    if asked == "--candidates":
        words += ["--queries", "queries.tsv"]
    out = draw.choice(
        ["", "", "out.csv", "out.parquet", "out.jsonl", "out.tsv", name, "odd.csv", *PATHS]
    ).replace("\x00", "")
    if out == "odd.csv":
        put_odd(draw, Path(out))
    words += ["--out", out] if out else []
    words += draw.choice([[], [], ["--overwrite"], ["--spreadsheet"], ["--explain"], ["--top-k", "1000000"]])
    # the given --out may be written, but not the queries
    typed = (out,) if out and out != name else ()
    return Attempt(words, ("out", *typed))


def other_commands(draw: random.Random, base: Path) -> Attempt:
    """Damaged rows and search spaces for `results`, `plot`, `search`, `reproduce` and `dashboard`."""
    lay_run(draw, base)
    result = Path("run/results.json").read_bytes()
    space = b"model.lr: [0.001, 0.01]\nmodel.encoder.num_layers: {min: 1, max: 3}\n"
    Path("space.yaml").write_bytes(spoil_text(draw, space) if draw.random() < 0.8 else space)
    folder = Path("rows")
    folder.mkdir()
    for number in range(3):
        place = folder / f"run{number}"
        place.mkdir()
        (place / "results.json").write_bytes(spoil_text(draw, result) if number else result)
        shutil.copy("run/config.yaml", place)
    row = {
        "model": "knowformer",
        "data": "kg",
        "recipe": "knowformer/kg",
        "seeds": [0, 1],
        "metrics": {"test/mrr": {"mean": 0.5, "std": 0.1, "paper": None, "values": [0.5]}},
    }
    spoil_tree(draw, row, plain=True)
    with contextlib.suppress(RecursionError, ValueError):
        (folder / "row.json").write_bytes(json.dumps(row).encode("utf-8", "surrogatepass"))
    if draw.random() < 0.2:
        put_odd(draw, folder / draw.choice(["row.json", "run1/results.json", "run2", "run1/config.yaml"]))
    words = draw.choices(
        [
            ["results", "rows", f"--format={draw.choice(['table', 'csv', 'markdown'])}"],
            ["results", "rows", "--commands"],
            ["plot", "rows", "--no-model", "--out", "out.html"],
            [*SEARCH, "--space", "space.yaml", "--sweep", "out.yaml"],
            [*SEARCH, "--space", "space.yaml"],
            [*REPRODUCE[:-1], "rows/run1"],
            [*REPRODUCE, "--ablation", "space.yaml"],
            [
                "dashboard",
                "--project",
                draw.choice(NAMES).replace("\x00", ""),
                "--out",
                draw.choice(["out", "rows", "space.yaml/x"]),
            ],
        ],
        [5, 3, 2, 3, 0.5, 1, 0.5, 1],
    )[0]
    return Attempt(words, ("out", "out.html", "out.yaml", "rows/run1"))
