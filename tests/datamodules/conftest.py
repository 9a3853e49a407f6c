"""Small knowledge graphs on disk, and a cache folder for each test."""

import random

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GRAPHZOO_DATA", "GRAPHZOO_OFFLINE", "GRAPHZOO_MIRROR"):
        monkeypatch.delenv(name, raising=False)


def random_triples(entities, relations, size, seed):
    source = random.Random(seed)
    everything = [(h, r, t) for h in entities for r in relations for t in entities]
    return source.sample(everything, size)


def write_splits(folder, triples, sizes):
    folder.mkdir(parents=True)
    start = 0
    for split, size in zip(("train", "valid", "test"), sizes, strict=True):
        rows = triples[start : start + size]
        start += size
        (folder / f"{split}.txt").write_text("".join("\t".join(row) + "\n" for row in rows))


@pytest.fixture
def toy(tmp_path):
    """9 entities, 3 relations, 61 / 13 / 11 triples."""
    triples = random_triples([f"e{i}" for i in range(9)], ["r0", "r1", "r2"], 85, seed=0)
    write_splits(tmp_path / "toy", triples, (61, 13, 11))
    return str(tmp_path / "toy")


@pytest.fixture
def pair(tmp_path):
    """An inductive pair: a graph like `toy`, and one of 7 other entities, 2 relations, 40 / 8 / 9 triples."""
    triples = random_triples([f"e{i}" for i in range(9)], ["r0", "r1", "r2"], 85, seed=0)
    write_splits(tmp_path / "first", triples, (61, 13, 11))
    triples = random_triples([f"x{i}" for i in range(7)], ["r0", "r2"], 57, seed=1)
    write_splits(tmp_path / "second", triples, (40, 8, 9))
    return [str(tmp_path / "first"), str(tmp_path / "second")]
