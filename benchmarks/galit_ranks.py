"""Ranks of GALiT's attention, the adjacency and their mix in trained models (the paper's Fig. 5).

    graphzoo fit --model galit --data cora --model.encoder.hidden_channels 256 --model.encoder.num_heads 4 \\
        --model.encoder.similarity mcos --run_dir ranks-cora
    python -m benchmarks.galit_ranks ranks-cora [MORE_RUNS ...]

P is the attention of the first layer, averaged over heads. A is the normalised adjacency with self-loops. The
mix is alpha P + (1 - alpha) A, as in Eq. 34. The rank is the number of singular values above 1e-8, as in the
paper. They are computed in float64, because rounding in float32 exceeds this threshold. The effective rank is
exp of the entropy of the singular values, divided by their sum (Roy and Vetterli, 2007).

Writes results/galit_ranks.csv and docs/figures/galit-ranks.png (all singular values).
"""

import argparse
import csv
import sys
from pathlib import Path

from torch import Tensor

from benchmarks.common import RESULTS, commit
from graphzoo.encoders import GALiT
from graphzoo.report.models.ranks import THRESHOLD, effective_rank, rank, rank_bound, spectra

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
COLUMNS = ("data", "matrix", "num_nodes", "rank", "effective_rank", "bound", "settings", "commit")


def describe(run: Path, max_nodes: int) -> tuple[str, GALiT, dict[str, Tensor]]:
    """The data name of a run, its encoder, and the singular values."""
    import graphzoo
    from graphzoo.inference.node_model import NodeModel

    model = graphzoo.load(run)
    if not isinstance(model, NodeModel) or not isinstance(model.task.encoder, GALiT):
        raise SystemExit(f"{run}: not a GALiT model of nodes")
    graph = model.graph
    if graph.num_nodes > max_nodes:
        raise SystemExit(f"{run}: {graph.num_nodes} nodes are too many for a singular value decomposition")
    x = model.transform(graph.x, graph.feature_names)
    return graph.name, model.task.encoder, spectra(model.task.encoder, x, graph.edge_index)


def plot(found: dict[str, dict[str, Tensor]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (4.5 * len(found), 3.5)
    figure, axes = pyplot.subplots(1, len(found), figsize=size, constrained_layout=True, squeeze=False)
    for axis, (data, values) in zip(axes[0], found.items(), strict=True):
        for name, singular in values.items():
            kept = singular[singular > THRESHOLD / 10]
            axis.plot(range(1, len(kept) + 1), kept, label=f"{name}: rank {rank(singular)}")
        axis.axhline(THRESHOLD, color="grey", linestyle=":")
        axis.set(yscale="log", xlabel="index", ylabel="singular value", title=data)
        axis.grid(alpha=0.3)
        axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="+", type=Path, help="directory of a finished run of GALiT")
    parser.add_argument("--out", default="galit_ranks.csv", help="file name below results/")
    parser.add_argument("--max_nodes", type=int, default=6000, help="the decomposition takes O(N^3)")
    args = parser.parse_args()
    found: dict[str, dict[str, Tensor]] = {}
    rows: list[tuple[object, ...]] = []
    for run in args.run:
        data, encoder, values = describe(run, args.max_nodes)
        found[data] = values
        named = ("hidden_channels", "num_heads", "similarity", "norm", "alpha")
        settings = " ".join(f"{name}={encoder.init_args[name]}" for name in named)
        num_nodes = len(values["A"])
        bound = rank_bound(encoder, num_nodes)
        for matrix, singular in values.items():
            highest = bound if matrix == "P" else num_nodes
            share = f"{effective_rank(singular):.1f}"
            rows.append((data, matrix, num_nodes, rank(singular), share, highest, settings, commit()))
            sys.stdout.write(f"{data} {matrix}: rank {rank(singular)} of {num_nodes}, effective {share}\n")
    with (RESULTS / args.out).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    plot(found, FIGURES / "galit-ranks.png")


if __name__ == "__main__":
    main()
