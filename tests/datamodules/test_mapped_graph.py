"""Subgraphs of large graphs are sampled from a cached file that processes share."""

import errno
import logging
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.link_graphs import make_link_graph
from helpers.link_runs import link_data
from torch.utils.data import DataLoader

from graphzoo.datamodules import LinkDataModule, mapped_graph
from graphzoo.datasets import LinkGraph, LinkSplit
from graphzoo.sampling.pair_subgraphs import graph as pair_graph
from graphzoo.types import PairSubgraphs

PAIRS = torch.tensor([[0, 1], [3, 17], [8, 30]])


@pytest.fixture
def edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An edge list that is long enough for a mapped file."""
    monkeypatch.setattr(mapped_graph, "MAPPED_LINKS", 50)
    generator = np.random.default_rng(0)
    pairs = {
        tuple(sorted(pair)) for pair in generator.integers(0, 40, (150, 2)).tolist() if len({*pair}) == 2
    }
    path = tmp_path / "edges.csv"
    path.write_text("".join(f"n{u},n{v}\n" for u, v in sorted(pairs)))
    return path


def cached() -> list[Path]:
    from graphzoo.datasets.files.roots import cache_root

    return sorted((cache_root() / "pair-graphs").glob("*.graph"))


def subgraphs(path: Path, split: str = "train") -> tuple[PairSubgraphs, bool]:
    """Subgraphs that a new data module samples, and whether its graph is a mapped file."""
    data = LinkDataModule(path=str(path), num_neighbors=3)
    data.setup()
    sampler = data.subgraph_sampler(split)
    assert data.subgraph_sampler("valid") is sampler  # the same edges
    return sampler(PAIRS, seed=1), isinstance(sampler.graph.col, np.memmap)


def assert_same(one: PairSubgraphs, other: PairSubgraphs) -> None:
    assert torch.equal(one.nodes, other.nodes) and torch.equal(one.adjacency, other.adjacency)


def test_a_large_graph_is_sampled_from_its_file(edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_graph, "MAPPED_LINKS", 10**6)
    expected, is_mapped = subgraphs(edges)
    assert not is_mapped and not cached()
    monkeypatch.setattr(mapped_graph, "MAPPED_LINKS", 50)
    found, is_mapped = subgraphs(edges)
    assert is_mapped and len(cached()) == 1
    assert_same(found, expected)


def test_the_file_is_written_once(edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = subgraphs(edges)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(pair_graph.PairGraph, "from_edge_index", never)
    again, is_mapped = subgraphs(edges)
    assert is_mapped
    assert_same(again, first)


def test_other_links_have_another_file(edges: Path) -> None:
    first, _ = subgraphs(edges)
    lines = edges.read_text().splitlines()
    edges.write_text("\n".join(lines[:-20]) + "\n")
    other, _ = subgraphs(edges)
    assert len(cached()) == 2
    assert not torch.equal(first.num_nodes, other.num_nodes) or not torch.equal(first.nodes, other.nodes)


def test_a_test_graph_with_validation_links_has_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_graph, "MAPPED_LINKS", 50)
    data = link_data(make_link_graph(valid_edges_at_test=True))
    data.setup()
    num_edges = [len(data.subgraph_sampler(split).graph.col) for split in ("train", "valid", "test")]
    assert num_edges == [data.edge_index(split).shape[1] for split in ("train", "valid", "test")]
    assert num_edges[0] == num_edges[1] < num_edges[2]
    assert len(cached()) == 2


@pytest.mark.parametrize("change", [{"is_directed": True}, {"num_nodes": 41}])
def test_the_same_links_of_another_graph_have_another_file(change: dict[str, int]) -> None:
    links = torch.tensor([[0, 1], [1, 2], [2, 3]])
    valid = LinkSplit(torch.tensor([[4, 5]]), torch.tensor([[0, 5]]))
    test = LinkSplit(torch.tensor([[6, 7]]), torch.tensor([[0, 7]]))
    one = LinkGraph("one", 40, links, valid, test)
    other = replace(one, fingerprint="", **change)
    assert mapped_graph._digest(one, "train") == mapped_graph._digest(replace(one, name="two"), "train")
    assert mapped_graph._digest(one, "train") != mapped_graph._digest(other, "train")


def test_processes_that_start_together_write_one_file(edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes the file while this one waits for the lock."""
    first, _ = subgraphs(edges)
    (file,) = cached()
    kept = file.with_suffix(".kept")
    file.rename(kept)

    class Waits(mapped_graph.TellingLock):  # type: ignore[misc]
        def __enter__(self) -> object:
            kept.rename(file)
            return super().__enter__()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(mapped_graph, "TellingLock", Waits)
    monkeypatch.setattr(pair_graph.PairGraph, "from_edge_index", never)
    again, is_mapped = subgraphs(edges)
    assert is_mapped
    assert_same(again, first)


@pytest.mark.fault("the cached graph of a data set of links is damaged", "rebuilt, with a warning")
def test_a_damaged_file_is_rebuilt(edges: Path) -> None:
    first, _ = subgraphs(edges)
    (file,) = cached()
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="cached graph rebuilt: .*damaged"):
        again, is_mapped = subgraphs(edges)
    assert is_mapped
    assert_same(again, first)
    assert_same(subgraphs(edges)[0], first)


@pytest.mark.fault(
    "no space or no permission to cache the graph of a data set of links",
    "the graph stays in memory; a warning says so",
)
@pytest.mark.parametrize("fault", ["a file in the way", "a full disk"])
def test_without_a_cache_the_graph_stays_in_memory(
    edges: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    expected, _ = subgraphs(edges)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("file" if fault == "a file in the way" else "new")))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if fault == "a full disk":
        monkeypatch.setattr(pair_graph.PairGraph, "save", full)
    with caplog.at_level(logging.WARNING):
        found, is_mapped = subgraphs(edges)
    assert not is_mapped
    assert_same(found, expected)
    assert "keeps the graph in its own memory" in caplog.text and "free disk space in" in caplog.text


def test_an_existing_file_is_read_without_a_lock(edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache may be read-only and filled by others."""
    first, _ = subgraphs(edges)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(mapped_graph, "TellingLock", refused)
    again, is_mapped = subgraphs(edges)
    assert is_mapped
    assert_same(again, first)


def test_other_negatives_share_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_graph, "MAPPED_LINKS", 50)
    for own_negatives in (0, 3):
        data = link_data(make_link_graph(own_negatives=own_negatives))
        data.setup()
        data.subgraph_sampler("train")
    assert len(cached()) == 1


def test_the_pickled_graph_holds_the_path_and_not_the_edges(edges: Path) -> None:
    data = LinkDataModule(path=str(edges), num_neighbors=3)
    data.setup()
    graph = data.subgraph_sampler("train").graph
    sent = pickle.dumps(graph)
    assert str(cached()[0]).encode() in sent and graph.col[:8].tobytes() not in sent
    assert isinstance(pickle.loads(sent).col, np.memmap)


def test_spawned_workers_map_the_file(edges: Path) -> None:
    data = LinkDataModule(path=str(edges), num_neighbors=3, batch_size=16)
    data.batching = "subgraphs"
    data.setup()
    loader = data.train_dataloader(0)
    alone = [batch.subgraphs for batch in loader]
    found = DataLoader(
        loader.dataset,
        batch_size=None,
        sampler=loader.sampler,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    for one, other in zip(found, alone, strict=True):
        assert_same(one.subgraphs, other)
