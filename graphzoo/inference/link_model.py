"""A trained model of links in terms of names: the best partners of nodes, scores of given pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from graphzoo.datamodules.features import FeatureTransform
from graphzoo.datasets import LinkGraph
from graphzoo.datasets.files.roots import cache_root
from graphzoo.datasets.files.text import warn
from graphzoo.datasets.link.named_pairs import NamedPairs, pairs_from_table
from graphzoo.errors import UsageError, check_choice, check_whole
from graphzoo.inference.forks import heed_fork
from graphzoo.inference.link_scoring import LinkPlace, best_partners
from graphzoo.inference.names import NodeNames
from graphzoo.inference.queries import UnknownNames
from graphzoo.inference.scoring import Columns, FilterKnown
from graphzoo.inference.sources import LinkGraphSource, load_link_source, refuse_others, stored_link_graph
from graphzoo.inference.trained import TrainedModel, table_parts
from graphzoo.ops import RelationalGraph
from graphzoo.tasks import LinkPrediction


class LinkModel(TrainedModel):
    """A trained `LinkPrediction` task together with a graph; `graphzoo.load` makes one.

    Messages pass along the same links as in `graphzoo test`: the training links, and on ogbl-collab the
    validation links, too. Scores are computed as in evaluation, with the run's settings of the sampler, its
    relabelings and directions. Links of all splits count as known.

    Args:
        task: The task with its weights.
        graph: Links, names and raw features.
        transform: Treatment of the raw features for the encoder; None if it uses none. Query encoders never
            use any.
        settings: Settings of the run that turn pairs into batches, see `LinkDataModule.describe_settings`.

    Raises:
        UsageError: (a ValueError) if the graph has other features than the model was trained with.
    """

    task: LinkPrediction

    def __init__(
        self,
        task: LinkPrediction,
        graph: LinkGraph,
        transform: FeatureTransform | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.task = task.eval()
        self.transform, self.settings = transform, dict(settings)
        # What a sigmoid makes of scores is a probability where they were learnt by binary cross-entropy.
        self._has_probability = type(task).losses is LinkPrediction.losses
        cache = cache_root() / "precomputed"  # of other graphs nothing is kept on disk
        self._default = LinkPlace(self.task, graph, transform, self.settings, cache)

    @classmethod
    def of_checkpoint(
        cls, described: dict[str, Any], task: LinkPrediction, run: Path | None, data: Any
    ) -> LinkModel:
        """The task with the graph of its run, or with `data`."""
        refuse_others(data, LinkGraph, "the model predicts links")
        features, settings = described.get("features"), described["data"]["settings"]
        seen = None if features is None else FeatureTransform.load(features, None)
        if data is None and run is not None:
            links = stored_link_graph(run)
        else:
            links = load_link_source(data, directed=settings.get("is_directed", False))
        return cls(task, links, seen, settings)

    @property
    def graph(self) -> LinkGraph:
        """The graph whose links are predicted when no other is given, with its raw features."""
        return self._default.graph

    def graph_inputs(self) -> tuple[Tensor | None, Tensor]:
        """Features as the encoder sees them, [N, F], dense or sparse CSR, and edges, [2, E]."""
        return self._default.graph_inputs()

    def relational_graph(self) -> RelationalGraph:
        """Edges as query encoders take them: links are of relation 0, and inverses of directed ones of 1."""
        return self._default.relational_graph()

    @property
    def names(self) -> NodeNames:
        """The names of the nodes."""
        return self._default.names

    def predict(
        self,
        node: str | int | None = None,
        nodes: Iterable[str | int] | None = None,
        *,
        k: int = 10,
        known: FilterKnown = "drop",
        candidates: Iterable[str | int] | None = None,
        data: LinkGraphSource | None = None,
        batch_size: int | None = None,
    ) -> pd.DataFrame:
        """The k best partners of a node, or of each of several.

        Args:
            node: Name of a node, or its number where nodes have no names.
            nodes: Several instead.
            k: Partners per node; `--top-k` of the command.
            known: What to do with links of the graph (training, validation or test): "drop" them, "mark" them
                in the column `known`, or "keep" them without looking them up. `--known` of the command;
                `KGModel.predict` calls it `filter_known`.
            candidates: Look for partners among these nodes only; None: among all.
            data: Another graph, see `graphzoo.load`.
            batch_size: Pairs (for query encoders: nodes) scored at a time; None chooses by memory.

        Returns:
            One row per partner, nodes in the given order, best partner first. Columns: `node`, `partner`;
            `rank`, 1 is best, equal scores in the order of the graph's nodes; `score`, the logit of the pair
            (node, partner); `probability`, its sigmoid, not calibrated, absent if the task has another loss;
            `known` unless "keep". Of a directed graph the links from `node` to `partner` are meant.

        Raises:
            UsageError: (a ValueError) for unknown nodes, naming the nearest ones.

        >>> model.predict("a7", k=3)  # doctest: +SKIP
        """
        options: dict[str, Any] = {"k": k, "known": known, "candidates": candidates, "batch_size": batch_size}
        return pd.concat(list(self.predict_batches(node, nodes, data=data, **options)), ignore_index=True)

    def predict_batches(
        self,
        node: str | int | None = None,
        nodes: Iterable[str | int] | None = None,
        *,
        k: int = 10,
        known: FilterKnown = "drop",
        candidates: Iterable[str | int] | None = None,
        data: LinkGraphSource | None = None,
        batch_size: int | None = None,
    ) -> Iterator[pd.DataFrame]:
        """As `predict`, some nodes at a time, so that any number of them takes bounded memory.

        Names are checked before the first table. Without nodes there is one empty table.
        """
        if (node is None) == (nodes is None):
            raise UsageError(
                "predict takes one node or several nodes=[...]\n"
                "For the partners of all nodes give nodes=range(N), or all names"
            )
        check_whole(at_least=1, k=k, batch_size=batch_size)
        check_choice("known", known, FilterKnown)
        place = self._place(data)
        asked = place.names.find(node if nodes is None else nodes)  # type: ignore[arg-type]
        if candidates is None:
            allowed = torch.arange(place.graph.num_nodes)
        else:
            allowed = torch.unique(place.names.find(candidates))
            if not allowed.numel():
                raise UsageError("candidates is empty; leave it out to consider every node")

        def tables() -> Iterator[pd.DataFrame]:
            for columns in best_partners(place, asked, allowed, k=k, known=known, batch_size=batch_size):
                if known == "keep":
                    del columns["known"]
                yield self._table(place, columns, ("node", "partner"))

        return tables()

    def score(
        self, pairs: Any, *, data: LinkGraphSource | None = None, batch_size: int | None = None
    ) -> pd.DataFrame:
        """Scores of given pairs.

        Args:
            pairs: (source, target) by name or number: a list, an array [n, 2], a DataFrame (columns source
                and target, or two of any name), or the path of a file.
            data: Another graph, see `graphzoo.load`.
            batch_size: See `predict`.

        Returns:
            One row per pair in the given order: `source`, `target`, `score`, `probability`, `known`; see
            `predict`.

        Raises:
            UsageError: (a ValueError) for unknown nodes, naming the nearest ones, and for a node paired with
                itself.
        """
        tables = self.score_batches(pairs_from_table(pairs), data=data, batch_size=batch_size)
        return pd.concat(list(tables), ignore_index=True)

    def score_batches(
        self,
        pairs: NamedPairs,
        *,
        data: LinkGraphSource | None = None,
        batch_size: int | None = None,
        skips: bool = False,
    ) -> Iterator[pd.DataFrame]:
        """As `score`, some ten thousand pairs at a time; names are checked before the first table.

        With `skips`, pairs of unknown nodes are left out with a warning, unless none would be left.
        """
        check_whole(at_least=1, batch_size=batch_size)
        place = self._place(data)
        for notice in pairs.notices:
            warn(notice)
        index = _encode_pairs(pairs, place.names, skips)

        def tables() -> Iterator[pd.DataFrame]:
            for part in (index[part] for part in table_parts(len(index))):
                score = place.score(part, batch_size, brings=True)
                source, target = part.unbind(1)
                columns = {
                    "source": source.numpy(),
                    "target": target.numpy(),
                    "score": score.numpy(),
                    "probability": score.sigmoid().numpy(),
                    "known": place.is_known(part).numpy(),
                }
                yield self._table(place, columns, ("source", "target"))

        return tables()

    def _place(self, data: LinkGraphSource | None) -> LinkPlace:
        heed_fork(depth=3)
        if data is None:
            return self._default
        graph = load_link_source(data, directed=self.graph.is_directed)
        return self._kept(
            (graph.fingerprint, graph.feature_names),
            lambda: LinkPlace(self.task, graph, self.transform, self.settings),
        )

    def _table(self, place: LinkPlace, columns: Columns, nodes: tuple[str, str]) -> pd.DataFrame:
        """Numbers of nodes become names, where there are any."""
        if not self._has_probability:
            del columns["probability"]
        names = {name: place.names.of(torch.from_numpy(columns[name])) for name in nodes}
        table = pd.DataFrame({**columns, **names})
        # An empty table must have the types of a full one.
        return table if place.names.are_numbers else table.astype(dict.fromkeys(nodes, "str"))


def _encode_pairs(pairs: NamedPairs, nodes: NodeNames, skips: bool) -> Tensor:
    """Numbers of all pairs, [n, 2], int64.

    Unknown nodes are refused with their lines and the nearest names, as is a node paired with itself.
    """
    problems = UnknownNames(pairs.origin, pairs.unit, skips=skips)
    lines = range(pairs.first_line, pairs.first_line + len(pairs.source))
    numbers = torch.stack([problems.encode(nodes, names, lines) for names in (pairs.source, pairs.target)], 1)
    kept = problems.check(problems.header_hint("call the columns source and target"))
    numbers = numbers[kept]
    if bool((itself := numbers[:, 0] == numbers[:, 1]).any()):
        row = int(kept[itself.nonzero()[0]])
        more = f" ({int(itself.sum()):,} such {pairs.unit}s)" if int(itself.sum()) > 1 else ""
        raise UsageError(
            f"{pairs.origin}, {pairs.unit} {lines[row]}: {pairs.source[row]!r} is paired with itself{more}; "
            "a link model cannot score that; drop such pairs"
        )
    return numbers
