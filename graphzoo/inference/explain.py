"""Explains the score of a fact by the facts, paths of facts and attended entities that contribute to it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from graphzoo.errors import UsageError
from graphzoo.inference.graphs import PredictionGraph
from graphzoo.inference.paths import best_paths
from graphzoo.sampling import edges_of_fact
from graphzoo.tasks import KGCompletion

Direction = Literal["tail", "head"]
EXPLANATION_COLUMNS = [
    "head", "relation", "tail", "direction", "score", "known", "kind", "number", "weight", "what",
]  # fmt: skip
"""Of a table of explanations; `kind` is path, fact or attended."""


def explanation_table(rows: Sequence[tuple[object, ...]]) -> pd.DataFrame:
    """A table with the columns `EXPLANATION_COLUMNS`; an empty one has the types of a full one."""
    types = {"score": "float64", "known": "bool", "number": "int64", "weight": "float64"}
    table = pd.DataFrame(rows, columns=EXPLANATION_COLUMNS)
    return table.astype({name: types.get(name, "str") for name in EXPLANATION_COLUMNS})


@dataclass(frozen=True)
class Explanation:
    """What contributes to the score of a fact.

    Weights are derivatives of the score: without the messages of a fact of weight 0.5, the score would be 0.5
    lower, to first order. Weights of different answers or models cannot be compared.

    Attributes:
        head: Name of the head.
        relation: Name of the relation.
        tail: Name of the tail.
        direction: Which end answered: "tail" to (head, relation, ?), "head" to (?, relation, tail).
        score: The logit of the answer without the fact itself in the graph.
        known: Whether the fact is a training fact; then it and its inverse are hidden. (In `predict`, facts
            of any split are known.)
        paths: Columns `weight`, `length` and `path`, best first: from the entity asked about to the answer.
            The weight is the mean over the path's steps, each in its own direction.
        facts: Columns `weight` (of both directions together), `head`, `relation`, `tail`, by absolute weight.
        attended: Columns `layer`, `weight` and `entity`: entities that the answer attends to, except itself,
            last layer first; empty for encoders without attention over entities.
        labels: Readable text of entities, shown behind names that differ from it.
        relation_labels: The same for relations.
    """

    head: str
    relation: str
    tail: str
    direction: Direction
    score: float
    known: bool
    paths: pd.DataFrame
    facts: pd.DataFrame
    attended: pd.DataFrame
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)
    relation_labels: Mapping[str, str] = field(default_factory=dict, repr=False)

    def lines(self) -> dict[str, list[tuple[float, str]]]:
        """Pairs (weight, text) by kind: "path", "fact" and "attended"."""
        facts = map(self._arrow, self.facts["head"], self.facts["relation"], self.facts["tail"])
        entities = zip(self.attended["entity"], self.attended["layer"], strict=True)
        texts = {
            "path": (self.paths, self.paths["path"]),
            "fact": (self.facts, facts),
            "attended": (self.attended, (f"{self._shown(name)}, layer {layer}" for name, layer in entities)),
        }
        return {
            kind: list(zip(table["weight"].tolist(), text, strict=True))
            for kind, (table, text) in texts.items()
        }

    def _shown(self, name: str) -> str:
        return _with_label(name, self.labels)

    def _arrow(self, head: str, relation: str, tail: str) -> str:
        return f"{self._shown(head)} -{_with_label(relation, self.relation_labels)}-> {self._shown(tail)}"

    def to_table(self) -> pd.DataFrame:
        """Everything in one table with the columns `EXPLANATION_COLUMNS`."""
        fact = (self.head, self.relation, self.tail, self.direction, self.score, self.known)
        rows = [
            (*fact, kind, number, weight, text)
            for kind, lines in self.lines().items()
            for number, (weight, text) in enumerate(lines, start=1)
        ]
        return explanation_table(rows)

    def _repr_html_(self) -> str:
        """For notebooks."""
        table = self.to_table()[["kind", "weight", "what"]]
        return f"<p>{html.escape(str(self).partition(chr(10))[0])}</p>{table.to_html(index=False)}"

    def __str__(self) -> str:
        """Readable text, some lines."""
        known = "; known, and hidden for this" if self.known else ""
        fact = self._arrow(self.head, self.relation, self.tail)
        shown = [f"{fact}  (score {self.score:.3f}{known})"]
        for kind, lines in self.lines().items():
            if lines:
                shown.append({"path": "paths", "fact": "facts"}.get(kind, kind) + ":")
                shown += [f"  {weight:+.3g}  {text}" for weight, text in lines]
        return "\n".join(shown)


def explain_fact(
    task: KGCompletion,
    place: PredictionGraph,
    fact: tuple[int, int, int],
    direction: Direction = "tail",
    *,
    k: int,
    max_length: int,
) -> Explanation:
    """See `KGModel.explain`; the fact is ids of head, (forward) relation and tail."""
    head, relation, tail = fact
    names, device = place.knowledge_graph, task.device
    asked, kind, answer = (
        (head, relation, tail) if direction == "tail" else (tail, relation + names.num_relations, head)
    )
    with torch.inference_mode(False):  # gradients are needed, whatever the caller is in
        graph = place.messages
        hidden = edges_of_fact(graph, asked, kind, answer)
        query = [torch.tensor([number], device=device) for number in (asked, kind, answer)]
        score, gradient = task.edge_gradients(graph, *query)
        attended = _attended(task, place, query, k)
    usable = (~hidden).nonzero().flatten().cpu()
    paths = best_paths(
        graph.edge_index.cpu()[:, usable].numpy(),
        gradient.double().cpu()[usable].numpy(),
        asked,
        answer,
        k=k,
        max_length=max_length,
    )
    chains = [(path.weight, len(path.edges), _chain(place, usable[list(path.edges)])) for path in paths]
    return Explanation(
        names.entities[head],
        names.relations[relation],
        names.entities[tail],
        direction,
        float(score),
        bool(hidden.any()),
        pd.DataFrame(chains, columns=["weight", "length", "path"]),
        _facts(place, gradient, k),
        attended,
        names.entity_labels,
        names.relation_labels,
    )


def _chain(place: PredictionGraph, edges: Tensor) -> str:
    """Edges one after another as `a -r-> b <-s- c`; an inverse edge points back."""
    graph, names = place.messages, place.knowledge_graph
    nodes, kinds = graph.edge_index[:, edges].tolist(), graph.edge_type[edges].tolist()
    shown = [_with_label(names.entities[node], names.entity_labels) for node in (nodes[0][0], *nodes[1])]
    text = shown[0]
    for kind, end in zip(kinds, shown[1:], strict=True):
        relation = _with_label(names.relations[kind % names.num_relations], names.relation_labels)
        text += (f" -{relation}-> " if kind < names.num_relations else f" <-{relation}- ") + end
    return str(text)


def _facts(place: PredictionGraph, gradient: Tensor, k: int) -> pd.DataFrame:
    """The facts whose two directions weigh most together."""
    names = place.knowledge_graph
    both = gradient.view(2, -1).sum(0)  # edge i is fact i, edge i + n its inverse
    chosen = both.abs().topk(min(k, both.numel())).indices.cpu()
    rows = [
        (float(both[i]), names.entities[h], names.relations[r], names.entities[t])
        for i, (h, r, t) in zip(chosen.tolist(), names.train[chosen].tolist(), strict=True)
        if both[i] != 0
    ]
    return pd.DataFrame(rows, columns=["weight", "head", "relation", "tail"])


def _attended(task: KGCompletion, place: PredictionGraph, query: list[Tensor], k: int) -> pd.DataFrame:
    """The entities, other than itself, that the answer of (head, relation, answer) attends to most."""
    names, rows = place.knowledge_graph.entities, []
    try:
        weights = task.attention(place.messages, *query)[..., 0]
    except UsageError:  # an encoder without such attention; paths and facts are there all the same
        weights = torch.empty(0, len(names))
    for layer in reversed(range(len(weights))):
        own = weights[layer].clone()
        own[query[2]] = -1
        best = own.topk(min(k, len(names) - 1))
        # entities outside a neighbourhood have no weight
        rows += [(layer + 1, w, names[i]) for w, i in zip(*map(Tensor.tolist, best), strict=True) if w > 0]
    return pd.DataFrame(rows, columns=["layer", "weight", "entity"])


def _with_label(name: str, labels: Mapping[str, str]) -> str:
    label = labels.get(name, "")
    plain, told = ("".join(filter(str.isalnum, text.lower())) for text in (name, label))
    return f"{name} ({label})" if label and plain != told else name
