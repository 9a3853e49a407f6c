"""Load a LinkGraph of the table by name: find or fetch its files, verify, parse, split and count."""

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
    """A graph of the table by name, with the split and negatives of a protocol.

    Args:
        name: A name of `list_link_graphs`.
        protocol: One of the following; None takes the first that the row of the data set names.

            - "original": the split of Li et al. (2023); one pool of as many random pairs as links
            - "heart": the same split; 500 published hard negatives for each link
            - "heart-ours": as "heart", with negatives that graphzoo computes (see
              `graphzoo.datasets.link.heart`), and for Cora with the split of "ours". Results are not
              comparable with "heart".
            - "ours": a random split 85/5/10 of the links; one pool of as many random pairs as links
            - "vgae": the split of "ours", evaluated by AUROC and AP as in Kipf & Welling (2016)
            - "nbfnet": as "vgae", but two papers that cite each other count as two links (Zhu et al., 2021).
              So some evaluated links are also training links.
            - "ogb": the split and negatives of the Open Graph Benchmark
        split_index: Which random split, from 0; only for protocols that draw one.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.
        download: Whether a missing file may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.

    Returns:
        The graph.

    Raises:
        UsageError: if the name or protocol is unknown, or `split_index` is given for a fixed split.
        DataError: if files are missing or damaged, or are not this data set.
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
    if protocol != AS_LISTED:  # this one counts some links twice, so that its parts are larger
        counted["validation links"] = (graph.valid.positive.size(0), counts.valid)
        counted["test links"] = (graph.test.positive.size(0), counts.test)
    if not graph.may_recur:
        # If links may recur, repeats have been dropped, and the reader has counted.
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
    """The graph with the random split of index `drawn`; None takes the fixed split."""
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
    """The links of a graph, [n, 2], each as often as the file lists it, once or twice."""
    files = provide_source_files(find_node_source(source.node_graph), root=root, download=download)
    # The hashes were checked when the graph was read, from these files or a cached copy of them.
    listed = read_citations(files)
    distinct, count = torch.unique(listed, dim=0, return_counts=True)
    if not torch.equal(distinct, torch.unique(links, dim=0)) or int(count.max()) > 2:
        raise DataError(
            f"{source.name}: the listed citations of {source.node_graph} are not the edges of its graph; "
            "delete its files to fetch them again"
        )
    return listed


def _check_whole(
    source: LinkSource, links: Tensor, edge_index: Tensor, num_nodes: int, files: Mapping[str, Path]
) -> None:
    """Require that the links of a split are the links of the graph, each once."""
    keys = torch.unique(pair_keys(links, num_nodes, is_directed=False))
    known = torch.unique(pair_keys(edge_index.t(), num_nodes, is_directed=False))
    if keys.numel() != links.size(0) or not torch.equal(keys, known):
        raise DataError(
            f"{files['train_pos.txt'].parent}: not a split of {source.name}: {links.size(0):,} links, "
            f"{int(in_keys(keys, known).sum()):,} of them among the {known.numel():,} of the graph; delete "
            "the files to fetch them again"
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
    """Validation and test with hard negatives, published ones or computed ones."""
    if protocol == "heart-ours":
        # imported here: importing numba takes a second
        from graphzoo.datasets.link.heart import hard_negatives

        return hard_negatives(graph, ppr_tolerance=source.ppr_tolerance)
    files = provide_source_files(source.heart, root=root, download=download)
    check_hashes(source.heart, files)
    valid, test = (
        read_heart(files[f"heart_{split}_samples.npy"], graph.positive(split)) for split in ("valid", "test")
    )
    return valid, test
