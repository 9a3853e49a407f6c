"""A trained knowledge-graph model in terms of names: top-k answers, scores of given facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphzoo.datasets import KnowledgeGraph
from graphzoo.datasets.files.text import is_missing, warn
from graphzoo.datasets.kg.triples import triples_from_table
from graphzoo.errors import UsageError, check_choice, check_whole
from graphzoo.inference.explain import Direction, Explanation, explain_fact
from graphzoo.inference.forks import heed_fork
from graphzoo.inference.graphs import GraphSource, PredictionGraph, load_graph, stored_graph
from graphzoo.inference.names import Vocabulary, plain_item
from graphzoo.inference.queries import encode_facts, read_facts
from graphzoo.inference.scoring import FilterKnown, Queries, batches_of, judge_facts, top_answers
from graphzoo.inference.sources import refuse_others
from graphzoo.inference.trained import TrainedModel, table_parts
from graphzoo.layers.noise import in_evaluation
from graphzoo.tasks import KGCompletion

# Facts that are scored before their rows are written; equal queries among them are scored once.
_FACTS = 50_000


class KGModel(TrainedModel):
    """A trained `KGCompletion` task together with the graph it answers on; `graphzoo.load` makes one.

    Args:
        task: The task with its weights.
        graph: Facts and names; its relations are numbered as in training, unless the encoder takes any.

    Raises:
        UsageError: (a ValueError) if the graph has another number of relations than the model.
    """

    task: KGCompletion

    def __init__(self, task: KGCompletion, graph: KnowledgeGraph) -> None:
        spec = task.spec
        free = spec is not None and task.query_encoder.any_relations
        if not free and (spec is None or spec.num_relations != graph.num_relations):
            known = "none" if spec is None else spec.num_relations
            raise UsageError(
                f"the graph has {graph.num_relations} relations, the model was built for {known}"
            )
        self.task = task.eval()
        self._default = PredictionGraph(graph, task)
        self._own_relations = None if free else graph.relations

    @classmethod
    def of_checkpoint(
        cls, described: dict[str, Any], task: KGCompletion, run: Path | None, data: Any
    ) -> KGModel:
        """The task with the graph of its run, or with `data`."""
        refuse_others(data, KnowledgeGraph, "the model completes knowledge graphs")
        relations = None if task.query_encoder.any_relations else tuple(described["relations"])
        facts = stored_graph(run) if data is None and run is not None else data
        return cls(task, load_graph(facts, relations))

    @property
    def graph(self) -> KnowledgeGraph:
        """The graph that queries are answered on."""
        return self._default.knowledge_graph

    @property
    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """The names of entities and relations."""
        return self._default.entities, self._default.relations

    def predict(
        self,
        head: str | Sequence[str | None] | None = None,
        relation: str | Sequence[str] | None = None,
        tail: str | Sequence[str | None] | None = None,
        *,
        k: int = 10,
        filter_known: FilterKnown = "mark",
        candidates: Sequence[str] | None = None,
        graph: GraphSource | None = None,
        batch_size: int | None = None,
    ) -> pd.DataFrame:
        """The k best answers to each query: tails for (head, relation, ?), heads for (?, relation, tail).

        Args:
            head: Name (or unique label) of the head, or one for each query; None where the head is asked for.
            relation: Name of the relation, or one for each query.
            tail: As `head`.
            k: Answers per query; `--top-k` of the command.
            filter_known: What to do with facts of the graph (training, validation or test): "mark" them in
                the column `known`, "drop" them, or "keep" them without looking them up. `--known` of the
                command; `LinkModel.predict` calls it `known`.
            candidates: Answer with these entities only.
            graph: Another graph to answer on, see `graphzoo.load`.
            batch_size: Queries scored at a time; None chooses by memory.

        Returns:
            One row per answer, queries in the given order, best answer first. Columns: `head`, `relation`,
            `tail`; `direction`, "tail" or "head", whichever was asked for; `rank`, 1 is best, equal scores in
            the order of the entities; `score`, the logit; `probability`, what the training loss makes of it
            (softmax over all candidates, or sigmoid), not calibrated; `known` unless "keep"; `label`, the
            answer's, and `relation_label`, if the graph has labels of entities or of relations. Scores of
            different queries or models cannot be compared. In neighbourhoods, entities outside have a
            score that only orders them, below all others; the nearest of the `candidates` have logits.

        Raises:
            UsageError: (a ValueError) for unknown names, naming the nearest ones, and for queries that give
                both or neither of head and tail.

        >>> model.predict(head="Virus", relation="causes", k=3)  # doctest: +SKIP
        """
        options: dict[str, Any] = {"k": k, "filter_known": filter_known, "candidates": candidates}
        tables = self.predict_batches(head, relation, tail, graph=graph, batch_size=batch_size, **options)
        return pd.concat(list(tables), ignore_index=True)

    def predict_batches(
        self,
        head: str | Sequence[str | None] | None = None,
        relation: str | Sequence[str] | None = None,
        tail: str | Sequence[str | None] | None = None,
        *,
        graph: GraphSource | None = None,
        **options: Any,
    ) -> Iterator[pd.DataFrame]:
        """As `predict`, one table per batch of queries, so that any number of queries takes bounded memory.

        Names are checked before the first batch. Without queries there is one empty table.
        """
        place = self._place(graph)
        return self.answer(self._encode(place, head, relation, tail), place=place, **options)

    def answer(
        self,
        queries: Queries,
        *,
        k: int = 10,
        filter_known: FilterKnown = "mark",
        candidates: Sequence[str] | None = None,
        batch_size: int | None = None,
        place: PredictionGraph | None = None,
    ) -> Iterator[pd.DataFrame]:
        """As `predict_batches`, for queries that are ids already."""
        place = place or self._default
        check_whole(at_least=1, k=k)
        check_choice("filter_known", filter_known, FilterKnown)
        num_entities = place.knowledge_graph.num_entities
        allowed = torch.ones(num_entities, dtype=torch.bool, device=self.task.device)
        if candidates is not None:
            listed = candidates.tolist() if hasattr(candidates, "tolist") else candidates
            names = [listed] if isinstance(listed, str) else list(listed)
            if not names:
                raise UsageError("candidates is empty; leave it out to consider every entity")
            allowed.zero_()
            allowed[place.entities.find_all(names)] = True
        batches = batches_of(queries, num_entities, batch_size)

        def tables() -> Iterator[pd.DataFrame]:
            options: dict[str, Any] = {"allowed": allowed, "k": k, "filter_known": filter_known}
            options["is_chosen"] = candidates is not None
            for batch in batches:
                columns = top_answers(self.task, place, batch, **options)
                yield _answer_table(place.knowledge_graph, batch, columns, with_known=filter_known != "keep")

        return tables()

    def score(
        self, triples: Any, *, graph: GraphSource | None = None, batch_size: int | None = None
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Scores of given facts: the logit of the tail as an answer to (head, relation, ?).

        Args:
            triples: (head, relation, tail) by name: a list of them, an array [n, 3], a DataFrame, or the path
                of a file.
            graph: Another graph, see `graphzoo.load`.
            batch_size: Distinct queries scored at a time; None chooses by memory.

        Returns:
            [n], float32, in the order of the triples.

        Raises:
            UsageError: (a ValueError) for unknown names, naming the nearest ones.
        """
        return self.score_table(triples, graph=graph, batch_size=batch_size)["score"].to_numpy()

    def score_table(
        self, triples: Any, *, graph: GraphSource | None = None, batch_size: int | None = None
    ) -> pd.DataFrame:
        """As `score`, with what can be compared between queries beside it.

        Returns:
            One row per triple: `head`, `relation`, `tail`, `score`, `probability`, `rank` (of the tail among
            all entities but the other known answers, ties in the middle, as in evaluation), `known`.
        """
        place = self._place(graph)
        if isinstance(triples, str | PathLike):
            facts = read_facts(Path(triples), place.entities, place.relations)
        else:
            facts = triples_from_table(triples)
            for notice in facts.notices:
                warn(notice)
        ids = encode_facts(facts, place.entities, place.relations)
        return pd.concat(list(self.judge(ids, batch_size=batch_size, place=place)), ignore_index=True)

    def judge(
        self, triples: Tensor, *, batch_size: int | None = None, place: PredictionGraph | None = None
    ) -> Iterator[pd.DataFrame]:
        """As `score_table`, for triples [3, n] that are ids already, some thousand rows at a time."""
        place = place or self._default
        graph = place.knowledge_graph
        entities, relations = _name_array(graph.entities), _name_array(graph.relations)
        for facts in torch.split(triples, _FACTS, dim=1):
            columns = judge_facts(self.task, place, facts, batch_size=batch_size)
            for part in table_parts(facts.shape[1]):
                head, relation, tail = facts[:, part].numpy()
                names = {"head": entities[head], "relation": relations[relation], "tail": entities[tail]}
                table = pd.DataFrame({**names, **{name: value[part] for name, value in columns.items()}})
                yield table.astype(dict.fromkeys(names, "str"))

    def explain(
        self,
        head: str,
        relation: str,
        tail: str,
        *,
        direction: Direction = "tail",
        k: int = 5,
        max_length: int = 3,
        graph: GraphSource | None = None,
    ) -> Explanation:
        """Explain the score of a fact by the facts, paths and attended entities that contribute to it.

        The weight of a fact is the derivative of the score with respect to the weight of its messages in all
        layers. The fact itself and its inverse are hidden if the graph contains them.

        Args:
            head: Name (or unique label) of the head.
            relation: Name of the relation.
            tail: Name (or unique label) of the tail.
            direction: Which score is explained: that of "tail" as an answer to (head, relation, ?), or that
                of "head" as an answer to (?, relation, tail).
            k: Largest number of paths, of facts, and of attended entities in each layer.
            max_length: Largest number of facts in a path.
            graph: Another graph, see `graphzoo.load`.

        Returns:
            See `Explanation`; `print` shows it, `to_table` makes one table of it.

        Raises:
            UsageError: (a ValueError) for unknown names, sizes below 1, and encoders without explanations.

        >>> print(model.explain("steroid", "interacts_with", "enzyme", k=3))  # doctest: +SKIP
        """
        place = self._place(graph)
        ids = [place.entities.find(head), place.relations.find(relation), place.entities.find(tail)]
        triples = torch.tensor(ids, dtype=torch.int64)[:, None]
        return next(self.explanations(triples, [direction], k=k, max_length=max_length, place=place))

    def explanations(
        self,
        triples: Tensor,
        directions: Sequence[Direction] | None = None,
        *,
        k: int = 5,
        max_length: int = 3,
        place: PredictionGraph | None = None,
    ) -> Iterator[Explanation]:
        """As `explain`, for triples [3, n] that are ids already, one after the other; None: all of tails."""
        check_whole(at_least=1, k=k, max_length=max_length)
        place = place or self._default
        asked = directions or ["tail"] * triples.shape[1]
        for direction in set(asked):
            check_choice("direction", direction, ("tail", "head"))
        for (head, relation, tail), direction in zip(triples.t().tolist(), asked, strict=True):
            ids = (head, relation, tail)
            with in_evaluation(self.task):
                found = explain_fact(self.task, place, ids, direction, k=k, max_length=max_length)
            yield found

    def _place(self, graph: GraphSource | None) -> PredictionGraph:
        heed_fork(depth=3)
        if graph is None:
            return self._default
        if isinstance(graph, KnowledgeGraph):  # frozen: the same is not even renumbered again

            def make() -> tuple[KnowledgeGraph, PredictionGraph]:
                return graph, PredictionGraph(load_graph(graph, self._own_relations), self.task)

            # kept with what was given, whose id is another's no sooner
            _, kept = self._kept(id(graph), make)
            return kept
        facts = load_graph(graph, self._own_relations)  # again: a list or a file may hold others by now
        key = (facts.fingerprint, facts.entity_labels, facts.relation_labels)
        return self._kept(key, lambda: PredictionGraph(facts, self.task))

    def _encode(self, place: PredictionGraph, head: Any, relation: Any, tail: Any) -> Queries:
        """Names to directed queries; a single value stands for every query."""
        if relation is None:
            raise UsageError("relation is missing; predict asks for heads or tails of one relation")
        columns = {"head": plain_item(head), "relation": plain_item(relation), "tail": plain_item(tail)}
        lists = {
            name: list(map(plain_item, value.tolist() if hasattr(value, "tolist") else value))
            for name, value in columns.items()
            if isinstance(value, Iterable) and not isinstance(value, str)
        }
        lengths = {len(value) for value in lists.values()}
        if len(lengths) > 1:
            shown = ", ".join(f"{name} {len(value)}" for name, value in lists.items())
            raise UsageError(f"lists of queries must have one length, got {shown}")
        length = lengths.pop() if lengths else 1
        rows = zip(*(lists.get(name, [value] * length) for name, value in columns.items()), strict=True)
        entity, directed = [], []
        for number, (h, r, t) in enumerate(rows):
            if _is_missing(h) == _is_missing(t):
                given = "neither" if _is_missing(h) else "both"
                where = f"query {number}: " if lists else ""
                raise UsageError(f"{where}give either head or tail, got {given}; for given facts use score()")
            entity.append(place.entities.find(t if _is_missing(h) else h))
            directed.append(place.relations.find(r) + len(place.relations) * _is_missing(h))
        return Queries(torch.tensor(entity, dtype=torch.int64), torch.tensor(directed, dtype=torch.int64))


def _answer_table(
    graph: KnowledgeGraph, batch: Queries, columns: dict[str, Any], *, with_known: bool
) -> pd.DataFrame:
    entities = _name_array(graph.entities)
    relation = batch.relation.numpy()[columns["query"]]
    asked, answer = entities[batch.entity.numpy()[columns["query"]]], entities[columns["answer"]]
    asks_tail = relation < graph.num_relations
    names = {
        "head": np.where(asks_tail, asked, answer),
        "relation": _name_array(graph.relations)[relation % graph.num_relations],
        "tail": np.where(asks_tail, answer, asked),
        "direction": np.where(asks_tail, "tail", "head"),
    }
    table = pd.DataFrame({**names, **{name: columns[name] for name in ("rank", "score", "probability")}})
    if with_known:
        table["known"] = columns["known"]
    readable = {
        "label": (graph.entity_labels, answer),
        "relation_label": (graph.relation_labels, names["relation"]),
    }
    for column, (labels, named) in readable.items():
        if labels:
            table[column] = names[column] = _name_array([labels.get(name, "") for name in named])
    # An empty table must have the types of a full one.
    return table.astype(dict.fromkeys(names, "str"))


def _name_array(names: Sequence[str]) -> np.ndarray[Any, np.dtype[Any]]:
    return np.array(names, dtype=object)


def _is_missing(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, str) and value in ("", "?"))
