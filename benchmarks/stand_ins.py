"""Small generated data files of each kind, which replace data that are missing or too large."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["stand_in"]

NODES, FEATURES = 300, 300
# Data sets of two classes or yes-no labels, whose recipes use ROC-AUC.
_CLASSES = {"tolokers": 2, "pokec": 2, "deezer": 2}
_YES_NO = {"ogbn-proteins": 4}
# Data sets whose graph is computed from features; one is in the package.
_WITHOUT_GRAPH = ("20news", "mini-imagenet")


def stand_in(task: str, data: str, folder: Path) -> list[str]:
    """Command-line words for small data in place of a data set; files are written at their first use.

    Args:
        task: Task of the data set, from its preset.
        data: Name of the data set.
        folder: Folder of the generated data.
    """
    if task == "kg-completion":
        return ["--data", "kg", "--data.path", str(_facts(folder / "facts"))]
    if data in _WITHOUT_GRAPH:
        return ["--data", "digits"]
    if task == "node-classification":
        return ["--data", "nodes", "--data.path", str(_labelled(folder, data))]
    return ["--data", "links", "--data.path", str(_links(folder / "links"))]


def _facts(folder: Path) -> Path:
    """Write parent facts, and grandparent facts that follow from them."""
    if folder.is_dir():
        return folder
    folder.mkdir(parents=True)
    parents = [f"{a}{i}\tparent\t{b}{i}\n" for i in range(30) for a, b in ("ab", "bc")]
    asked = [f"a{i}\tgrandparent\tc{i}\n" for i in range(30)]
    for name, lines in (("train", parents + asked[:20]), ("valid", asked[20:25]), ("test", asked[25:])):
        (folder / f"{name}.txt").write_text("".join(lines))
    return folder


def _ring(draw: np.random.Generator) -> np.ndarray:
    """Links [2, E] of a ring with some chords."""
    i = np.arange(NODES)
    ends = [np.stack([i, (i + step) % NODES]) for step in (1, 2, 3)]
    return np.unique(np.sort(np.concatenate([*ends, draw.integers(0, NODES, (2, 20))], 1), 0), axis=1)


def _labelled(folder: Path, data: str) -> Path:
    path = folder / f"{data}.npz"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    if data in _YES_NO:
        y: np.ndarray = draw.integers(0, 2, (NODES, _YES_NO[data])).astype(np.float32)
    else:
        y = np.arange(NODES) % _CLASSES.get(data, 3)
    place = draw.permutation(NODES) % 3
    masks = {f"{part}_mask": place == number for number, part in enumerate(("train", "val", "test"))}
    x = draw.normal(size=(NODES, FEATURES)).astype(np.float32)
    np.savez(path, x=x, y=y, edge_index=_ring(draw), **masks)
    return path


def _links(folder: Path) -> Path:
    if folder.is_dir():
        return folder
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    ends = _ring(draw)
    ends = ends[:, ends[0] != ends[1]].T
    ends = ends[draw.permutation(len(ends))]
    far = np.array([(i, i + 40) for i in range(20)] + [(i, i + 20) for i in range(20)])
    cut = len(ends) // 8
    splits = {
        "valid": ends[:cut], "test": ends[cut : 2 * cut], "train": ends[2 * cut :],
        "valid_neg": far[:20], "test_neg": far[20:],
    }  # fmt: skip
    for name, pairs in splits.items():
        (folder / f"{name}.csv").write_text("".join(f"n{u},n{v}\n" for u, v in pairs))
    rows = [
        f"n{i}," + ",".join(f"{v:.3f}" for v in row) for i, row in enumerate(draw.normal(size=(NODES, 4)))
    ]
    (folder / "nodes.csv").write_text("\n".join(["node,f0,f1,f2,f3", *rows]) + "\n")
    return folder
