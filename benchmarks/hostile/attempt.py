"""Good files, commands that use them, and what an attempt is."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

KG_FIT = ["fit", "--model", "knowformer", "--data", "kg", "--data.path", "data", "--trainer.max_epochs=1"]
KG_FIT += ["--model.encoder.num_layers=1", "--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu"]
NODE_FIT = [
    "fit",
    "--model",
    "nodeformer",
    "--data",
    "nodes",
    "--data.path",
    "data",
    "--trainer.max_epochs=1",
]
NODE_FIT += ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu"]
FIT = {"kg": KG_FIT, "nodes": NODE_FIT}
SMALL = ["--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--model.encoder.hidden_channels=8"]
SEARCH = ["search", "knowformer", "kg", "--data.path", "data", *SMALL, "--trials", "1", "--out", "out"]
REPRODUCE = [
    "reproduce",
    "knowformer",
    "kg",
    "--data.path",
    "data",
    *SMALL,
    "--in-process",
    "--seeds",
    "0",
    "--out",
    "out",
]


@dataclass
class Attempt:
    """A command or call, after the files are written.

    Attributes:
        todo: Words of the command line, or a function.
        writes: Paths below the current folder that may change.
        memory: Whether running out of memory is allowed, because the command may ask for too much.
        around: Functions that are called first and change streams, users, the clock and the like.
    """

    todo: list[str] | Callable[[], object]
    writes: tuple[str, ...] = ()
    memory: bool = False
    around: list[Callable[[], object]] = field(default_factory=list)


Kind = Callable[[random.Random, Path], Attempt]


def write_data(kind: str, folder: Path) -> None:
    """Write small good data of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    if kind == "kg":
        parents = [f"{a}{i}\tparent\t{b}{i}\n" for i in range(8) for a, b in ("ab", "bc")]
        asked = [f"a{i}\tgrandparent\tc{i}\n" for i in range(8)]
        for name, lines in (("train", parents + asked[:4]), ("valid", asked[4:6]), ("test", asked[6:])):
            (folder / f"{name}.txt").write_text("".join(lines))
    elif kind == "nodes":
        rows = [
            f"n{i},{'ab'[i % 2]},{('train', 'valid', 'test')[i % 3]},{draw.random():.3f},{i % 5}\n"
            for i in range(12)
        ]
        (folder / "nodes.csv").write_text("node,label,split,x,y\n" + "".join(rows))
        edges = [f"n{i},n{(i + step) % 12}\n" for i in range(12) for step in (1, 2)]
        (folder / "edges.csv").write_text("source,target\n" + "".join(edges))
    else:
        edges = [f"n{i},n{(i + step) % 24}\n" for i in range(24) for step in (1, 2)]
        draw.shuffle(edges)
        splits = {"valid": edges[:6], "test": edges[6:12], "train": edges[12:]}
        splits |= {"valid_neg": ["n0,n9\n", "n1,n12\n"], "test_neg": ["n2,n9\n", "n3,n15\n"]}
        for name, lines in splits.items():
            (folder / f"{name}.csv").write_text("".join(lines))
        rows = [f"n{i},{i % 3},{i / 24:.3f}\n" for i in range(24)]
        (folder / "nodes.csv").write_text("node,f0,f1\n" + "".join(rows))


def make_bases(base: Path) -> None:
    """Train the small runs whose copies the attempts damage; the current folder must be `base`."""
    from graphzoo.cli import main

    for kind in ("kg", "nodes", "links"):
        write_data(kind, base / kind / "data")
    for kind, words in FIT.items():
        with contextlib.chdir(base / kind):
            if status := main([*words, "--quiet", "--run_dir", "run"]):
                raise RuntimeError(f"the good run of {kind} ended with status {status}")
    Path("queries.tsv").write_text("a1\tgrandparent\t?\n?\tparent\tb2\n")
