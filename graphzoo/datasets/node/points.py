"""Read data without a graph, images and texts; their graph joins each point to its nearest neighbours."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphzoo.datasets.node.build import Parsed
from graphzoo.datasets.node.unpickle import read_pickle
from graphzoo.errors import DataError, reason
from graphzoo.system.memory import reading

NEWSGROUPS = (
    "alt.atheism",
    "comp.sys.ibm.pc.hardware",
    "misc.forsale",
    "rec.autos",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "talk.politics.guns",
)
_PARTS = ("train", "val", "test")
_NO_EDGES = np.empty((2, 0), dtype=np.int64)


def read_digits(files: Mapping[str, Path]) -> Parsed:
    """Read the digits that ship with scikit-learn: 1,797 images of 8 x 8 pixels, grey levels in 0..1."""
    # imported here: only this data set needs it
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    return Parsed.of_arrays(pixels / 16.0, _NO_EDGES, y)


def read_newsgroups(files: Mapping[str, Path]) -> Parsed:
    """Read 20 Newsgroups as NodeFormer uses it: ten of the groups, 9,607 texts with their headers.

    Features are TF-IDF of the words that occur in at least 5 % of these texts, without English stop words.
    The document frequency is not smoothed, and rows have length 1. Texts are sorted by part (training first),
    group and file name; scikit-learn's loader would shuffle them.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    (path,) = files.values()
    texts: dict[tuple[str, str, int], str] = {}
    damage = (tarfile.TarError, zlib.error, OSError, EOFError, ValueError)
    with reading(path, "a readable archive", errors=damage), gzip.open(path) as unpacked:
        with tarfile.open(fileobj=unpacked, mode="r:") as archive:
            for member in archive:
                place = Path(member.name).parts[-3:]
                if member.isfile() and len(place) == 3 and place[1] in NEWSGROUPS:
                    stream = archive.extractfile(member)
                    assert stream is not None
                    # "train" before "test"
                    part = "0" if place[0].endswith("train") else "1"
                    texts[part, place[1], int(place[2])] = stream.read().decode("latin1")
        while unpacked.read(1 << 20):  # at a damaged header the archive seems over; the checksum tells
            pass
    keys = sorted(texts)
    y = np.array([NEWSGROUPS.index(group) for _, group, _ in keys], dtype=np.int64)
    counts = CountVectorizer(stop_words="english", min_df=0.05).fit_transform(texts[key] for key in keys)
    features = TfidfTransformer(smooth_idf=False).fit_transform(counts).toarray()
    names = tuple(f"{'train' if part == '0' else 'test'}/{group}/{number}" for part, group, number in keys)
    return Parsed.of_arrays(features, _NO_EDGES, y, class_names=NEWSGROUPS, node_names=names)


def read_mini_imagenet(files: Mapping[str, Path]) -> Parsed:
    """Read Mini-ImageNet: 30 classes of 600 images, with 128 features that NodeFormer's authors computed.

    The file is their pickle (`x_train`, `y_train`, `x_val`, ...), from which only arrays and tensors are
    read, or an .npz file with `x` and `y`.
    """
    (path,) = files.values()
    if path.suffix == ".npz":
        with reading(path, "an .npz file with x and y"), np.load(path, allow_pickle=False) as file:
            x, y = file["x"], file["y"]
    else:
        content = read_pickle(path)
        try:
            x = np.concatenate([np.asarray(content[f"x_{part}"]) for part in _PARTS])
            y = np.concatenate([np.asarray(content[f"y_{part}"]) for part in _PARTS])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: expected x_train, y_train, x_val, y_val, x_test, y_test ({reason(error)})"
            ) from error
    classes, numbers = np.unique(y, return_inverse=True)
    names = tuple(str(label) for label in classes.tolist())
    return Parsed.of_arrays(x, _NO_EDGES, numbers.reshape(-1), class_names=names)
