"""Small files in the formats of data sets that are too large or not available in tests."""

import gzip
import io
import pickle
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import torch
from scipy.io import savemat

from graphzoo.datasets.node import load, table
from graphzoo.datasets.node.points import NEWSGROUPS


def accept_small_files(monkeypatch):
    """Let the table's data sets have any content and size."""
    found = table.find_node_source
    unknown = table.Counts(0, 0, 0, 0)
    monkeypatch.setattr(load, "find_node_source", lambda name: replace(found(name), counts=unknown))
    monkeypatch.setattr(table.NodeSource, "facts", lambda source, file: (None, 0))


def ring(num_nodes):
    """Edges i - i+1 of a ring, each listed once."""
    nodes = np.arange(num_nodes)
    return np.stack([nodes, (nodes + 1) % num_nodes])


def ogb_tables(kind, num_nodes=40, seed=0):
    """Tables by their path in an OGB archive, for "arxiv", "proteins" or "products"."""
    draw = np.random.default_rng(seed)
    edges = ring(num_nodes)
    order = draw.permutation(num_nodes)
    num_classes, width = {"arxiv": (3, 5), "proteins": (4, 8), "products": (3, 6)}[kind]
    tables = {
        "raw/edge": edges.T,
        "raw/num-node-list": np.array([[num_nodes]]),
        "raw/num-edge-list": np.array([[edges.shape[1]]]),
    }
    if kind == "proteins":
        tables["raw/node-label"] = draw.integers(0, 2, (num_nodes, num_classes))
        tables["raw/edge-feat"] = draw.random((edges.shape[1], width)).round(3)
    else:
        tables["raw/node-label"] = np.arange(num_nodes)[:, None] % num_classes
        tables["raw/node-feat"] = draw.standard_normal((num_nodes, width)).round(4)
    split = {"arxiv": "time", "proteins": "species", "products": "sales_ranking"}[kind]
    for part, nodes in zip(("train", "valid", "test"), np.split(order, [20, 30]), strict=True):
        tables[f"split/{split}/{part}"] = nodes[:, None]
    return tables


def csv_gz(values):
    text = "".join(",".join(str(value) for value in row) + "\n" for row in values.tolist())
    return gzip.compress(text.encode(), mtime=0)


def write_ogb(folder, kind, num_nodes=40):
    """Write the unpacked folder in ogb's layout."""
    tables = ogb_tables(kind, num_nodes)
    for name, values in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(csv_gz(values))
    return tables


def ogb_zip(kind):
    """The archive as bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, values in ogb_tables(kind).items():
            archive.writestr(f"{kind}/{name}.csv.gz", csv_gz(values))
    return buffer.getvalue()


def write_pokec(folder, num_nodes=40):
    folder.mkdir(parents=True)
    y = np.arange(num_nodes) % 2
    y[:4] = -1
    savemat(
        folder / "pokec.mat",
        {
            "edge_index": ring(num_nodes),
            "node_feat": np.eye(num_nodes, 5),
            "num_nodes": num_nodes,
            "label": y[None],
        },
    )


def write_newsgroups(folder, per_group=4):
    """Write an archive with one word per group, common words, and a group that is not used."""
    folder.mkdir(parents=True)
    with tarfile.open(folder / "20news-bydate.tar.gz", "w:gz") as archive:
        for part in ("train", "test"):
            for group in (*NEWSGROUPS, "comp.graphics"):
                for number in range(per_group):
                    word = group.replace(".", "")
                    text = f"From: someone\n\nthe weather {word} {word} caf\xe9 {number * 'sunny '}".encode(
                        "latin1"
                    )
                    entry = tarfile.TarInfo(f"20news-bydate-{part}/{group}/{10 * number + 7}")
                    entry.size = len(text)
                    archive.addfile(entry, io.BytesIO(text))


def mini_imagenet(num_nodes=30):
    """The content of the pickle: tensors and arrays of three parts."""
    x = torch.randn(num_nodes, 8, generator=torch.Generator().manual_seed(0))
    y = np.arange(num_nodes) % 3 + 64
    ends = {"train": slice(0, 20), "val": slice(20, 25), "test": slice(25, None)}
    return {
        **{f"x_{part}": x[place] for part, place in ends.items()},
        **{f"y_{part}": y[place] for part, place in ends.items()},
    }


def write_mini_imagenet(folder, protocol=4):
    folder.mkdir(parents=True)
    (folder / "mini_imagenet.pkl").write_bytes(pickle.dumps(mini_imagenet(), protocol=protocol))
