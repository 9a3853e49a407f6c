"""Small files in OGB's format of link data."""

from dataclasses import replace

import numpy as np
import torch

from graphzoo.datasets.link import load, table
from helpers.node_formats import csv_gz

# data set: folder of its split
SPLITS = {"ddi": "target", "collab": "time", "ppa": "throughput", "citation2": "time"}
NODES = 30


def accept_small_files(monkeypatch):
    """Let the table's data sets have any content and size."""
    found = table.find_link_source
    unknown = table.LinkCounts(0, 0, 0, 0)
    monkeypatch.setattr(load, "find_link_source", lambda name: replace(found(name), counts=unknown))
    monkeypatch.setattr(table.LinkSource, "facts", lambda source, file: (None, 0))


def ogb_content(kind, seed=0):
    """The content of an archive: tables and dictionaries of splits by path."""
    draw = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(NODES, 1), axis=1)
    pairs = pairs[draw.permutation(len(pairs))]
    parts = dict(zip(("train", "valid", "test", "rest"), np.split(pairs, [60, 70, 85]), strict=True))
    content = {"raw/num-node-list": np.array([[NODES]]), "raw/num-edge-list": np.array([[60]])}
    content["raw/edge"] = parts["train"]
    if kind == "ppa":
        content["raw/node-feat"] = np.eye(4, dtype=np.int64)[draw.integers(0, 4, NODES)]
    elif kind != "ddi":
        content["raw/node-feat"] = draw.standard_normal((NODES, 5)).round(4)
    negatives = {"valid": parts["rest"][:12], "test": parts["rest"][12:40]}
    for part in ("train", "valid", "test"):
        links = parts[part]
        if kind == "citation2":
            values = {"source_node": links[:, 0], "target_node": links[:, 1]}
            if part != "train":
                values["target_node_neg"] = draw.integers(0, NODES, (len(links), 6))
        else:
            values = {"edge": links}
            if part != "train":
                values["edge_neg"] = negatives[part]
            if kind == "collab":
                values |= {"weight": np.ones(len(links), dtype=np.int64), "year": np.full(len(links), 2017)}
        content[f"split/{SPLITS[kind]}/{part}"] = values
    return content


def write_ogb(folder, kind, content=None, *, legacy=True, tensors=False):
    """Write the content of an archive as OGB does."""
    for path, values in (content or ogb_content(kind)).items():
        is_split = isinstance(values, dict)
        target = folder / f"{path}{'.pt' if is_split else '.csv.gz'}"
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_split:
            held = {key: torch.from_numpy(value) for key, value in values.items()} if tensors else values
            torch.save(held, target, _use_new_zipfile_serialization=not legacy)
        else:
            target.write_bytes(csv_gz(values))
