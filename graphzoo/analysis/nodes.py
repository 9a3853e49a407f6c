"""Tables of a test of node classification: scores per class, confusion, states, worst and best nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphzoo.analysis.evaluation import Table
from graphzoo.metrics.classification import roc_auc

MOST_POINTS = 2_000
_FEW = 20
# A confusion matrix of more classes would be unreadable.
_MOST_CLASSES = 100


def sample_nodes(count: int, seed: int = 0, most: int = MOST_POINTS) -> Tensor:
    """A sample of at most `most` of the numbers 0..count-1, ascending, int64.

    It depends only on the seed; the global random state is neither read nor changed.
    """
    if count <= most:
        return torch.arange(count)
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator)[:most].sort().values


def project(states: Tensor) -> Tensor:
    """Project states [n, D] on their first two principal components, [n, 2], float64; deterministic.

    >>> project(torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]])).shape
    torch.Size([3, 2])
    """
    points = np.zeros((states.shape[0], 2))
    centred = states.detach().double().cpu().numpy()
    centred = centred - centred.mean(axis=0, keepdims=True) if len(centred) else centred
    if centred.size:
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        directions = directions[:2]
        # The sign of a direction is arbitrary: make its largest component positive.
        sign = np.sign(np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], axis=1))
        points[:, : len(directions)] = centred @ (directions * np.where(sign == 0, 1, sign)).T
    return torch.from_numpy(points)


def node_tables(
    logits: Tensor,
    target: Tensor,
    class_names: Sequence[str],
    *,
    nodes: Sequence[str] = (),
    states: Tensor | None = None,
    sample: Tensor | None = None,
) -> tuple[Table, ...]:
    """Make the tables `classes`, `confusion`, `embedding`, `worst` and `best`.

    For several yes-no labels per node there is only `classes`, with the area under each label's ROC curve.

    Args:
        logits: Logits of the evaluated nodes, [T, C].
        target: Classes [T], int64, or yes-no labels [T, C], float, NaN if unknown.
        class_names: C names.
        nodes: Names of the evaluated nodes, [T]; empty leaves out the tables that name nodes.
        states: Input of the decoder for the sampled nodes, [S, D]; None leaves out `embedding`.
        sample: Positions of the sampled nodes among the evaluated ones, [S], int64.

    Returns:
        The tables; none if no node was evaluated.
    """
    logits, target = logits.detach().float().cpu(), target.cpu()
    if not len(target):
        return ()
    if target.dim() == 2:
        return (_labels(logits, target, class_names),)
    number, predicted = len(class_names), logits.argmax(1)
    counts = torch.bincount(target * number + predicted, minlength=number * number).view(number, number)
    tables = [_classes(counts, class_names)]
    if number <= _MOST_CLASSES:
        tables.append(_confusion(counts, class_names))
    if not nodes:
        return tuple(tables)
    if states is not None and sample is not None:
        names = [nodes[place] for place in sample.tolist()]
        tables.append(_embedding(states, names, class_names, target[sample], predicted[sample]))
    share = logits.double().softmax(1).gather(1, target[:, None]).squeeze(1)

    def named(order: Tensor) -> list[dict[str, Any]]:
        return [
            {
                "node": nodes[place],
                "class": class_names[int(target[place])],
                "predicted": class_names[int(predicted[place])],
                "probability": float(share[place]),
            }
            for place in order[:_FEW].tolist()
        ]

    worst, best = (torch.argsort(share, stable=True, descending=last) for last in (False, True))
    title = "Nodes whose class got the {} probability"
    tables.append(Table.of("worst", title.format("lowest"), "table", named(worst)))
    tables.append(Table.of("best", title.format("highest"), "table", named(best)))
    return tuple(tables)


def _labels(logits: Tensor, target: Tensor, class_names: Sequence[str]) -> Table:
    """The area under the ROC curve of every yes-no label."""
    areas = [roc_auc(score, label) for score, label in zip(logits.t(), target.t(), strict=True)]
    of_labels = {
        "class": list(class_names),
        "support": (target == 1).sum(0).tolist(),
        "auroc": torch.stack(areas).tolist(),
    }
    return Table.of("classes", "ROC-AUC of each label", "bars", of_labels, x="class", y=("auroc",))


def _classes(counts: Tensor, class_names: Sequence[str]) -> Table:
    """Precision, recall and F1 of every class, from the confusion [true, predicted]."""
    support, chosen, right = counts.sum(1), counts.sum(0), counts.diagonal().double()
    # The precision and F1 of a class that is never predicted are 0, as usual.
    of_classes = {
        "class": list(class_names),
        "support": support.tolist(),
        "precision": (right / chosen.clamp(min=1)).tolist(),
        "recall": (right / support.clamp(min=1)).tolist(),
        "f1": (2 * right / (chosen + support).clamp(min=1)).tolist(),
    }
    y = ("precision", "recall", "f1")
    return Table.of("classes", "Scores of each class", "bars", of_classes, x="class", y=y)


def _confusion(counts: Tensor, class_names: Sequence[str]) -> Table:
    """The number of nodes for each pair of true and predicted class."""
    cells = {
        "true": [name for name in class_names for _ in class_names],
        "predicted": list(class_names) * len(class_names),
        "nodes": counts.flatten().tolist(),
    }
    title = "Confusion: true class against predicted class"
    return Table.of("confusion", title, "matrix", cells, x="true", y=("predicted",), label="nodes")


def _embedding(
    states: Tensor, nodes: Sequence[str], class_names: Sequence[str], target: Tensor, predicted: Tensor
) -> Table:
    """The projected states of the sampled nodes."""
    points = project(states)
    shown = {
        "node": list(nodes),
        "x": points[:, 0].tolist(),
        "y": points[:, 1].tolist(),
        "class": [class_names[number] for number in target.tolist()],
        "predicted": [class_names[number] for number in predicted.tolist()],
    }
    title = "States of test nodes, first two principal components"
    return Table.of("embedding", title, "scatter", shown, x="x", y=("y",), label="class")
