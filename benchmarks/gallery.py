"""Pictures of each model's attention or subgraphs, for README and the first page of the site.

    graphzoo fit --model knowformer --data umls --recipe umls-demo --run_dir runs/gallery/knowformer
    graphzoo fit --model nodeformer --data cora --run_dir runs/gallery/nodeformer
    graphzoo fit --model galit --data cora --run_dir runs/gallery/galit
    python -m benchmarks.gallery runs/gallery

Writes docs/figures/gallery-<model>.png and, of all four in a row, docs/figures/gallery.png. Needs
matplotlib and networkx.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch
from matplotlib.collections import LineCollection

import graphzoo
from benchmarks.training_curves import FIGURES
from graphzoo.datasets import load_link_graph
from graphzoo.report.models.attention import attention_maps
from graphzoo.report.models.ranks import THRESHOLD, rank, spectra
from graphzoo.report.models.sample import sample_of
from graphzoo.report.style import COLORS, FAINT, INK, STEADY, drawing, new_figure, plain_ticks
from graphzoo.sampling import PairSubgraphSampler

WIDTH, HEIGHT, DPI = 3.6, 3.0, 200
FACT = ("vitamin", "disrupts", "organ_or_tissue_function")  # in the test split
NODES, PATHS, NEIGHBORS, LINK = 84, 5, 6, 25


def draw_knowformer(axes: Any, folder: Path) -> None:
    """The paths of facts from the head to the answer that explain it."""
    found = graphzoo.load(folder).explain(*FACT, k=PATHS)
    steps = dict.fromkeys(step for path in found.paths["path"] for step in path_steps(path))
    middles = list(
        dict.fromkeys(name for head, _, tail in steps for name in (head, tail) if name not in FACT)
    )
    places = {FACT[0]: (0.0, 0.5), FACT[2]: (1.0, 0.5)}
    places |= {name: (0.5, 0.95 - 0.85 * number / (len(middles) - 1)) for number, name in enumerate(middles)}
    for head, relation, tail in steps:
        (x, y), (to_x, to_y) = places[head], places[tail]
        level = x == to_x
        axes.annotate(
            "", (to_x, to_y), (x, y), zorder=1,
            arrowprops={"arrowstyle": "->", "color": FAINT, "shrinkA": 7, "shrinkB": 7,
                        "connectionstyle": f"arc3,rad={0.35 if level else 0}"},
        )  # fmt: skip
        if not level:
            near = 0.53 if x in (0.0, 1.0) else 0.47  # nearer to the end outside
            axes.text(
                near * x + (1 - near) * to_x, near * y + (1 - near) * to_y, relation.replace("_", " "),
                color=FAINT, fontsize=7, ha="center", va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
    for name, (x, y) in places.items():
        tone = {FACT[0]: STEADY[0], FACT[2]: STEADY[1]}.get(name, FAINT)
        axes.scatter([x], [y], s=45, color=tone, zorder=2)
        words = name.replace("_", " ").replace(" or ", " or\n")
        axes.text(x, y + 0.045, words, ha="center", va="bottom", color=INK, fontsize=8, zorder=3,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8})  # fmt: skip
    axes.plot([0.04, 0.96], [0.5, 0.5], color=STEADY[1], linestyle=":", linewidth=1.6, zorder=0)
    axes.text(0.7, 0.5, f"{FACT[1]}?", color=STEADY[1], fontsize=8, ha="center", va="center",
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    axes.set(xlim=(-0.2, 1.24), ylim=(0.02, 1.08))
    axes.axis("off")


def path_steps(path: str) -> list[tuple[str, str, str]]:
    """Facts (head, relation, tail) of a path in the form of `explain`; names must have no spaces."""
    words, facts = path.split(), []
    for place in range(0, len(words) - 2, 2):
        name, arrow, other = words[place : place + 3]
        back = arrow.startswith("<-")
        relation = arrow.removeprefix("<-").removesuffix("->").strip("-")
        facts.append((other, relation, name) if back else (name, relation, other))
    return facts


def draw_nodeformer(axes: Any, folder: Path) -> None:
    """The strongest pairs of the last layer's latent graph over the edges, with nodes sorted by class."""
    model = graphzoo.load(folder)
    sample = sample_of(model.graph, NODES)
    x = model.transform(model.graph.x, model.graph.feature_names)
    weights = attention_maps(model.task.encoder, x, model.graph, sample)[-1].clone().fill_diagonal_(0)
    pairs = (weights + weights.T).triu(1)
    turn = 2 * np.pi * (np.arange(len(weights)) + 0.5) / len(weights)
    points = np.stack([np.sin(turn), np.cos(turn)], 1)
    given = sample.linked.triu(1).nonzero()
    kept = pairs.flatten().topk(2 * len(given)).indices
    latent = torch.stack([kept // len(weights), kept % len(weights)], 1)
    for ends, tone, width in ((latent, STEADY[0], 0.7), (given, INK, 1.1)):
        axes.add_collection(LineCollection([bent(points[i], points[j]) for i, j in ends], colors=tone,
                                           linewidths=width, alpha=0.55))  # fmt: skip
    tones = [STEADY[number % len(STEADY)] for number in sample.classes.tolist()]
    axes.scatter(points[:, 0], points[:, 1], s=16, color=tones, zorder=3)
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
    axes.axis("off")


def bent(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """A curve between two points of a circle, bent towards the centre."""
    steps = np.linspace(0, 1, 16)[:, None]
    return (1 - steps) ** 2 * start + 0.5 * steps * (1 - steps) * (start + end) + steps**2 * end


def draw_galit(axes: Any, folder: Path) -> None:
    """Singular values of the attention, the adjacency, and their mix, which the layer uses."""
    model = graphzoo.load(folder)
    x = model.transform(model.graph.x, model.graph.feature_names)
    names = {"P": "attention", "A": "adjacency", "mix": "both, as used"}
    for number, (name, values) in enumerate(spectra(model.task.encoder, x, model.graph.edge_index).items()):
        kept = values[values > THRESHOLD / 100]
        label = f"{names[name]}: rank {rank(values):,}"
        axes.plot(range(1, len(kept) + 1), kept.numpy(), color=COLORS[number], label=label)
    axes.set_yscale("log")
    axes.set_ylim(bottom=1e-6)
    plain_ticks(axes, "y")
    axes.set_xlabel("singular values, largest first")
    axes.legend(loc="lower center", handlelength=1.2)
    axes.grid(axis="y")


def draw_pencil(axes: Any, _: Path) -> None:
    """The sampled subgraph around a test link of CiteSeer; the link itself is hidden."""
    data = load_link_graph("citeseer-link")
    sampler = PairSubgraphSampler(data.train.T, data.num_nodes, depth=2, num_neighbors=NEIGHBORS)
    link = data.test.positive[LINK]
    adjacency = sampler(link[None], seed=0).adjacency[0]
    graph = nx.from_numpy_array((adjacency | adjacency.T).numpy().astype(int))
    places = nx.kamada_kawai_layout(nx.compose(graph, nx.Graph([(0, 1)])))
    nx.draw_networkx_edges(graph, places, ax=axes, edge_color=FAINT, width=0.7)
    ends = np.array([places[0], places[1]])
    axes.plot(*ends.T, color=STEADY[1], linestyle=":", linewidth=1.6, zorder=2)
    others = np.array([places[node] for node in range(2, len(graph))])
    axes.scatter(*others.T, s=14, color=FAINT, zorder=3)
    axes.scatter(*ends.T, s=60, color=STEADY[:2], zorder=4)
    axes.axis("off")


TITLES: dict[str, tuple[Callable[[Any, Path], None], str]] = {
    "knowformer": (draw_knowformer, "KnowFormer: which facts lead to an answer"),
    "nodeformer": (draw_nodeformer, "NodeFormer: edges it learns (blue) beside Cora's"),
    "galit": (draw_galit, "GALiT: attention of low rank, mixed with edges"),
    "pencil": (draw_pencil, "PENCIL: the subgraph around one link"),
}


def main() -> None:
    """Draw each model, then all in a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, help="a folder with a run per model")
    parser.add_argument("--only", nargs="*", default=list(TITLES))
    given = parser.parse_args()
    with drawing():
        for name in given.only:
            figure = new_figure(HEIGHT, width=WIDTH)
            TITLES[name][0](figure.add_subplot(), given.runs / name)
            figure.savefig(FIGURES / f"gallery-{name}.png", dpi=DPI)
        if len(given.only) < len(TITLES):
            return
        figure = new_figure(HEIGHT + 0.25, width=4 * WIDTH)
        for axes, (name, (draw, title)) in zip(figure.subplots(1, 4), TITLES.items(), strict=True):
            draw(axes, given.runs / name)
            axes.set_title(title, fontsize=9)
        figure.savefig(FIGURES / "gallery.png", dpi=DPI // 2)


if __name__ == "__main__":
    main()
