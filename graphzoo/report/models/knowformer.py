"""The entities that the answer of a fact attends to, by name (KnowFormer's Fig. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from graphzoo.errors import UsageError
from graphzoo.report.content import Block, Note, Picture
from graphzoo.report.style import FAINT, colors_of, name_rows, new_figure, short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from graphzoo.inference import KGModel


_TOP, _FACTS = 10, 3


def attended_blocks(model: KGModel, facts: Sequence[tuple[str, str, str]], prefix: str) -> list[Block]:
    """A picture per fact of the entities that its answer attends to most.

    Args:
        model: The model.
        facts: Facts (head, relation, tail) by name; empty takes some of the test split.
        prefix: What names of pictures begin with.

    Raises:
        UsageError: if a name is unknown, or the encoder has no attention layer.
    """
    graph = model.graph
    entities, relations = model.vocabularies
    if facts:
        triples = [(entities.find(h), relations.find(r), entities.find(t)) for h, r, t in facts]
    else:
        triples = _some_facts(model)
    if not triples:
        return [Note("The graph has no test facts to look at; name one with --fact HEAD RELATION TAIL.")]
    blocks: list[Block] = []
    for number, (head, relation, tail) in enumerate(triples, start=1):
        weights = _attention(model, head, relation, tail)
        own = float(weights[tail])
        # The answer attends mostly to itself; the picture shows the rest.
        uniform = max(1 - own, 1e-12) / max(1, graph.num_entities - 1)
        others = weights.clone()
        others[tail] = -1
        best = others.topk(min(_TOP, graph.num_entities - 1))
        names = [entities.shown(entity) for entity in best.indices.tolist()]
        marks = ["head" if entity == head else "" for entity in best.indices.tolist()]
        values = [value / uniform for value in best.values.tolist()]
        answer = entities.shown(tail)
        title = f"({entities.shown(head)}, {relations.shown(relation)}, ?)"
        values_text = ", ".join(f"{name} {value:.2f}" for name, value in zip(names, values, strict=True))
        caption = (
            f"Answer: {answer}. The entities that it attends to most in the last layer, as the mean over "
            f"heads. The answer itself has {100 * own:.0f}% and is left out; 1 is an equal share of the rest."
        )
        most = f"{len(names)} entities that {answer}, the answer to {title}, attends to most"
        alt = f"Bars of the {most}: {values_text}."
        blocks.append(
            Picture(f"{prefix}-attended-{number}", title, alt, partial(_draw, names, values, marks), caption)
        )
    return blocks


def _some_facts(model: KGModel) -> list[tuple[int, int, int]]:
    """Some test facts, if possible of different relations; they do not depend on the seed of a run."""
    test = model.graph.test
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(test), generator=generator).tolist()
    drawn = [tuple(test[place].tolist()) for place in order[:200]]
    first = {relation: fact for fact in reversed(drawn) for relation in [fact[1]]}
    kept = [fact for fact in drawn if first[fact[1]] == fact]
    rest = [fact for fact in drawn if fact not in kept]
    return [(h, r, t) for h, r, t in [*kept, *rest][:_FACTS]]


def _attention(model: KGModel, head: int, relation: int, tail: int) -> torch.Tensor:
    """Weights [N] with which the answer attends to all entities in the last layer; a known fact is hidden."""
    place, device = model._default, model.task.device
    one = [torch.tensor([number], device=device) for number in (head, relation, tail)]
    weights = model.task.attention(place.messages, *one)
    if not weights.numel():
        raise UsageError(f"{type(model.task.encoder).__name__} has no attention layer")
    return weights[-1, :, 0].double().cpu()


def _draw(names: Sequence[str], values: Sequence[float], marks: Sequence[str]) -> Figure:
    figure = new_figure(0.65 + 0.2 * len(names))
    axes = figure.add_subplot()
    head, other = colors_of(["head", "tail", "other"])[::2]  # not the colour of tails in other pictures
    tones = [head if mark else other for mark in marks]
    axes.barh(range(len(names)), values, 0.72, color=tones)
    short = [short_name(name, 30) for name in names]
    name_rows(axes, [f"{name} (head)" if mark else name for name, mark in zip(short, marks, strict=True)])
    axes.axvline(1, color=FAINT, linestyle=":")
    axes.set_xlabel("weight, in equal shares")
    return figure
