"""From a name of the table to a LinkGraph: find or fetch the files, verify, parse, split, check counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from graphzoo.datasets.files.cache import remember
from graphzoo.datasets.files.provide import check_hashes, provide_source_files
from graphzoo.datasets.files.sources import refuse_counts
from graphzoo.datasets.link.fixed import read_heart, read_split
from graphzoo.datasets.link.graph import LinkGraph, LinkSplit
from graphzoo.datasets.link.ogb import read_ogb_links
from graphzoo.datasets.link.pairs import in_keys, pair_keys
from graphzoo.datasets.link.splits import draw_link_split
from graphzoo.datasets.link.table import AS_LISTED, LinkSource, find_link_source
from graphzoo.datasets.node.load import load_node_graph
from graphzoo.datasets.node.readers import read_citations
from graphzoo.datasets.node.table import find_node_source
from graphzoo.errors import DataError, UsageError


def load_link_graph(
    name: str,
    *,
    protocol: str | None = None,
    split_index: int = 0,
    root: str | os.PathLike[str] | None = None,
    download: bool | None = None,
) -> LinkGraph:
    """A graph of the table, by name, split and evaluated by a protocol.

    Args:
        name: See `list_link_graphs`.
        protocol: None takes the data set's usual one, the first of its row:

            - "original": the split of Li et al. (2023), every link against one pool of as many random pairs
            - "heart": the same split, every link against 500 hard negatives of its own, as published
            - "heart-ours": the same with negatives made here (see `graphzoo.datasets.link.heart`); for Cora
              on a split of its own. Not comparable with "heart".
            - "ours": 85/5/10 of the links at random, one pool of as many random pairs
            - "vgae": the same split, evaluated by AUROC and AP as in Kipf & Welling (2016)
            - "nbfnet": the same with citations split as they are listed (Zhu et al., 2021): two papers that
              cite each other are listed twice, so that some evaluated links are training links
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
        graph = _load_planetoid(source, protocol, split_index if is_drawn else None, root, download)
    else:
        graph = _load_ogb(source, root, download)
    if protocol.startswith("heart"):
        valid, test = _own_negatives(graph, source, protocol, root, download)
        graph = replace(graph, valid=valid, test=test, metric="mrr", protocol=protocol, fingerprint="")
    counts = source.counts
    counted = {
        "nodes": (graph.num_nodes, counts.nodes),
        "features": (0 if graph.x is None else graph.x.size(1), counts.features),
    }
    if protocol != AS_LISTED:  # which splits more of them
        counted["validation links"] = (graph.valid.positive.size(0), counts.valid)
        counted["test links"] = (graph.test.positive.size(0), counts.test)
    if not graph.may_recur:
        # elsewhere repeats are dropped after counting
        counted["training links"] = (graph.train.size(0), counts.train)
    refuse_counts(source.folder, source.name, counted, own="links")
    return graph


def _load_planetoid(
    source: LinkSource,
    protocol: str,
    drawn: int | None,
    root: str | os.PathLike[str] | None,
    download: bool | None,
) -> LinkGraph:
    """The graph with a fixed split, or with the one of index `drawn`."""
    nodes = load_node_graph(source.node_graph, root=root, download=download)
    repeated = protocol == AS_LISTED
    if drawn is not None:
        links = nodes.edge_index.t()
        links = links[links[:, 0] < links[:, 1]]
        if repeated:
            links = _as_listed(source, links, root, download)
        train, valid, test = draw_link_split(links, nodes.num_nodes, drawn, repeated=repeated)
    else:
        files = provide_source_files(source, root=root, download=download)
        check_hashes(source, files)
        train, valid, test = read_split(files)
        links = torch.cat([train, valid.positive, test.positive])
        _check_whole(source, links, nodes.edge_index, nodes.num_nodes, files)
    metric = "auroc" if protocol in ("vgae", AS_LISTED) else source.metric
    return LinkGraph(
        source.name, nodes.num_nodes, train, valid, test, x=nodes.x, metric=metric, protocol=protocol,
        may_recur=repeated,
    )  # fmt: skip


def _as_listed(
    source: LinkSource, links: Tensor, root: str | os.PathLike[str] | None, download: bool | None
) -> Tensor:
    """The links of a graph, [n, 2], each as often as its file lists it: once or twice."""
    files = provide_source_files(find_node_source(source.node_graph), root=root, download=download)
    # checked when the graph was read from them, or from a copy that was made of the same bytes
    listed = read_citations(files)
    distinct, count = torch.unique(listed, dim=0, return_counts=True)
    if not torch.equal(distinct, torch.unique(links, dim=0)) or int(count.max()) > 2:
        raise DataError(
            f"{source.name}: the citations of {source.node_graph} are not its edges; fetch it again"
        )
    return listed


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


def _load_ogb(source: LinkSource, root: str | os.PathLike[str] | None, download: bool | None) -> LinkGraph:
    files = provide_source_files(source, root=root, download=download)

    def parse() -> tuple[LinkGraph, list[str]]:
        check_hashes(source, files)
        return read_ogb_links(source, files), []

    purpose = f"links\n{source.name}\n{source.counts}\n{sorted(files)}"
    return remember(list(files.values()), purpose, LinkGraph, parse)


def _own_negatives(
    graph: LinkGraph,
    source: LinkSource,
    protocol: str,
    root: str | os.PathLike[str] | None,
    download: bool | None,
) -> tuple[LinkSplit, LinkSplit]:
    """Validation and test with hard negatives, published or made here."""
    if protocol == "heart-ours":
        # imported here: numba takes a second
        from graphzoo.datasets.link.heart import hard_negatives

        return hard_negatives(graph, ppr_tolerance=source.ppr_tolerance)
    files = provide_source_files(source.heart, root=root, download=download)
    check_hashes(source.heart, files)
    valid, test = (
        read_heart(files[f"heart_{split}_samples.npy"], graph.positive(split)) for split in ("valid", "test")
    )
    return valid, test
