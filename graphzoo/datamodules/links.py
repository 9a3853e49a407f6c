"""Link prediction for Lightning: message graphs without the evaluated links, pairs, sampled subgraphs."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor

from graphzoo.datamodules.base import Feed, GraphDataModule, Kind, loaded
from graphzoo.datamodules.batches import ResumableLoader, WholeBatchSampler, rank_and_world_size
from graphzoo.datamodules.features import FeatureTransform, TreatsFeatures, check_scaling
from graphzoo.datamodules.link_batches import (
    EvaluationPairs,
    PairSampler,
    TrainingPairs,
    mixed_order,
    sample_split,
)
from graphzoo.datamodules.mapped_graph import subgraph_sampler
from graphzoo.datamodules.neighbourhood_sizes import check_neighbourhoods, near_in_words, whole_in_words
from graphzoo.datasets import (
    LinkGraph,
    LinkSplit,
    link_graph_from_edges,
    link_graph_from_files,
    load_link_graph,
)
from graphzoo.datasets.link.own import check_direction, draws_links
from graphzoo.datasets.link.table import find_link_source
from graphzoo.encoders.any_edges import as_edge_index
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.errors import UsageError, check_whole
from graphzoo.sampling import NegativePairs, PairSubgraphSampler
from graphzoo.types import GraphSpec

if TYPE_CHECKING:
    from graphzoo.ops import RelationalGraph
    from graphzoo.sampling import NeighbourhoodSampler


_log = logging.getLogger(__name__)

Batching = Literal["pairs", "sources", "subgraphs", "whole"]


class LinkDataModule(TreatsFeatures, GraphDataModule):
    """A graph whose missing links are predicted, by name or path.

    Messages pass along training links only (for ogbl-collab, tests also use validation links, as its rules
    allow). An epoch of training has every training link once, with negatives that are not training links, in
    an order that is a function of (seed, epoch). Evaluation scores every pair once.

    Args:
        name: Data set (`graphzoo list`); None or "links" for your own `path`; None without a path is
            citeseer-link.
        path: Own edge list; see `graphzoo.datasets.link_graph_from_files`.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.
        download: Whether missing files may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.
        protocol: How the data are split and evaluated: "original", "heart", ...; None takes the data set's
            usual one.
        split_index: Number of the split, if the protocol draws random ones, or if the split of your own links
            or its negatives are drawn.
        directed: Whether (u, v) and (v, u) are two links, for your own links; data sets by name set it
            themselves.
        batch_size: Training links of an optimiser step over all ranks and micro-batches, not counting their
            negatives.
        micro_batch_size: Largest number of training links that go through the encoder at once while training.
            None chooses it by memory: what a micro-batch keeps for its backward pass takes at most a quarter
            of the free memory, and on a CPU at most 1 GiB. For node encoders, None is a rank's whole share.
        eval_batch_size: Pairs scored at once; for query encoders, distinct source nodes.
        num_negatives: Negatives per training link.
        structured_negatives: Whether a link's negatives have its source, (u, v) -> (u, w), instead of being
            drawn from all pairs. A query encoder answers them together with the link. If the source is linked
            to all nodes, pairs of other nodes are drawn; for directed links only the target changes.
        max_valid_pairs: Validate on a fixed sample of this many positives, the same for every seed, and on
            the same share of a shared pool of negatives; None validates on all.
        use_features: Whether the encoder sees node features.
        normalize_features: Whether to divide each node's features by the sum of their absolute values.
        standardize_features: Whether to subtract the mean of each feature and divide by its standard
            deviation over all nodes. None does so for your own graph if its features are measurements, as for
            `NodeDataModule`.
        depth: k, hops of the subgraph around a pair (pair encoders only, like the next four).
        num_neighbors: n, largest number of neighbours followed from a node in a hop.
        max_nodes: Largest number of nodes in a subgraph; None for the most that depth and num_neighbors
            allow. It fixes the shape of PENCIL's projection.
        num_relabelings: How often evaluation scores each pair, each time with its nodes in another order;
            scores are averaged.
        both_directions: Whether evaluation also scores each pair as (v, u); scores are averaged.
        neighbourhood: Nodes K that a query encoder sees near the source of a pair, by personalised PageRank,
            instead of the whole graph. A training pair has its own neighbourhood, which contains its target
            and hides its own link; see `NeighbourhoodSampler`. None is the whole graph.
        eval_neighbourhood: Nodes K in evaluation and prediction; None takes `neighbourhood`. Nodes outside
            score below all inside, the nearest first.
        seed: Seed of training order, negatives and training subgraphs.
        num_workers: Loader processes; 0 samples the next batch in a thread.

    Attributes:
        batching: What the encoder needs in a batch, set by the task: only "pairs", pairs ordered by
            "sources", pairs with "subgraphs", or all pairs at once, "whole".
    """

    batch_size: int
    kind = Kind("links", "citeseer-link", "links", "FILE_OR_FOLDER", "links", "edge_index")

    @has_other_forms
    def __init__(
        self,
        name: str | None = None,
        path: str | list[str] | None = None,
        root: str | None = None,
        download: bool | None = None,
        protocol: str | None = None,
        split_index: int = 0,
        directed: bool = False,
        batch_size: int = 2048,
        micro_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        num_negatives: int = 1,
        structured_negatives: bool = False,
        max_valid_pairs: int | None = None,
        use_features: bool = True,
        normalize_features: bool = False,
        standardize_features: bool | None = None,
        depth: int = 2,
        num_neighbors: int = 20,
        max_nodes: int | None = None,
        num_relabelings: int = 1,
        both_directions: bool = False,
        neighbourhood: int | None = None,
        eval_neighbourhood: int | None = None,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            name, path, root, download, batch_size=batch_size, micro_batch_size=micro_batch_size,
            eval_batch_size=eval_batch_size, seed=seed, num_workers=num_workers,
        )  # fmt: skip
        check_whole(
            at_least=1, num_negatives=num_negatives, max_valid_pairs=max_valid_pairs, depth=depth,
            num_neighbors=num_neighbors, num_relabelings=num_relabelings,
        )  # fmt: skip
        check_whole(at_least=0, below=2**32, split_index=split_index)
        check_whole(at_least=2, max_nodes=max_nodes)  # the pair itself
        check_neighbourhoods(neighbourhood, eval_neighbourhood)
        self.neighbourhood, self.eval_neighbourhood = neighbourhood, eval_neighbourhood
        _check_own(path, directed=directed, protocol=protocol)
        self.protocol, self.split_index, self.directed = protocol, split_index, directed
        self.num_negatives, self.structured_negatives = num_negatives, structured_negatives
        self.max_valid_pairs = max_valid_pairs
        check_scaling(normalize_features, standardize_features)
        self.use_features, self.normalize_features = use_features, normalize_features
        self.standardize_features = standardize_features
        self.depth, self.num_neighbors, self.max_nodes = depth, num_neighbors, max_nodes
        self.num_relabelings, self.both_directions = num_relabelings, both_directions
        self.batching: Batching = "pairs"
        self.hides_links = True  # from the neighbourhood of a training pair; set by the task
        self._graph: LinkGraph | None = None
        self._given: LinkGraph | None = None
        self._is_drawn = False  # whether we have drawn the split of given links
        self._x: Tensor | None = None
        self._edges: dict[bool, Tensor] = {}
        self._samplers: dict[bool, PairSubgraphSampler] = {}
        self._relational: dict[bool, RelationalGraph] = {}
        self._paired: dict[bool, RelationalGraph] = {}
        self._validated: LinkSplit | None = None

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        x: Tensor | None = None,
        *,
        name: str = "links",
        directed: bool = False,
        **settings: Any,
    ) -> Self:
        """A DataModule for links in memory; `LinkDataModule(edge_index=...)` is the same.

        Args:
            edge_index: Links as PyG has them, [2, E], int64, see `graphzoo.datasets.link_graph_from_edges`;
                an adjacency [N, N] of ones, sparse as in PyG or torch; or a `LinkGraph`.
            x: Features of the nodes, [N, F].
            name: Name in logs and results.
            directed: Whether (u, v) and (v, u) are two links.
            **settings: Further arguments of the class.

        Raises:
            DataError: for links that cannot be used.
            UsageError: for an adjacency with weights, for anything else that is not an edge_index, for a
                split_index with a `LinkGraph`, and for `directed` with a `LinkGraph` of undirected links.
        """
        module = cls(**settings)
        graph = edge_index
        if not isinstance(graph, LinkGraph):
            edges, index = as_edge_index(graph), module.split_index
            is_sparse = not isinstance(graph, Tensor) or graph.layout is not torch.strided
            graph = link_graph_from_edges(
                edges,
                x,
                num_nodes=graph.size(0) if is_sparse else None,
                name=name,
                split_index=index,
                directed=directed,
            )
        check_direction(graph, directed)
        module._given, module.name, module.directed = graph, graph.name, graph.is_directed
        module.in_memory, module._is_drawn = True, graph is not edge_index
        module._check_drawn(graph)
        return module

    def setup(self, stage: str | None = None) -> None:
        """Load the graph, once.

        A fit starts with this graph's own treatment of the features; the task then applies that of its
        weights.
        """
        if self._graph is None:
            graph = self._load(self._fetches)
            if self.use_features and graph.x is not None:
                self._own_transform = FeatureTransform.fit(
                    graph.x,
                    normalize=self.normalize_features,
                    reduce_channels=None,
                    names=graph.feature_names,
                    standardize=self._standardizes(graph.x),
                )
                self._transform = self._own_transform
                self._x = self._transform(graph.x)
            self._graph = graph
        elif stage == "fit":
            self.take_features(None)
        self._check_processes()

    def _treat(self, transform: FeatureTransform) -> None:
        self._x = transform(loaded(self.graph.x))

    def _load(self, download: bool | None) -> LinkGraph:
        if self._graph is not None or self._given is not None:
            return loaded(self._graph or self._given)
        if self.path is not None:
            graph = link_graph_from_files(self.path, split_index=self.split_index, directed=self.directed)
            self._check_drawn(graph)
            return graph
        return load_link_graph(
            self.name, protocol=self.protocol, split_index=self.split_index, root=self.root, download=download
        )

    @property
    def num_splits(self) -> int | None:
        """How many splits there are; None if splits or negatives are drawn, for each index."""
        if self._given is not None:
            return None if self._is_drawn else 1
        if self.path is not None:
            return None if draws_links(self.path) else 1
        source = find_link_source(self.name)
        return None if source.is_drawn(source.protocol(self.protocol)) else 1

    def _check_drawn(self, graph: LinkGraph) -> None:
        """Refuse a split index above 0 for own links if nothing was drawn by it."""
        if self.split_index and self.num_splits == 1:
            raise UsageError(
                f"{graph.name} has one split, 0: there is no split_index {self.split_index}\n"
                "Give split_index 0, or links without a split or without its negatives: these are then drawn"
            )

    @property
    def graph(self) -> LinkGraph:
        """The graph with its splits."""
        return loaded(self._graph)

    @property
    def x(self) -> Tensor | None:
        """Features that the encoder sees, [N, F], dense or sparse CSR."""
        return self._x

    @property
    def transform(self) -> FeatureTransform | None:
        """Treatment of the raw features; None if there are no features or they are not used."""
        return self._transform

    @property
    def features_in_words(self) -> str:
        """See `TreatsFeatures`; empty for query encoders, which use no features."""
        return "" if self.batching == "sources" else super().features_in_words

    @property
    def subgraph_budget(self) -> int:
        """Largest number of nodes in a pair's subgraph."""
        reached = 2 * sum(self.num_neighbors**hop for hop in range(self.depth + 1))
        most: int = max(2, min(reached, self.graph.num_nodes))
        return min(self.max_nodes or most, most)

    @property
    def spec(self) -> GraphSpec:
        """Sizes of the graph; one relation, for encoders of relational graphs."""
        return GraphSpec(
            num_nodes=self.graph.num_nodes,
            num_relations=1,
            in_channels=0 if self._x is None else int(self._x.shape[1]),
            max_subgraph_nodes=self.max_nodes or self.subgraph_budget,
        )

    @property
    def fingerprint(self) -> str:
        """sha256 over graph, splits and treatment of the features."""
        described = None if self._transform is None else self._transform.describe()
        text = f"{self.graph.fingerprint}\n{json.dumps(described, sort_keys=True)}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def num_tested(self) -> int:
        """Test links."""
        return len(self.graph.test.positive)

    def describe_split(self) -> dict[str, Any]:
        """Protocol, index and sizes of the split, for results and checkpoints."""
        graph = self.graph
        return {
            "name": graph.protocol,
            "index": self.split_index,
            "fingerprint": graph.fingerprint,
            "links": self._links_digest,
            "train": int(graph.train.shape[0]),
            "valid": int(graph.valid.positive.shape[0]),
            "test": int(graph.test.positive.shape[0]),
        }

    def describe_graph(self) -> dict[str, int]:
        """Sizes of the graph and its splits, in the order of display."""
        graph = self.graph
        sizes = {"nodes": graph.num_nodes, "features": self.spec.in_channels, "train links": len(graph.train)}
        judged = {f"{name} links": len(getattr(graph, name).positive) for name in ("valid", "test")}
        return sizes | judged

    @cached_property
    def _links_digest(self) -> str:
        """sha256 over all links of the graph, the same for every split of them."""
        graph = self.graph
        pairs = torch.cat([graph.train, graph.valid.positive, graph.test.positive])
        if not graph.is_directed:
            pairs = pairs.sort(dim=1).values
        keys = torch.unique(pairs[:, 0] * graph.num_nodes + pairs[:, 1])
        return hashlib.sha256(keys.numpy().tobytes()).hexdigest()

    @property
    def num_micro_batches(self) -> int:
        """Loader items of an optimiser step: the value for `accumulate_grad_batches`."""
        return self._training_sampler().num_in_step

    @property
    def num_valid(self) -> int:
        """Links of a validation, without its negatives."""
        return len(self.judged("valid").positive)

    def judged(self, split: str) -> LinkSplit:
        """The pairs that are evaluated; for "valid" those of `max_valid_pairs`."""
        if split == "test":
            return self.graph.test
        if self._validated is None:
            self._validated = sample_split(self.graph.valid, self.max_valid_pairs)
        return self._validated

    def edge_index(self, split: str) -> Tensor:
        """Edges that messages pass along, [2, E]; the same object for every split with the same edges."""
        late = self._is_late(split)
        if late not in self._edges:
            self._edges[late] = self.graph.edge_index("test" if late else "train")
        return self._edges[late]

    def relational_graph(self, split: str) -> RelationalGraph:
        """The same edges with one relation: undirected links are relation 0 both ways, directed ones have
        relation 1 as their inverse.
        """
        from graphzoo.ops import RelationalGraph

        late = self._is_late(split)
        if late not in self._relational:
            edge_index = self.edge_index(split)
            edge_type = torch.zeros(edge_index.shape[1], dtype=torch.int64)
            if self.graph.is_directed:
                edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
                edge_type = torch.cat([edge_type, edge_type + 1])
            self._relational[late] = RelationalGraph(edge_index, edge_type, self.graph.num_nodes, 2)
        return self._relational[late]

    def neighbourhoods(self, split: str, *, training: bool = False) -> NeighbourhoodSampler | None:
        """Sampler of the neighbourhoods of query encoders; None if they see the whole graph.

        Args:
            split: Split whose message graph is sampled.
            training: Whether neighbourhoods have `neighbourhood` nodes; if not, `eval_neighbourhood`.
        """
        from graphzoo.ops import RelationalGraph
        from graphzoo.sampling import NeighbourhoodSampler

        trained, num_nodes = self.neighbourhood, self.graph.num_nodes
        size = trained if training else self.eval_neighbourhood or trained
        if trained is None or size is None or trained >= num_nodes or size >= num_nodes:
            return None
        late = self._is_late(split)
        if late not in self._paired:
            graph = self.relational_graph(split)
            if not self.graph.is_directed:  # edge i and its reverse are half the number of edges apart
                forward = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
                edges = torch.cat([forward, forward.flip(0)], dim=1)
                graph = RelationalGraph(edges, torch.zeros_like(edges[0]), num_nodes, 2)
            self._paired[late] = graph
        # with one relation nearly every node is a known answer, so only nearness matters
        return NeighbourhoodSampler(self._paired[late], size, relation_share=0.0)

    @property
    def asks_near(self) -> bool:
        """Whether a summary should say where queries are asked."""
        return self.neighbourhood is not None and self.batching == "sources"

    @property
    def protocol_in_words(self) -> str | None:
        """Where queries are evaluated, in words; None for a model without neighbourhoods."""
        size, num_nodes = self.neighbourhood, self.graph.num_nodes
        if size is None or size >= num_nodes or not self.asks_near:
            return None
        return near_in_words(self.eval_neighbourhood or size, "nodes", num_nodes)

    def describe_queries(self) -> str:
        """Where queries are asked, in words."""
        size, evaluated = self.neighbourhood, self.protocol_in_words
        if size is None or evaluated is None:
            return whole_in_words(size, "nodes")
        return f"trained {near_in_words(size, 'nodes')}; evaluated {evaluated}"

    def subgraph_sampler(self, split: str) -> PairSubgraphSampler:
        """Sampler of subgraphs around pairs, from the edges of `edge_index(split)`; see `mapped_graph`."""
        late = self._is_late(split)
        if late not in self._samplers:
            self._samplers[late] = subgraph_sampler(
                self.graph,
                split,
                lambda: self.edge_index(split),
                depth=self.depth,
                num_neighbors=self.num_neighbors,
                max_nodes=self.subgraph_budget,
            )
        return self._samplers[late]

    def _training(self) -> Feed:
        by_source = self.batching == "sources"
        near = self.neighbourhoods("train", training=True) if by_source else None
        pairs = TrainingPairs(
            self.graph.train,
            NegativePairs(self.edge_index("train"), self.graph.num_nodes),
            is_directed=self.graph.is_directed,
            num_negatives=self.num_negatives,
            seed=self.seed,
            subgraphs=self.subgraph_sampler("train") if self.batching == "subgraphs" else None,
            is_structured=self.structured_negatives,
            by_source=by_source,
            near=near,
            hides_links=self.hides_links,
        )
        return pairs, self._training_sampler(), self._ahead if near is None else 1

    def scoring_batches(
        self, pairs: Tensor, split: str = "test", *, order: Tensor | None = None
    ) -> EvaluationPairs:
        """Batches that score any pairs [M, 2] on the message graph of a split; see `EvaluationPairs`."""
        return EvaluationPairs(
            pairs,
            self.eval_batch_size or self._usual_batch,
            subgraphs=self.subgraph_sampler(split) if self.batching == "subgraphs" else None,
            num_relabelings=self.num_relabelings if self.batching == "subgraphs" else 1,
            both_directions=self.both_directions,
            by_source=self.batching == "sources",
            order=order,
        )

    def save_artifacts(self, directory: str | os.PathLike[str]) -> None:
        """Write what prediction needs: meta.json, and the graph unless it is large."""
        graph = self.graph
        facts = {
            "fingerprint": self.fingerprint,
            "split": self.describe_split(),
            "spec": self.spec.to_dict(),
            "directed": self.directed,
            "settings": self.describe_settings(),
        }
        self._save_graph(Path(directory), graph, "link_graph.npz", _size(graph), facts)

    def describe_settings(self) -> dict[str, Any]:
        """Settings that turn pairs into batches; checkpoints store them, so that predictions use the same."""
        return {
            "protocol": self.graph.protocol,
            "is_directed": self.graph.is_directed,
            "use_features": self.use_features,
            "normalize_features": self.normalize_features,
            "depth": self.depth,
            "num_neighbors": self.num_neighbors,
            "max_nodes": self.max_nodes,
            "num_relabelings": self.num_relabelings,
            "both_directions": self.both_directions,
            "neighbourhood": self.neighbourhood,
            "eval_neighbourhood": self.eval_neighbourhood,
        }

    @property
    def _usual_batch(self) -> int:
        """Pairs or sources scored at once if `eval_batch_size` is not set."""
        if self.batching == "whole":
            return 2**22
        if self.batching == "sources":  # each source needs a state of every node
            return min(self.micro_batch_size or self.batch_size, 64)
        return min(self.micro_batch_size or self.batch_size, 1024)

    @property
    def _ahead(self) -> int:
        return 1 if self.batching == "subgraphs" else 0

    def _evaluation_loader(self, split: str) -> ResumableLoader:
        judged = self.judged(split)
        pairs = torch.cat([judged.positive, judged.negative.reshape(-1, 2)])
        batches = self.scoring_batches(pairs, split, order=mixed_order(judged))
        sampler = WholeBatchSampler(len(batches), *rank_and_world_size(self.trainer))
        return self._resumable_loader(batches, sampler, ahead=self._ahead)

    def _training_sampler(self) -> PairSampler:
        return self._sampler(PairSampler, len(self.graph.train))

    def _is_late(self, split: str) -> bool:
        """Whether messages also pass along validation links."""
        return split == "test" and self.graph.valid_edges_at_test


def _size(graph: LinkGraph) -> int:
    """Bytes that the graph takes in a file, roughly."""
    pairs = [graph.train, *(part for s in (graph.valid, graph.test) for part in (s.positive, s.negative))]
    x = torch.empty(0) if graph.x is None else graph.x
    features = x.values().numel() * 12 if x.layout is torch.sparse_csr else x.numel() * 4
    return features + sum(part.numel() for part in pairs) * 8


def _check_own(path: str | list[str] | None, *, directed: bool, protocol: str | None) -> None:
    """Refuse or warn of arguments that are only for own links, or only for data sets by name."""
    if path is None and directed:
        raise UsageError("directed is for your own links; data sets by name set it themselves: leave it out")
    if path is not None and protocol is not None:
        # Not refused: a recipe that sets it may be useful for own links, too.
        _log.warning(
            "protocol %r is for data sets by name and ignored here: own links are evaluated against the "
            "negatives beside them, or random ones",
            protocol,
        )
