"""The input graph beside the latent graph of attention, for a sample of nodes (NodeFormer's Fig. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphzoo.report.content import Block, Note, Picture, TableBlock
from graphzoo.report.models.sample import NodeSample, sample_of
from graphzoo.report.style import FAINT, STEADY, new_figure, short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from graphzoo.datasets import NodeGraph


_NODES, _LAYERS, _PAIRS_TOLD = 84, 3, 10


def attention_maps(encoder: Any, x: Tensor, graph: NodeGraph, sample: NodeSample) -> list[Tensor]:
    """Attention between the sampled nodes in every layer, as the mean over heads and as multiples of 1/N.

    Args:
        encoder: Encoder of nodes with attention.
        x: Features [N, F], transformed as for the encoder.
        graph: The graph.
        sample: The n sampled nodes.

    Returns:
        A tensor [n, n], float64, per layer: N times the weight of the column's node in the row's node. All
        are 1 if attention is uniform over the N nodes.
    """
    from graphzoo.encoders import GALiT, NodeFormer

    count = sample.nodes.numel()
    if not isinstance(encoder, GALiT | NodeFormer):
        rows = encoder.attention(x, graph.edge_index, sample.nodes)  # [L, H, n, N]
        return [graph.num_nodes * weights.double().mean(0)[:, sample.nodes].cpu() for weights in rows]
    # Both can compute the weights of single pairs, which needs no memory for all N nodes.
    looks, seen = sample.nodes.repeat_interleave(count), sample.nodes.repeat(count)
    # NodeFormer takes pairs as edges, from the attended node to the attending node.
    pairs = torch.stack([seen, looks] if isinstance(encoder, NodeFormer) else [looks, seen])
    maps = encoder.return_attention(x, graph.edge_index, pairs)
    return [graph.num_nodes * weights.double().mean(1).view(count, count).cpu() for weights in maps]


def attention_blocks(encoder: Any, x: Tensor, graph: NodeGraph, prefix: str) -> list[Block]:
    """Pictures of the input graph and of the attention of the layers, for a sample of nodes."""
    sample = sample_of(graph, _NODES)
    maps = attention_maps(encoder, x, graph, sample)
    if not maps:
        return [Note("The model has no attention layer.")]
    layers = list(enumerate(maps, start=1))
    shown = layers if len(layers) <= _LAYERS else [*layers[: _LAYERS - 1], layers[-1]]
    count = sample.nodes.numel()
    what = f"all {count} nodes" if sample.is_whole else f"{count} of {sample.num_nodes:,} nodes"
    ordered = ", ordered by class" if sample.class_names else ""
    text = (
        f"The input graph beside the latent graphs of the layers, for {what}{ordered}. Nodes are sampled "
        "around a node of each class, so that some are neighbours. Attention weights are shares of all "
        "N nodes, times N: 1 is uniform attention. For several heads, the mean is shown."
    )
    edges = int(sample.linked.triu(1).sum())
    strongest = max(edges, count // 2)
    blocks: list[Block] = [
        Note(text),
        Picture(
            f"{prefix}-input-graph-map", "Input graph", f"Adjacency of {what}{ordered}: {edges} edges.",
            partial(_draw_map, sample.linked.double(), sample, given=True), f"{edges} edges among them.",
        ),
    ]  # fmt: skip
    for number, weights in shown:
        comparison = _compare(weights, sample)
        title = f"Attention, layer {number}"
        alt = f"Attention map of layer {number} for {what}{ordered}. {comparison}"
        draw = partial(_draw_map, weights, sample, given=False)
        blocks.append(Picture(f"{prefix}-attention-map-{number}", title, alt, draw, comparison))
    given = _edges_of(sample.linked.double(), edges)
    blocks.append(
        Picture(
            f"{prefix}-input-graph-edges", "Input graph as edges",
            f"The {edges} edges among {what}, on a circle{ordered}. {_within(given, sample)}",
            partial(_draw_edges, given, sample), _within(given, sample),
        )
    )  # fmt: skip
    for number, weights in shown:
        latent = _edges_of(weights, strongest)
        title = f"Latent graph, layer {number}"
        caption = f"The {len(latent)} strongest pairs. {_within(latent, sample)}"
        alt = f"The pairs with most attention in layer {number}, of {what}, on a circle{ordered}. {caption}"
        draw = partial(_draw_edges, latent, sample)
        blocks.append(Picture(f"{prefix}-latent-graph-{number}", title, alt, draw, caption))
    return [*blocks, _table(*shown[-1], sample)]


def _compare(weights: Tensor, sample: NodeSample) -> str:
    """Compare the mean attention between neighbours, and within classes, with that of other pairs."""
    others = ~torch.eye(len(weights), dtype=torch.bool)
    means = []
    pairs = {"linked pairs": sample.linked & others, "pairs of one class": sample.same_class()}
    for name, chosen in pairs.items():
        rest = others & ~chosen
        if chosen.any() and rest.any():
            mean, of_rest = float(weights[chosen].mean()), float(weights[rest].mean())
            means.append(f"{name} {mean:.2f}, other pairs {of_rest:.2f}")
    return f"Mean weight: {'; '.join(means)}." if means else ""


def _edges_of(weights: Tensor, count: int) -> list[tuple[int, int, float]]:
    """The strongest pairs of two nodes, weaker first, each once: (attending node, attended node, weight)."""
    both = torch.maximum(weights, weights.t()).triu(1)
    flat = both.flatten()
    best = flat.topk(min(count, flat.numel()))
    edges = []
    for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        i, j = divmod(place, len(weights))
        if value > 0:
            edges.append((i, j, value) if weights[i, j] >= weights[j, i] else (j, i, value))
    return edges[::-1]


def _within(edges: Sequence[tuple[int, int, float]], sample: NodeSample) -> str:
    same = sample.same_class()
    if not edges or not sample.class_names:
        return ""
    share = sum(bool(same[i, j]) for i, j, _ in edges) / len(edges)
    return f"{100 * share:.0f}% join nodes of one class."


def _draw_map(values: Tensor, sample: NodeSample, *, given: bool) -> Figure:
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    figure = new_figure(3.5)
    axes = figure.add_subplot()
    off = values[~torch.eye(len(values), dtype=torch.bool)]
    low, high = float(off.quantile(0.01)), float(off.quantile(0.995))
    norm: Normalize
    if given:
        norm = Normalize(0, 1)
    elif 0 < low and high > 20 * low:
        norm = LogNorm(low, high)
    else:
        # Tiny differences must not look like a pattern.
        norm = Normalize(min(low, 1 - 0.05), max(high, 1 + 0.05))
    image = axes.imshow(
        values.numpy(), cmap="viridis", norm=norm, interpolation="nearest", rasterized=True, origin="upper"
    )
    for start in _starts(sample)[1:]:
        axes.axhline(start - 0.5, color="#ffffff", linewidth=0.5, alpha=0.6)
        axes.axvline(start - 0.5, color="#ffffff", linewidth=0.5, alpha=0.6)
    _class_ticks(axes, sample)
    axes.set_xlabel("neighbour" if given else "attended node")
    axes.set_ylabel("node")
    if not given:
        bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, extend="both", ticks=MaxNLocator(5))
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:.3g}"))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
        bar.ax.yaxis.set_minor_locator(NullLocator())
        bar.outline.set_visible(False)
        bar.set_label("weight × N")
    return figure


def _starts(sample: NodeSample) -> list[int]:
    """The positions in the sample where each class begins."""
    classes = sample.classes.tolist()
    return [place for place in range(len(classes)) if not place or classes[place] != classes[place - 1]]


def _class_ticks(axes: Any, sample: NodeSample) -> None:
    starts = _starts(sample)
    ends = [*starts[1:], len(sample.classes)]
    middles = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
    names = [short_name(sample.class_of(start), 12) for start in starts]
    if not sample.class_names or len(names) > 20:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_yticks(middles, names)
    long = max(map(len, names)) > 3
    axes.set_xticks(middles, names, rotation=60 if long else 0, ha="right" if long else "center")
    axes.tick_params(length=0)


def _draw_edges(edges: Sequence[tuple[int, int, float]], sample: NodeSample) -> Figure:
    import numpy as np
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(2.9)
    axes = figure.add_subplot(aspect="equal")
    count = sample.nodes.numel()
    turn = 2 * np.pi * (np.arange(count) + 0.5) / count
    points = np.stack([np.sin(turn), np.cos(turn)], 1)
    weights = [weight for _, _, weight in edges]
    if edges:
        lines = []
        for i, j, _ in edges:
            steps = np.linspace(0, 1, 12)[:, None]
            # Edges are bent towards the middle, so that those along the circle are visible.
            lines.append(
                (1 - steps) ** 2 * points[i]
                + 0.5 * steps * (1 - steps) * (points[i] + points[j])
                + steps**2 * points[j]
            )
        if max(weights) > 1.02 * min(weights):
            # Each end of the colour scale is weak in one theme, so that strong edges are thick, too.
            norm = Normalize(min(weights), max(weights))
            widths = [0.6 + 1.4 * float(norm(weight)) for weight in weights]
            collection = LineCollection(lines, cmap="viridis", norm=norm, array=weights, linewidths=widths)
            collection.set_alpha(0.85)
            bar = figure.colorbar(collection, ax=axes, shrink=0.7, pad=0.02, ticks=MaxNLocator(5))
            bar.outline.set_visible(False)
            bar.set_label("weight × N")
        else:
            collection = LineCollection(lines, colors=FAINT, linewidths=0.8)
        axes.add_collection(collection)
    classes = sample.classes.tolist()
    tones = [STEADY[number % len(STEADY)] if number >= 0 else FAINT for number in classes]
    axes.scatter(points[:, 0], points[:, 1], s=14, color=tones, zorder=3, linewidths=0)
    starts = _starts(sample)
    if sample.class_names and len(starts) <= 20:
        for start, end in zip(starts, [*starts[1:], count], strict=True):
            angle = 2 * np.pi * (start + end) / 2 / count
            name = short_name(sample.class_of(start), 12)
            side = "left" if np.sin(angle) > 0.2 else "right" if np.sin(angle) < -0.2 else "center"
            axes.text(1.09 * np.sin(angle), 1.09 * np.cos(angle), name, ha=side, va="center")
    axes.set(xlim=(-1.35, 1.35), ylim=(-1.2, 1.2))
    axes.axis("off")
    return figure


def _table(layer: int, weights: Tensor, sample: NodeSample) -> TableBlock:
    others = weights.clone().fill_diagonal_(-1)
    best = others.flatten().topk(min(_PAIRS_TOLD, len(weights) * (len(weights) - 1)))
    rows = []
    for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        i, j = divmod(place, len(weights))
        row = [sample.names[i], sample.names[j], f"{value:.3g}", "yes" if sample.linked[i, j] else "no"]
        if sample.class_names:
            row += [sample.class_of(i), sample.class_of(j)]
        rows.append(row)
    columns = ["node", "attends to", "weight × N", "linked"]
    if sample.class_names:
        columns += ["class", "its class"]
    return TableBlock(f"Strongest pairs of layer {layer} in the sample", columns, rows, frozenset({2}))
