"""NBFNet with its published settings on the splits of KnowFormer's link tables.

    python -m benchmarks.link_nbfnet cora-link --split 0 --epochs 20 --out runs/nbfnet-cora-0

KnowFormer's paper uses the protocol of NBFNet (Zhu et al., NeurIPS 2021), whose published score for Cora is
0.956. This benchmark tests whether NBFNet reaches it on the splits here. The model has six layers of width
32, DistMult messages, principal neighbourhood aggregation (mean, maximum, minimum and deviation; each
plain, times the logarithm of the degree, and divided by it), layer norm and shortcuts, averages both
directions, and is trained with one random pair per link, Adam with rate 0.005, and batches of 64 links that
are hidden from themselves. An epoch of Cora takes about ten minutes of a core and 6 GiB. After each epoch,
scores are written to `OUT/epochs.csv` and the state to `OUT/state.pt`, from which the same command
continues. The test pairs are scored once, at the end, with the weights of the best validation AUROC. With
`--sums`, messages are summed, as in KnowFormer. Appends a line to results/link_nbfnet.csv. Reads
GRAPHZOO_DATA or the user's cache.
"""

import argparse
import csv
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common import RESULTS, commit
from graphzoo.datamodules.batches import permute
from graphzoo.datasets import LinkSplit, load_link_graph
from graphzoo.errors import UsageError
from graphzoo.sampling import NegativePairs

COLUMNS = (
    "data",
    "split_index",
    "aggregation",
    "seed",
    "epochs",
    "best_epoch",
    "val/auroc",
    "test/auroc",
    "test/ap",
    "commit",
)
CHANNELS, LAYERS, BATCH, RATE = 32, 6, 64, 5e-3
LINKS_AT_ONCE = 32  # part of a batch that is computed at once; it limits memory only
EPS = 1e-6

Array = NDArray[Any]


@numba.njit(fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def _reduce(x: Array, boundary: Array, indptr: Array, indices: Array, out: Array) -> tuple[Array, Array]:
    """Write mean, maximum, minimum and deviation of each node's messages and boundary to `out`.

    x and boundary are [N, B, D], out is [N, B, 4 * D]. Returns the numbers of the messages that are maximum
    and minimum, [N, B, D]; -1 is the boundary.
    """
    num_nodes, width, channels = x.shape
    at_most = np.full(x.shape, -1, np.int16)
    at_least = np.full(x.shape, -1, np.int16)
    for node in range(num_nodes):
        first, last = indptr[node], indptr[node + 1]
        share = np.float32(1 / (last - first + 1))
        for b in range(width):
            most, least = out[node, b, channels : 2 * channels], out[node, b, 2 * channels : 3 * channels]
            mean, square = out[node, b, :channels], out[node, b, 3 * channels :]
            for f in range(channels):
                own = boundary[node, b, f]
                mean[f] = own
                square[f] = own * own
                most[f] = own
                least[f] = own
        for edge in range(first, last):
            place = np.int16(edge - first)
            source = indices[edge]
            for b in range(width):
                most, least = out[node, b, channels : 2 * channels], out[node, b, 2 * channels : 3 * channels]
                mean, square = out[node, b, :channels], out[node, b, 3 * channels :]
                for f in range(channels):
                    value = x[source, b, f]
                    mean[f] += value
                    square[f] += value * value
                    above = value > most[f]
                    most[f] = value if above else most[f]
                    at_most[node, b, f] = place if above else at_most[node, b, f]
                    below = value < least[f]
                    least[f] = value if below else least[f]
                    at_least[node, b, f] = place if below else at_least[node, b, f]
        for b in range(width):
            mean, square = out[node, b, :channels], out[node, b, 3 * channels :]
            for f in range(channels):
                mean[f] *= share
                variance = square[f] * share - mean[f] * mean[f]
                square[f] = np.sqrt(max(variance, np.float32(EPS)))
    return at_most, at_least


@numba.njit(fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def _spread(
    x: Array,
    boundary: Array,
    indptr: Array,
    indices: Array,
    out: Array,
    at_most: Array,
    at_least: Array,
    grad: Array,
) -> tuple[Array, Array]:
    """Gradients of messages and boundary, [N, B, D] each, from the gradient of the output of `_reduce`."""
    num_nodes, width, channels = x.shape
    of_x, of_boundary = np.zeros_like(x), np.zeros_like(x)
    of_sum, of_square = np.empty((width, channels), np.float32), np.empty((width, channels), np.float32)
    for node in range(num_nodes):
        first, last = indptr[node], indptr[node + 1]
        share = np.float32(1 / (last - first + 1))
        for b in range(width):
            mean, deviation = out[node, b, :channels], out[node, b, 3 * channels :]
            of_most = grad[node, b, channels : 2 * channels]
            of_least = grad[node, b, 2 * channels : 3 * channels]
            for f in range(channels):
                is_varied = deviation[f] * deviation[f] > np.float32(EPS * 1.0001)
                of_variance = (
                    grad[node, b, 3 * channels + f] / (2 * deviation[f]) if is_varied else np.float32(0)
                )
                of_square[b, f] = 2 * share * of_variance
                of_sum[b, f] = share * (grad[node, b, f] - 2 * mean[f] * of_variance)
                own = of_sum[b, f] + boundary[node, b, f] * of_square[b, f]
                own += of_most[f] if at_most[node, b, f] == -1 else np.float32(0)
                own += of_least[f] if at_least[node, b, f] == -1 else np.float32(0)
                of_boundary[node, b, f] = own
        for edge in range(first, last):
            place = np.int16(edge - first)
            source = indices[edge]
            for b in range(width):
                of_most = grad[node, b, channels : 2 * channels]
                of_least = grad[node, b, 2 * channels : 3 * channels]
                for f in range(channels):
                    part = of_sum[b, f] + x[source, b, f] * of_square[b, f]
                    part += of_most[f] if at_most[node, b, f] == place else np.float32(0)
                    part += of_least[f] if at_least[node, b, f] == place else np.float32(0)
                    of_x[source, b, f] += part
    return of_x, of_boundary


class Reduce(torch.autograd.Function):
    """Mean, maximum, minimum and deviation of the messages to each node, concatenated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, boundary: Tensor, graph: "Graph") -> Tensor:
        out = x.new_empty(*x.shape[:2], 4 * x.shape[2])
        arrays = (x.detach().numpy(), boundary.detach().numpy(), graph.indptr, graph.indices, out.numpy())
        ctx.arrays = (*arrays, *_reduce(*arrays))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        of_x, of_boundary = _spread(*ctx.arrays, grad.contiguous().numpy())
        return torch.from_numpy(of_x), torch.from_numpy(of_boundary), None


@dataclass
class Graph:
    """Edges and self-loops in CSR form, by target. Nodes are sorted by degree."""

    indptr: Array
    indices: Array
    place: Tensor  # new number of each node, [N]
    num_of: list[int]  # number of nodes with each degree
    scales: list[float]  # scale of each degree
    size: Tensor  # number of messages of each node, [N, 1, 1]

    @classmethod
    def of(cls, edges: Tensor, num_nodes: int) -> "Graph":
        """A graph from edges [2, E] in both directions."""
        degree = torch.bincount(edges[1], minlength=num_nodes) + 1
        place = degree.argsort(stable=True).argsort()
        source, target = place[torch.cat([edges, torch.arange(num_nodes).expand(2, -1)], dim=1)]
        found, num_of = degree.unique(return_counts=True)
        indptr = F.pad(found.repeat_interleave(num_of).cumsum(0), (1, 0))
        scales = (found + 1).log() / (degree + 1).log().mean()
        indices = source[target.argsort(stable=True)]
        size = (found + 1).repeat_interleave(num_of).float()[:, None, None]
        return cls(indptr.numpy(), indices.numpy(), place, num_of.tolist(), scales.tolist(), size)


class Layer(nn.Module):
    """One iteration; `sums` replaces the four reductions with three scales by a sum of messages."""

    def __init__(self, *, sums: bool) -> None:
        super().__init__()
        self.sums = sums
        self.relation = nn.Parameter(torch.randn(CHANNELS))
        self.linear = nn.Linear((2 if sums else 13) * CHANNELS, CHANNELS)
        self.norm = nn.LayerNorm(CHANNELS)

    def forward(self, x: Tensor, boundary: Tensor, graph: Graph) -> Tensor:
        """New states [N, B, D] from states and boundary, both [N, B, D]."""
        reduced = Reduce.apply(x * self.relation, boundary, graph)
        if self.sums:
            total = reduced[..., :CHANNELS] * graph.size
            return self.norm(self.linear(torch.cat([x, total], dim=-1))).relu()  # type: ignore[no-any-return]
        own, plain, times, divided = self.linear.weight.split([CHANNELS, *[4 * CHANNELS] * 3], dim=1)
        # Nodes of one degree share their scales, so one linear map replaces three copies of `reduced`.
        parts = [
            F.linear(part, plain + scale * times + divided / max(scale, 1e-2))
            for part, scale in zip(reduced.split(graph.num_of), graph.scales, strict=True)
        ]
        return F.layer_norm(
            F.linear(x, own, self.linear.bias) + torch.cat(parts),
            (CHANNELS,),
            self.norm.weight,
            self.norm.bias,
        ).relu()


class NBFNet(nn.Module):
    """Scores of pairs by generalised Bellman-Ford iterations from both ends."""

    def __init__(self, *, sums: bool = False) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(CHANNELS))
        self.layers = nn.ModuleList(Layer(sums=sums) for _ in range(LAYERS))
        self.score = nn.Sequential(
            nn.Linear(2 * CHANNELS, 2 * CHANNELS), nn.ReLU(), nn.Linear(2 * CHANNELS, 1)
        )

    def forward(self, edges: Tensor, num_nodes: int, u: Tensor, v: Tensor) -> Tensor:
        """Scores [B] of pairs (u, v) [B], from edges [2, E] in both directions."""
        graph = Graph.of(edges, num_nodes)
        sources, targets = graph.place[torch.cat([u, v])], graph.place[torch.cat([v, u])]
        batch = torch.arange(len(sources))
        query = self.query.expand(len(sources), -1)
        boundary = torch.zeros(num_nodes, len(sources), CHANNELS).index_put((sources, batch), query)
        x = boundary
        for layer in self.layers:
            x = x + layer(x, boundary, graph)
        there, back = torch.cat([x[targets, batch], query], dim=1).chunk(2)
        scores: Tensor = self.score((there + back) / 2).squeeze(-1)
        return scores


@torch.no_grad()
def _scores(model: NBFNet, edges: Tensor, num_nodes: int, split: LinkSplit) -> tuple[Array, Array]:
    pairs = torch.cat([split.positive, split.negative])
    label = (torch.arange(len(pairs)) < len(split.positive)).float()
    parts = [model(edges, num_nodes, *part.t()) for part in pairs.split(LINKS_AT_ONCE)]
    return label.numpy(), torch.cat(parts).numpy()


def train_epoch(
    model: NBFNet,
    optimizer: torch.optim.Optimizer,
    links: Tensor,
    negatives: NegativePairs,
    *,
    seed: int,
    epoch: int,
) -> float:
    """Train on every link once and return the mean loss."""
    order = permute(len(links), "order of nbfnet", seed, epoch)
    total = 0.0
    for number, chosen in enumerate(order.split(BATCH)):
        start = time.perf_counter()
        kept = torch.ones(len(links), dtype=torch.bool)
        kept[chosen] = False
        rest = links[kept].t()
        edges = torch.cat([rest, rest.flip(0)], dim=1)
        optimizer.zero_grad()
        for part in chosen.split(LINKS_AT_ONCE):
            others = negatives.sample(part, seed=seed, epoch=epoch).t()
            u, v = torch.cat([links[part], others]).t()
            label = (torch.arange(len(u)) < len(part)).float()
            score = model(edges, negatives.num_nodes, u, v)
            loss = F.binary_cross_entropy_with_logits(score, label) * len(part) / len(chosen)
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        if number % 10 == 0:
            seconds = time.perf_counter() - start
            sys.stdout.write(
                f"epoch {epoch} batch {number} mean loss {total / (number + 1):.4f} {seconds:.1f} s\n"
            )
            sys.stdout.flush()
    return total / (number + 1)


def run(name: str, split_index: int, seed: int, epochs: int, out: Path, *, sums: bool) -> list[float]:
    """Train; return number of epochs, best epoch, its validation AUROC, test AUROC and test AP."""
    graph = load_link_graph(name, protocol="nbfnet", split_index=split_index)
    edges = graph.edge_index("train")
    negatives = NegativePairs(edges, graph.num_nodes)
    torch.manual_seed(seed)
    model = NBFNet(sums=sums)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    asked = [name, split_index, seed, sums]
    state: dict[str, Any] = {"epoch": 0, "best": (0, 0.0), "asked": asked}
    out.mkdir(parents=True, exist_ok=True)
    if (out / "state.pt").exists():
        state = torch.load(out / "state.pt", weights_only=True)
        if state["asked"] != asked:
            raise UsageError(
                f"{out} holds a training of {state['asked']}, not of {asked}: give another --out"
            )
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for epoch in range(state["epoch"], epochs):
        start = time.perf_counter()
        loss = train_epoch(model, optimizer, graph.train, negatives, seed=seed, epoch=epoch)
        auroc = float(roc_auc_score(*_scores(model, edges, graph.num_nodes, graph.valid)))
        best = max(state["best"], (epoch, auroc), key=lambda one: one[1])
        if best[0] == epoch:
            state["best_model"] = {key: value.clone() for key, value in model.state_dict().items()}
        state |= {"epoch": epoch + 1, "best": best, "model": model.state_dict()}
        state |= {"optimizer": optimizer.state_dict()}
        torch.save(state, out / "state.new")
        (out / "state.new").replace(out / "state.pt")
        with (out / "epochs.csv").open("a", encoding="utf-8") as file:
            file.write(f"{epoch},{loss:.4f},{auroc:.4f},{time.perf_counter() - start:.0f}\n")
    model.load_state_dict(state["best_model"])
    label, score = _scores(model, edges, graph.num_nodes, graph.test)
    best, val_auroc = state["best"]
    test = roc_auc_score(label, score), average_precision_score(label, score)
    return [state["epoch"], best + 1, val_auroc, *map(float, test)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=["cora-link", "citeseer-link"])
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--sums", action="store_true", help="sum messages, as in KnowFormer")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    revision = commit()  # before the file is changed, which would make it "dirty"
    asked = options.data, options.split, options.seed, options.epochs, options.out
    if options.epochs < 1:
        parser.error("--epochs takes at least 1")
    try:
        done, best, *scores = run(*asked, sums=options.sums)
    except UsageError as error:
        parser.error(str(error))
    row = [options.data, options.split, "sum" if options.sums else "pna", options.seed, done, best]
    row += [f"{score:.4f}" for score in scores]
    path = RESULTS / "link_nbfnet.csv"
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerow([*row, revision])
    sys.stdout.write(" ".join(map(str, row)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
