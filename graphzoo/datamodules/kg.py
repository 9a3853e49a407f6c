"""Knowledge graphs for Lightning: message graphs, training batches, exact evaluation batches."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from graphzoo.datamodules.base import Feed, GraphDataModule, Kind, loaded, write_meta
from graphzoo.datamodules.batches import (
    EvaluationBatches,
    TrainingBatches,
    TrainingSampler,
    evaluation_loader,
    permute,
)
from graphzoo.datamodules.left_out import names_to_leave_out, without_triples_of
from graphzoo.datamodules.neighbourhood_sizes import NeighbourhoodSizes, near_in_words, query_cost
from graphzoo.datasets.kg.answers import AnswerIndex
from graphzoo.datasets.kg.build import triple_keys
from graphzoo.datasets.kg.graph import KnowledgeGraph, parts_of
from graphzoo.datasets.kg.load import Pair, load_knowledge_graph
from graphzoo.datasets.kg.own import from_files, split_triples
from graphzoo.datasets.kg.table import find_source
from graphzoo.encoders.pyg_form import has_other_forms
from graphzoo.errors import UsageError, check_choice, check_range, check_whole
from graphzoo.types import GraphSpec, NeighbourhoodSpec, Protocol, QueryBatch

if TYPE_CHECKING:
    from graphzoo.ops import RelationalGraph
    from graphzoo.sampling import FactDropout, NeighbourhoodSampler
    from graphzoo.sampling.hidden_facts import RemoveFacts


_log = logging.getLogger(__name__)
_AUTO_VALID = 250  # validation triples with neighbourhoods "auto"
_MOST_COST = 3.0  # of the other protocol, in tests under the own one, where `test_both` is None
_STAGES = ("train", "valid", "test", "predict")


class KGDataModule(GraphDataModule):
    """A knowledge graph by name or path.

    Training asks one query per triple and epoch, alternately for tails and for heads, in an order that is a
    function of (seed, epoch). Evaluation asks every distinct (head, relation) of both directions once. All
    ranks get the same number of batches; some may get an empty one at the end. Queries and their order do not
    depend on workers, micro-batches or ranks.

    Args:
        name: Data set (`graphzoo list`); None or "kg" for your own `path`; None without a path is umls.
        path: Own triples: a folder with train, valid, test (.txt, .tsv, .csv, also .gz), one to three files,
            or two folders (train on the first, predict on the second).
        split_index: Number, from 0, of the random split of own triples that come without one.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.
        download: Whether missing files may be fetched; None means yes unless GRAPHZOO_OFFLINE is set.
        batch_size: Queries of an optimiser step over all ranks and micro-batches.
        micro_batch_size: Largest number of queries that go through the encoder at once while training. None
            chooses it by memory: what a micro-batch keeps for its backward pass takes at most a quarter of
            the free memory, and on a CPU at most 1 GiB.
        eval_batch_size: Distinct queries of an evaluation batch; None takes `micro_batch_size` or
            `batch_size`.
        max_valid_triples: Validate on a fixed sample of this many triples, the same for every seed; None
            validates on all.
        hide: Which training facts are hidden from a query on the whole graph: those of its "batch", or only
            those of its "micro_batch", as on each device of KnowFormer's authors. The result then depends on
            `micro_batch_size`, and on the number of processes if a process has less than that.
        neighbourhood: Entities K of the neighbourhood in which a training query is asked, see
            `graphzoo.sampling.NeighbourhoodSampler`. None, or the number of all entities, is the whole
            graph. "auto" takes 300 on graphs of more than 1,000 entities, with 1,000 in evaluation and 250
            validation triples unless these are set.
        later_neighbourhoods: Other sizes from later epochs on, {epoch: K}, epochs counted from 0: training
            may end on larger neighbourhoods.
        eval_neighbourhood: Entities K in evaluation and prediction; None takes `neighbourhood`.
        relation_share: Share of K for entities that are known to answer the relation.
        fact_dropout: Share of the facts that training queries do not see, drawn anew in each epoch; see
            `graphzoo.sampling.FactDropout`. In neighbourhoods, more answers then lie outside.
        protocol: How a model with neighbourhoods is evaluated and predicts: in the "neighbourhood" (entities
            outside rank behind all inside) or on the "whole_graph". Without neighbourhoods both are the same.
        test_both: Whether to test under the other protocol, too; None: if that is estimated to take at most
            three times as long as under the own one.
        leave_out: Data sets that the model must not see, separated by commas; "inductive" means all inductive
            pairs. Their triples are removed from every split, compared by name. Of a pair, these are the
            triples of the graph that is tested on.
        seed: Seed of the training order.
        num_workers: Loader processes; 0 is best unless the encoder waits for batches.
        validate_on: Of an inductive pair, the graph whose validation triples choose the checkpoint: the
            "training" graph, or the "inference" graph, which is the one that is tested on.
    """

    batch_size: int
    eval_batch_size: int
    kind = Kind("kg", "umls", "triples", "FOLDER_OR_FILES", "queries", "triples")

    @has_other_forms
    def __init__(
        self,
        name: str | None = None,
        path: str | list[str] | None = None,
        root: str | None = None,
        download: bool | None = None,
        batch_size: int = 64,
        micro_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        max_valid_triples: int | None = None,
        hide: Literal["batch", "micro_batch"] = "batch",
        neighbourhood: int | Literal["auto"] | None = None,
        later_neighbourhoods: dict[int, int] | None = None,
        eval_neighbourhood: int | None = None,
        relation_share: float = 0.5,
        protocol: Protocol = "neighbourhood",
        test_both: bool | None = True,
        leave_out: str | None = None,
        split_index: int = 0,
        seed: int = 0,
        num_workers: int = 0,
        validate_on: Literal["training", "inference"] = "training",
        fact_dropout: float = 0.0,
    ) -> None:
        super().__init__(
            name, path, root, download, batch_size=batch_size, micro_batch_size=micro_batch_size,
            eval_batch_size=eval_batch_size, seed=seed, num_workers=num_workers,
        )  # fmt: skip
        self.eval_batch_size = eval_batch_size or micro_batch_size or batch_size
        if path is None:
            self.name = find_source(self.name).name
        check_whole(at_least=1, max_valid_triples=max_valid_triples)
        check_whole(at_least=0, below=2**32, split_index=split_index)
        check_range(at_least=0, below=1, fact_dropout=fact_dropout)
        self.fact_dropout = fact_dropout
        self.split_index = split_index
        _check_hide(hide, micro_batch_size, neighbourhood)
        self.hide = hide
        self.max_valid_triples = max_valid_triples
        check_choice("validate_on", validate_on, ("training", "inference"))
        self.validate_on = validate_on
        self._sizes = NeighbourhoodSizes(
            neighbourhood, dict(later_neighbourhoods or {}), eval_neighbourhood, relation_share, protocol
        )
        self._asks_both = test_both
        self.leave_out = names_to_leave_out(leave_out or "")
        self.hides: RemoveFacts | Literal["auto"] = "exact"  # from a training query; set by the task
        self.knows_answers = True  # whether training batches bring known answers; set by the task
        self._graphs: Pair | None = None
        self._answers: dict[str, AnswerIndex] = {}
        self._message_graphs: dict[str, RelationalGraph] = {}
        self._samplers: dict[int, NeighbourhoodSampler | None] = {}
        self._dropout: FactDropout | None = None
        self._is_drawn = False
        self._fitting: RemoveFacts | None = None

    @classmethod
    def from_triples(
        cls, triples: Any, valid: Any = None, test: Any = None, *, name: str = "kg", **settings: Any
    ) -> Self:
        """A DataModule for triples in memory; `KGDataModule(triples=...)` is the same.

        Args:
            triples: A DataFrame with the columns head, relation, tail, an array [n, 3] or a sequence of
                triples; a dict of such train, valid and test; or a `KnowledgeGraph`.
            valid: Validation triples; None draws some of `triples`, as for files.
            test: Test triples; None draws some, likewise.
            name: Name in logs and results.
            **settings: Further arguments of the class.

        Raises:
            DataError: for malformed rows, or too few.
            UsageError: for a path, or for further splits beside a `KnowledgeGraph`.
        """
        if isinstance(triples, Mapping):
            if valid is not None or test is not None:
                raise UsageError("a dict of triples has valid and test itself: leave these arguments out")
            return cls.from_triples(*parts_of(triples), name=name, **settings)
        index = settings.get("split_index", 0)
        check_whole(at_least=0, split_index=index)
        if settings.get("path") is not None:
            raise UsageError("path is for triples in files, these are in memory: leave one of them out")
        if isinstance(triples, KnowledgeGraph):
            if valid is not None or test is not None:
                raise UsageError("a KnowledgeGraph has splits of its own: leave valid and test out")
            graph = triples
        else:
            graph = split_triples(triples, valid, test, name=name, split_seed=index)
        module = cls(**settings)
        _check_drawn(graph, index)
        module.name, module.in_memory = graph.name, True
        module._is_drawn = graph is not triples and graph.split_name != "given"
        module._graphs = module._leave_out((graph, None), module.download)
        return module

    # Loading

    def prepare_data(self) -> None:
        """Fetch and parse once per machine, including the data sets of `leave_out`."""
        super().prepare_data()
        for name in self.leave_out:
            load_knowledge_graph(name, root=self.root, download=self.download)

    def setup(self, stage: str | None = None) -> None:
        """Load the graphs, once; a `stage` "validate" or "test" requires triples of that split."""
        if self._graphs is None:
            self._graphs = self._leave_out(self._load(self._fetches), self._fetches)
        if (split := {"validate": "valid", "test": "test"}.get(stage or "")) and not len(self.triples(split)):
            raise UsageError(
                f"{self._graph_of(split).name} has no {split} triples: there is nothing to evaluate\n"
                f"Give data with {split} triples; predict needs none"
            )
        if self.validate_on == "inference" and stage in (None, "fit", "validate"):
            _check_validated(*self._graphs)
        self._check_processes()

    def _load(self, download: bool | None) -> Pair:
        if self._graphs is not None:
            return self._graphs
        if self.path is not None:
            graphs = from_files(self.path, split_seed=self.split_index)
        else:
            graphs = load_knowledge_graph(self.name, root=self.root, download=download)
        if self.split_index:
            _check_drawn(graphs[0], self.split_index)
        return graphs

    def _leave_out(self, graphs: Pair, download: bool | None) -> Pair:
        if not self.leave_out:
            return graphs
        graph, inference = graphs
        validated = inference if self.validate_on == "inference" else None
        kept = without_triples_of(graph, self.leave_out, validated, root=self.root, download=download)
        return kept, inference

    def _loaded(self) -> Pair:
        return loaded(self._graphs)

    def save_artifacts(self, directory: str | os.PathLike[str]) -> None:
        """Write what prediction needs: knowledge_graph.npz, for a pair inference_graph.npz, and meta.json."""
        directory = Path(directory)
        names = ("knowledge_graph.npz", "inference_graph.npz")
        graphs = {name: g for name, g in zip(names, self._loaded(), strict=True) if g is not None}
        for name, graph in graphs.items():
            graph.save(directory / name)
        path = self.path
        meta = {
            "format": 1,
            "name": self.name,
            "path": path if path is None or isinstance(path, str) else [str(part) for part in path],
            "fingerprint": self.fingerprint,
            "split_name": self.knowledge_graph.split_name,
            "spec": self.spec.to_dict(),
            "graphs": list(graphs),
        }
        write_meta(directory, meta)

    # What the data are

    @property
    def knowledge_graph(self) -> KnowledgeGraph:
        """The graph that is trained on."""
        return self._loaded()[0]

    @property
    def inference_graph(self) -> KnowledgeGraph | None:
        """The graph that is tested on when it is another one, else None."""
        return self._loaded()[1]

    def _graph_of(self, split: str) -> KnowledgeGraph:
        split = _split(split)
        graph, inference = self._loaded()
        second = split == "test" or (split == "valid" and self.validate_on == "inference")
        return inference if inference is not None and second else graph

    @property
    def spec(self) -> GraphSpec:
        """Size of the training graph."""
        graph = self.knowledge_graph
        return GraphSpec(num_nodes=graph.num_entities, num_relations=graph.num_relations)

    @property
    def fingerprint(self) -> str:
        """sha256 over the names and triples of all graphs."""
        graph, inference = self._loaded()
        if inference is None:
            return graph.fingerprint
        return hashlib.sha256(f"{graph.fingerprint}\n{inference.fingerprint}".encode()).hexdigest()

    @property
    def title(self) -> str:
        """Name of the training graph."""
        return self.knowledge_graph.name

    @property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations that are trained on."""
        return self.knowledge_graph.relations

    @property
    def num_splits(self) -> int | None:
        """How many splits there are; None if splits are drawn, one for each index."""
        if self.path is None:
            return None if self._is_drawn else 1
        # the split that `setup` draws, too
        graph, _ = from_files(self.path, split_seed=self.split_index)
        return None if graph.split_name != "given" else 1

    def describe_split(self) -> dict[str, Any]:
        """Name, index, fingerprint and sizes of the split, for results and checkpoints."""
        graph = self.knowledge_graph
        sizes = {split: len(self.triples(split)) for split in ("train", "valid", "test")}
        named = {"name": graph.split_name, "index": self.split_index, "fingerprint": graph.fingerprint}
        second = {"validate_on": self.validate_on} if self.validate_on == "inference" else {}
        return named | {"triples": self._triples_digest} | second | sizes

    @cached_property
    def _triples_digest(self) -> str:
        """sha256 over all triples of the training graph, the same for every split of them."""
        graph = self.knowledge_graph
        keys = np.sort(triple_keys(graph.known_triples().numpy(), graph.num_entities, graph.num_relations))
        keys = keys[np.diff(keys, prepend=-1) != 0]  # np.unique takes seconds for millions of integers
        digest = hashlib.sha256("\n".join((*graph.entities, "", *graph.relations)).encode())
        digest.update(keys.astype("<i8", copy=False).tobytes())
        return digest.hexdigest()

    def describe_graph(self) -> dict[str, int]:
        """Sizes of the graph and its splits, in the order of display."""
        graph = self.knowledge_graph
        sizes = {"entities": graph.num_entities, "relations": graph.num_relations}
        words = {split: f"{split} triples" for split in ("train", "valid", "test")}
        if self.validate_on == "inference":
            words["valid"] += " of the second graph"
        return sizes | {what: len(self.triples(split)) for split, what in words.items()}

    def sources(self, split: str) -> dict[str, int]:
        """Name of the evaluated graph, and where its `QueryBatch.target_index` begins."""
        return {self._graph_of(split).name: 0}

    def triples(self, split: str, source: int = 0) -> Tensor:
        """The triples of a split, [n, 3], from the graph that it is asked on; "predict" means "test"."""
        return self._graph_of(split).split(_split(split))

    def graph(self, split: str, source: int = 0) -> RelationalGraph:
        """Facts to pass messages along: n training facts forwards, then the same n inverted (type r + R).

        Args:
            source: Always 0: there is one graph.
            split: "train" gives the training graph. For an inductive pair, "test" and "predict" give the
                second graph, and "valid" the one that `validate_on` names; otherwise all are the same object.
        """
        from graphzoo.ops import RelationalGraph

        graph = self._graph_of(split)
        # two graphs of a pair may bear the same name
        if graph.fingerprint not in self._message_graphs:
            self._message_graphs[graph.fingerprint] = RelationalGraph.from_triples(
                graph.train, graph.num_entities, graph.num_relations
            )
        return self._message_graphs[graph.fingerprint]

    def answers(self, split: str) -> AnswerIndex:
        """Answers that count as known in a split.

        For "train" these are the training triples; for "valid" and "test" all three splits. In an inductive
        pair, "valid" knows train and valid of the graph it is asked on, and "test" all splits of the second
        graph.
        """
        split = _split(split)
        graph, inference = self._loaded()
        key = "test" if split == "valid" and inference is None else split
        if key not in self._answers:
            if split == "train":
                known = graph.train
            elif split == "valid" and inference is not None:
                asked = self._graph_of("valid")
                known = torch.cat([asked.train, asked.valid])
            else:
                known = self._graph_of(split).known_triples()
            self._answers[key] = AnswerIndex(known, self._graph_of(split).num_entities, graph.num_relations)
        return self._answers[key]

    # Where queries are asked

    @property
    def neighbourhood(self) -> int | None:
        """Entities of a training query's neighbourhood; None for the whole graph."""
        return self._sizes.in_training(self.knowledge_graph.num_entities)

    @property
    def neighbourhoods(self) -> NeighbourhoodSpec | None:
        """How queries get their neighbourhoods in evaluation; None if they see the whole graph."""
        return self._sizes.in_evaluation(self.knowledge_graph.num_entities)

    @property
    def later_neighbourhoods(self) -> dict[int, int]:
        """Other sizes in training from later epochs on, {epoch: K}."""
        return self._sizes.later

    @property
    def largest_epoch(self) -> int:
        """The epoch, from 0, whose training neighbourhoods have most entities."""
        sizes = {0: self.neighbourhood or 0, **self.later_neighbourhoods}
        return max(sizes, key=lambda epoch: sizes[epoch])

    def _training_neighbourhoods(self) -> dict[int, NeighbourhoodSampler | None]:
        """Samplers by the first epoch of their use; None is the whole graph. Empty without neighbourhoods."""
        if not self._samplers:
            sizes = self._sizes.by_epoch(self.knowledge_graph.num_entities)
            self._samplers = {epoch: self._near("train", size) for epoch, size in sizes.items()}
        return self._samplers

    def _near(self, split: str, size: int) -> NeighbourhoodSampler | None:
        """Sampler of neighbourhoods of this size; None where that is the whole graph."""
        from graphzoo.sampling import NeighbourhoodSampler

        graph = self.graph(split)
        if size >= graph.num_nodes:
            return None
        return NeighbourhoodSampler(graph, size, relation_share=self._sizes.relation_share)

    def step_costs(self) -> dict[int, float]:
        """Cost of a training step from an epoch on, as a multiple of that in the first epoch.

        It is estimated from a few training queries, see `query_cost`. Empty if all epochs cost the same.
        """
        samplers = self._training_neighbourhoods()
        if len(samplers) < 2:
            return {}
        costs = {epoch: self._cost("train", sampler) for epoch, sampler in samplers.items()}
        return {epoch: cost / costs[0] for epoch, cost in costs.items()}

    @property
    def test_both(self) -> bool:
        """Whether a test also asks under the other protocol; None was asked for: if it costs little."""
        return self._other_cost <= _MOST_COST if self._asks_both is None else self._asks_both

    @test_both.setter
    def test_both(self, asks: bool | None) -> None:
        self._asks_both = asks

    @property
    def test_cost(self) -> float:
        """Cost of a test query as a multiple of that under the own protocol alone; see `test_both`."""
        return 1 + self._other_cost if self.test_both else 1.0

    @property
    def cost_left_out(self) -> float:
        """Cost of the other protocol if it is left out as too long, see `test_both`; else 0."""
        return 0.0 if self._asks_both is False or self.test_both else self._other_cost

    @cached_property
    def _other_cost(self) -> float:
        """Cost of a test query under the other protocol, as a multiple of that under the own one."""
        spec = self.neighbourhoods
        if spec is None or not self.num_tested:
            return 0.0
        if (near := self._near("test", spec.num_nodes)) is None:
            return 0.0
        ratio = self._cost("test", None) / self._cost("test", near)
        return ratio if spec.protocol == "neighbourhood" else 1 / ratio

    def _cost(self, split: str, sampler: NeighbourhoodSampler | None) -> float:
        return query_cost(self.triples(split), self.graph(split), sampler)

    @property
    def asks_near(self) -> bool:
        """Whether a summary should say how queries are asked: if they do not see the whole graph."""
        is_near = self.neighbourhood is not None or isinstance(self._sizes.trained, int)
        return is_near or self.fact_dropout > 0 or self._hides_more

    @property
    def protocol_in_words(self) -> str | None:
        """Where queries are evaluated, in words; None for a model without neighbourhoods."""
        spec, whole = self.neighbourhoods, self._graph_of("test").num_entities
        if spec is None:
            return None
        return near_in_words(whole if spec.protocol == "whole_graph" else spec.num_nodes, "entities", whole)

    def describe_queries(self) -> str:
        """Where queries are asked, in words, and what "auto" hides from them in training."""
        more = "every other edge between the two entities is hidden in training (remove_facts one_hop)"
        return self._where_asked() + (f"; {more}" if self._hides_more else "")

    def _where_asked(self) -> str:
        hidden = f" with {100 * self.fact_dropout:g}% of the facts hidden" if self.fact_dropout else ""
        trained, evaluated = self._sizes.in_words(self.spec.num_nodes), self.protocol_in_words
        if evaluated is None:
            return f"{trained}; trained{hidden}" if hidden else trained
        most, num_valid = self._max_valid(), len(self.triples("valid"))
        some = most is not None and most < num_valid
        validated = f", validated on {most:,} of {num_valid:,} triples" if some else ""
        sized = " (by the size of the graph)" if self._sizes.is_auto else ""
        return f"{trained}{',' if hidden else ''}{hidden}; evaluated {evaluated}{validated}{sized}"

    # Training

    @property
    def num_micro_batches(self) -> int:
        """Loader items of an optimiser step: the value for `accumulate_grad_batches`."""
        return self._training_sampler().num_in_step

    def _training(self) -> Feed:
        batches = self.training_batches()
        return batches, self._training_sampler(), 1 if batches.samplers else 0

    def training_batches(self) -> TrainingBatches:
        """The data set that makes a `TripleBatch` of positions of triples."""
        graph = self.knowledge_graph
        answers = self.answers("train") if self.knows_answers else None
        near, hidden, in_batch = self._training_neighbourhoods(), self.hidden(), self.hide == "batch"
        return TrainingBatches(
            graph.train, graph.num_relations, near, hidden, answers, in_batch, self._drops()
        )

    def hidden(self, source: int = 0) -> RemoveFacts:
        """What is hidden from a training query: `hides`; for "auto", what suits the validation triples."""
        from graphzoo.sampling.hidden_facts import Linked

        if self.hides != "auto":
            return self.hides
        if self._fitting is None:
            train, known = self.knowledge_graph.train, self._graph_of("valid").train
            self._fitting = Linked.among(train, self.triples("valid"), known).removal
        return self._fitting

    @property
    def _hides_more(self) -> bool:
        """Whether "auto" has chosen to hide more than a query's own fact."""
        return self.hides == "auto" and self.hidden() == "one_hop"

    def _training_sampler(self) -> TrainingSampler:
        return self._sampler(TrainingSampler, len(self.knowledge_graph.train))

    def kept_facts(self, epoch: int, source: int = 0) -> Tensor | None:
        """Mask of the training facts that queries of an epoch see, [n], bool; None for all."""
        dropout = self._drops()
        return None if dropout is None else dropout.kept(epoch)

    def _drops(self) -> FactDropout | None:
        from graphzoo.sampling import FactDropout

        if self.fact_dropout and self._dropout is None:
            graph = self.knowledge_graph
            sizes = graph.num_entities, graph.num_relations
            self._dropout = FactDropout(graph.train, *sizes, self.fact_dropout, self.seed)
        return self._dropout

    # Evaluation

    @property
    def num_valid(self) -> int:
        """Queries of a validation, two for a triple."""
        count, most = len(self.triples("valid")), self._max_valid()
        return 2 * (count if most is None else min(count, most))

    def _max_valid(self) -> int | None:
        """Largest number of validation triples to ask about; None for all."""
        if self.max_valid_triples is None and self._sizes.is_auto and self.neighbourhood is not None:
            return _AUTO_VALID
        return self.max_valid_triples

    @property
    def num_tested(self) -> int:
        """Test queries: every test triple in both directions."""
        return 2 * len(self.triples("test"))

    def evaluation_batches(self, split: str, *, source: int = 0, first: int = 0) -> EvaluationBatches:
        """The queries of "valid" (those of `max_valid_triples`) or "test"; see `EvaluationBatches`."""
        triples, max_triples = self.triples(split), self._max_valid() if split == "valid" else None
        if not triples.numel():
            _log.warning("%s: the %s split is empty, nothing is evaluated", self._graph_of(split).name, split)
        chosen = None
        if max_triples is not None and max_triples < triples.size(0):
            # not a function of the run's seed: seeds are compared on the same sample
            chosen = permute(triples.size(0), "evaluation sample", split)[:max_triples].sort().values
        return EvaluationBatches(
            triples, self.answers(split), self.eval_batch_size, chosen, source=source, first=first
        )

    def _evaluation_loader(self, split: str) -> DataLoader[QueryBatch]:
        return evaluation_loader(self.evaluation_batches(split), self.trainer, self.num_workers)


def _split(name: str) -> str:
    if name not in _STAGES:
        raise UsageError(f"unknown split {name!r}; the splits are {', '.join(_STAGES)}")
    return "test" if name == "predict" else name


def _check_drawn(graph: KnowledgeGraph, index: int) -> None:
    """Refuse a split index above 0 if the split was not drawn by it."""
    if index and not (graph.split_name.startswith("random") and graph.split_name.endswith(f" seed {index}")):
        raise UsageError(
            f"{graph.name} has one split, 0: there is no split_index {index}\n"
            "Give split_index 0, or triples without valid or test: these are then drawn"
        )


def _check_validated(graph: KnowledgeGraph, inference: KnowledgeGraph | None) -> None:
    """Refuse to validate on a second graph that does not exist or has no validation triples."""
    if inference is None:
        raise UsageError(
            f"validate_on inference is for an inductive pair: {graph.name} is one graph\n"
            "Give --data.validate_on training"
        )
    if not len(inference.valid):
        raise UsageError(
            f"validate_on inference: {inference.name} has no validation triples\n"
            "Add its valid file, or give --data.validate_on training"
        )


def _check_hide(hide: str, micro_batch_size: int | None, neighbourhood: int | str | None) -> None:
    check_choice("hide", hide, ("batch", "micro_batch"))
    if hide == "micro_batch" and micro_batch_size is None:
        raise UsageError(
            "hide micro_batch needs a fixed size of micro-batches: give --data.micro_batch_size, too"
        )
    if hide == "micro_batch" and neighbourhood is not None:
        raise UsageError(
            "in neighbourhoods every query hides its own fact: leave out --data.hide or --data.neighbourhood"
        )
