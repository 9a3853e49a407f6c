"""From a name of the table to a LinkGraph: find or fetch the files, verify, parse, split, check counts."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from graphzoo.datasets.files.cache import remember_as
from graphzoo.datasets.files.provide import check_hashes, provide_source_files
from graphzoo.datasets.link.fixed import read_heart, read_split
from graphzoo.datasets.link.graph import LinkGraph, read_link_graph, write_link_graph
from graphzoo.datasets.link.ogb import read_ogb_links
from graphzoo.datasets.link.pairs import in_keys, pair_keys
from graphzoo.datasets.link.splits import draw_link_split
from graphzoo.datasets.link.table import LinkSource, find_link_source
from graphzoo.datasets.node.load import load_node_graph
from graphzoo.errors import DataError, UsageError

__all__ = ["load_link_graph"]

_log = logging.getLogger(__name__)


def load_link_graph(
    name: str,
    *,
    protocol: str | None = None,
    split_index: int = 0,
    root: str | os.PathLike[str] | None = None,
    download: bool | None = None,
) -> LinkGraph:
    """A graph of the table, by name, split and judged by a protocol.

    Args:
        name: See `list_link_graphs`.
        protocol: None takes the data set's usual one, the first of its row:

            - "original": the split of Li et al. (2023), every link against one pool of as many random pairs
            - "heart": the same split, every link against 500 hard negatives of its own, as published
            - "heart-ours": the same with negatives made here (see `graphzoo.datasets.link.heart`); for Cora
              on a split of its own. Not comparable with "heart".
            - "ours": 85/5/10 of the links at random, one pool of as many random pairs
            - "vgae": the same split, judged by AUROC and AP as in Kipf & Welling (2016)
            - "ogb": the split and negatives of the Open Graph Benchmark
        split_index: Which of the random splits, for protocols that draw one.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache.
        download: Whether a missing file may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.

    Returns:
        The graph.

    Raises:
        ValueError: unknown name or protocol, or an index of a split that is not drawn.
        DataError: missing or damaged files, or files that are not this data set.
    """
    source = find_link_source(name)
    protocol = source.protocol(protocol)
    is_drawn = source.is_drawn(protocol)
    if split_index < 0 or (split_index and not is_drawn):
        allowed = "0 or above" if is_drawn else f"0: protocol {protocol} has one fixed split"
        raise UsageError(f"{source.name}: split_index must be {allowed}, got {split_index}")
    if source.node_graph:
        graph = _load_planetoid(source, protocol, split_index, root, download, is_drawn=is_drawn)
    else:
        graph = _load_ogb(source, protocol, root, download)
    _check_counts(source, graph)
    return graph


def _load_planetoid(
    source: LinkSource,
    protocol: str,
    split_index: int,
    root: str | os.PathLike[str] | None,
    download: bool | None,
    *,
    is_drawn: bool,
) -> LinkGraph:
    nodes = load_node_graph(source.node_graph, root=root, download=download)
    if is_drawn:
        links = nodes.edge_index.t()
        train, valid, test = draw_link_split(links[links[:, 0] < links[:, 1]], nodes.num_nodes, split_index)
    else:
        files = provide_source_files(source, root=root, download=download)
        check_hashes(source, files)
        train, valid, test = read_split(files)
        links = torch.cat([train, valid.positive, test.positive])
        _check_whole(source, links, nodes.edge_index, nodes.num_nodes, files)
    metric = "auroc" if protocol == "vgae" else source.metric
    graph = LinkGraph(
        source.name, nodes.num_nodes, train, valid, test, x=nodes.x, metric=metric, protocol=protocol
    )
    return _with_own_negatives(graph, source, protocol, root, download)


def _check_whole(
    source: LinkSource, links: Tensor, edge_index: Tensor, num_nodes: int, files: Mapping[str, Path]
) -> None:
    """The links of a split are those of the graph, each once."""
    keys = torch.unique(pair_keys(links, num_nodes, is_directed=False))
    known = torch.unique(pair_keys(edge_index.t(), num_nodes, is_directed=False))
    if keys.numel() != links.size(0) or not torch.equal(keys, known):
        raise DataError(
            f"{files['train_pos.txt'].parent}: not a split of {source.name}: {links.size(0):,} links, "
            f"{int(in_keys(keys, known).sum()):,} of them in the graph's {known.numel():,}"
        )


def _load_ogb(
    source: LinkSource, protocol: str, root: str | os.PathLike[str] | None, download: bool | None
) -> LinkGraph:
    files = provide_source_files(source, root=root, download=download)

    def parse() -> tuple[LinkGraph, list[str]]:
        check_hashes(source, files)
        links = read_ogb_links(files, is_directed=source.is_directed)
        for notice in links.notices:
            # oddities of published data are part of it: logged, not warned of
            _log.info("%s: %s", source.name, notice)
        if source.counts.train not in (0, links.num_listed):
            raise _not_this(source, [f"training links {links.num_listed:,}, not {source.counts.train:,}"])
        graph = LinkGraph(
            source.name,
            links.num_nodes,
            links.train,
            links.valid,
            links.test,
            x=links.x,
            is_directed=source.is_directed,
            node_names=links.node_names,
            metric=source.metric,
            protocol="ogb",
            valid_edges_at_test=source.valid_edges_at_test,
            may_recur=source.may_recur,
        )
        return graph, []

    purpose = f"links\n{source.name}\n{source.counts}\n{sorted(files)}"
    graph = remember_as(list(files.values()), purpose, parse, read_link_graph, write_link_graph)
    return _with_own_negatives(graph, source, protocol, root, download)


def _with_own_negatives(
    graph: LinkGraph,
    source: LinkSource,
    protocol: str,
    root: str | os.PathLike[str] | None,
    download: bool | None,
) -> LinkGraph:
    """The graph with hard negatives, published or made here, if the protocol asks for them."""
    if protocol == "heart":
        files = provide_source_files(source.heart, root=root, download=download)
        check_hashes(source.heart, files)
        valid, test = (
            read_heart(files[f"heart_{split}_samples.npy"], graph.positive(split))
            for split in ("valid", "test")
        )
    elif protocol == "heart-ours":
        from graphzoo.datasets.link.heart import hard_negatives

        valid, test = hard_negatives(graph, ppr_tolerance=source.ppr_tolerance)
    else:
        return graph
    return replace(graph, valid=valid, test=test, metric="mrr", protocol=protocol, fingerprint="")


def _check_counts(source: LinkSource, graph: LinkGraph) -> None:
    counts = source.counts
    found = {
        "nodes": (graph.num_nodes, counts.nodes),
        "features": (0 if graph.x is None else graph.x.size(1), counts.features),
        "validation links": (graph.valid.positive.size(0), counts.valid),
        "test links": (graph.test.positive.size(0), counts.test),
    }
    if not source.may_recur:
        # elsewhere repeats are dropped after counting
        found["training links"] = (graph.train.size(0), counts.train)
    if wrong := [
        f"{what} {number:,}, not {expected:,}"
        for what, (number, expected) in found.items()
        if expected and number != expected
    ]:
        raise _not_this(source, wrong)


def _not_this(source: LinkSource, wrong: Sequence[str]) -> DataError:
    return DataError(
        f"{source.folder}: not {source.name}: {'; '.join(wrong)}\n"
        "  delete the files to fetch them again; another version is loaded as your own data (name links, "
        "with a path)"
    )
