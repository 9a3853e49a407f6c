"""GALiT's rank figure: singular values of attention, adjacency and their mix (the paper's Fig. 5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphzoo.report.content import Block, Note, Picture, TableBlock
from graphzoo.report.models.ranks import THRESHOLD, effective_rank, rank, rank_bound, spectra
from graphzoo.report.style import FAINT, color, new_figure, plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from graphzoo.datasets import NodeGraph
    from graphzoo.encoders import GALiT


# Nodes up to which all are used, as a decomposition takes O(n^3): some seconds on one core; the size of the
# sample of larger graphs; and the most values of states, which bounds memory.
_MOST_NODES, _SAMPLED, _MOST_VALUES = 3_000, 1_500, 1 << 28
_NAMES = {"P": "attention P", "A": "adjacency A", "mix": "αP + (1-α)A"}


def rank_blocks(encoder: GALiT, x: Tensor, graph: NodeGraph, prefix: str) -> list[Block]:
    """A picture and a table of the singular values of attention, adjacency and their mix in the first layer.

    Args:
        encoder: The encoder.
        x: Features [N, F], transformed as for the encoder.
        graph: The graph.
        prefix: What names of pictures begin with.
    """
    if not len(encoder.layers):
        text = "The model has no attention (attention none, or alpha 1), so there are no ranks to show."
        return [Note(text)]
    if graph.num_nodes * max(x.shape[1], encoder.out_channels) > _MOST_VALUES:
        return [Note("The graph is too large for computing the ranks of attention in double precision.")]
    nodes = None
    caption = ""
    if graph.num_nodes > _MOST_NODES:
        generator = torch.Generator().manual_seed(0)
        nodes = torch.randperm(graph.num_nodes, generator=generator)[:_SAMPLED].sort().values
        caption = f"For the rows and columns of {_SAMPLED:,} nodes, sampled from {graph.num_nodes:,}. "
    spectra_of = spectra(encoder, x, graph.edge_index, nodes)
    count = len(spectra_of["A"])
    ranks = ", ".join(f"{_NAMES[name]} {rank(values):,}" for name, values in spectra_of.items())
    alt = f"Singular values of three matrices of {count:,} nodes on a logarithmic scale. Ranks: {ranks}."
    caption += f"The rank counts the values above {THRESHOLD:g} (dotted), as in the paper."
    title = "Ranks of attention and adjacency"
    rows = []
    for name, values in spectra_of.items():
        most = rank_bound(encoder, count) if name == "P" else count
        rows.append([_NAMES[name], f"{rank(values):,}", f"{effective_rank(values):,.1f}", f"{most:,}"])
    columns = ["matrix", "rank", "effective rank", "at most"]
    note = "The effective rank is exp(H); H is the entropy of the singular values as shares of their sum."
    table = TableBlock("Ranks of the first layer", columns, rows, frozenset({1, 2, 3}), note)
    return [Picture(f"{prefix}-ranks", title, alt, partial(_draw, spectra_of), caption), table]


def _draw(spectra_of: dict[str, Tensor]) -> Figure:
    from matplotlib.ticker import LogLocator

    figure = new_figure(2.9)
    axes = figure.add_subplot()
    for number, (name, values) in enumerate(spectra_of.items()):
        kept = values[values > THRESHOLD / 100]
        label = f"{_NAMES[name]}: rank {rank(values):,}"
        axes.plot(range(1, len(kept) + 1), kept.numpy(), color=color(number), label=label)
    axes.axhline(THRESHOLD, color=FAINT, linestyle=":")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(100))
    plain_ticks(axes, "y")
    axes.set_xlabel("index")
    axes.set_ylabel("singular value")
    axes.grid(axis="y")
    figure.legend(loc="outside upper left", borderaxespad=0, handlelength=1.4)
    return figure
