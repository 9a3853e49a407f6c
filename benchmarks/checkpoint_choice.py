"""Compare two choices of the epoch: the best validation accuracy and the smallest validation loss.

    python -m benchmarks.checkpoint_choice galit cora citeseer pubmed --seeds 0,1,2,3,4

Test nodes are not used. Validation nodes are split into random halves, many times. One half chooses the epoch
by each rule, and the accuracy of the other half measures it.

Writes results/checkpoint_choice.csv: accuracies in %, means over halvings and seeds; `std` is that of
`difference` over seeds.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from dataclasses import replace
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common import RESULTS, commit
from graphzoo.tasks import NodeClassification
from graphzoo.training.launch import run_plan
from graphzoo.training.plan import make_plan

COLUMNS = ("model", "data", "seeds", "valid_nodes", "by_accuracy", "by_loss", "difference", "std", "commit")


class Kept(Callback):
    """Records loss and correctness of each validation node in every epoch."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []
        self.right: list[Tensor] = []

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *rest: Any
    ) -> None:
        if trainer.sanity_checking:
            return
        assert isinstance(pl_module, NodeClassification)
        x, edge_index, precomputed = pl_module._inputs(batch)
        logits = pl_module.decode(pl_module.node_encoder(x, edge_index, **precomputed))[batch.target]
        target = batch.y[batch.target]
        self.losses.append(F.cross_entropy(logits, target, reduction="none"))
        self.right.append((logits.argmax(1) == target).float())


def halved(losses: Tensor, right: Tensor, halvings: int) -> tuple[float, float]:
    """Accuracy in % of the half that does not choose, if accuracy and if loss chooses.

    Args:
        losses: Losses of each epoch and validation node, [E, V].
        right: 1 where the prediction is correct, [E, V].
        halvings: Number of random halvings.
    """
    generator = torch.Generator().manual_seed(0)
    sums = [0.0, 0.0]
    for _ in range(halvings):
        order = torch.randperm(right.shape[1], generator=generator)
        one, other = order.chunk(2)
        judged = right[:, other].mean(1)
        sums[0] += float(judged[right[:, one].mean(1).argmax()])
        sums[1] += float(judged[losses[:, one].mean(1).argmin()])
    return 100 * sums[0] / halvings, 100 * sums[1] / halvings


def measure(model: str, data: str, seeds: list[int], halvings: int) -> tuple[object, ...]:
    found, nodes = [], 0
    for seed in seeds:
        kept = Kept()
        with tempfile.TemporaryDirectory() as folder:
            words = ["--quiet", f"--model={model}", f"--data={data}", f"--seed={seed}"]
            words += [f"--run_dir={folder}/run"]
            plan = replace(make_plan("fit", words), tests=False, leaves_graph=False, callbacks=(kept,))
            if run_plan(plan):
                raise SystemExit(f"{model} on {data}, seed {seed}: failed")
        losses, right = torch.stack(kept.losses), torch.stack(kept.right)
        nodes = right.shape[1]
        found.append(halved(losses, right, halvings))
        print(f"{model} {data} seed {seed}: by accuracy {found[-1][0]:.2f}, by loss {found[-1][1]:.2f}")
    values = torch.tensor(found, dtype=torch.float64)
    means, differences = values.mean(0), values[:, 1] - values[:, 0]
    std = float(differences.std()) if len(seeds) > 1 else float("nan")
    figures = (*means.tolist(), float(differences.mean()), std)
    return (model, data, len(seeds), nodes, *(f"{value:.2f}" for value in figures), commit())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[0])
    parser.add_argument("--halvings", type=int, default=200)
    parser.add_argument("--out", default="checkpoint_choice.csv", help="file name below results/")
    args = parser.parse_args()
    path = RESULTS / args.out
    there = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    rows = [measure(args.model, data, args.seeds, args.halvings) for data in args.data]
    new = {row[:2] for row in rows}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(
            [row for row in there if tuple(row[:2]) not in new] + [list(map(str, row)) for row in rows]
        )
    print(path.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
