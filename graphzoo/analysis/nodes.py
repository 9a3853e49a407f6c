"""Tables of a node classification's test: scores per class, confusion, states, worst and best nodes."""

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
# A matrix of more classes is nothing to look at.
_MOST_CLASSES = 100


def sample_nodes(count: int, seed: int = 0, most: int = MOST_POINTS) -> Tensor:
    """At most `most` of 0..count-1, ascending, the same for one seed, int64; no global generator is used."""
    if count <= most:
        return torch.arange(count)
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator)[:most].sort().values


def project(states: Tensor) -> Tensor:
    """The first two principal components of states [n, D]: [n, 2], float64, the same for the same states.

    >>> project(torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]])).shape
    torch.Size([3, 2])
    """
    points = np.zeros((states.shape[0], 2))
    centred = states.detach().double().cpu().numpy()
    centred = centred - centred.mean(axis=0, keepdims=True) if len(centred) else centred
    if centred.size:
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        directions = directions[:2]
        # A direction and its opposite explain as much: the largest part is made positive.
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
    """The tables `classes`, `confusion`, `embedding`, `worst` and `best`; none without a node.

    Several yes-no labels per node have `classes` alone, with the area under each label's ROC curve.

    Args:
        logits: Of the evaluated nodes, [T, C].
        target: Classes [T], int64, or yes-no labels [T, C], float, NaN where unknown.
        class_names: C names.
        nodes: Names of the judged nodes, [T]; empty leaves out all that names some.
        states: What the decoder sees of the sampled nodes, [S, D]; None leaves `embedding` out.
        sample: Which of the evaluated nodes the sampled ones are, [S], int64.
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
    # A class that is never predicted has no precision; as usual it counts as 0, as its F1 does.
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
    """How many nodes of each class got which one."""
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
    """The sampled nodes where their states lie."""
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
