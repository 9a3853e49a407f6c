"""Runs that are killed at certain stops, and all state that must be equal after resuming."""

import csv
import dataclasses
import hashlib
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging

from graphzoo.callbacks import BestCheckpoint, LastCheckpoint, MetricsFile, WarmupEMAWeightAveraging
from graphzoo.datamodules import KGDataModule, LinkDataModule, MixtureDataModule, NodeDataModule
from graphzoo.encoders import PENCIL, GALiT, KnowFormer, KnowFormerAny, NodeFormer
from graphzoo.ops import QueryGraph
from graphzoo.tasks import HeuristicEstimation, KGCompletion, LinkPrediction, NodeClassification
from helpers.link_graphs import make_link_graph
from helpers.node_graphs import write_npz

# Stop: epoch, batch and hook at which the process is killed.
STOPS = {
    "between two steps": (0, 2, "on_train_batch_start"),
    "inside a step": (1, 3, "on_train_batch_start"),
    "after a validation inside an epoch": (1, 4, "on_train_batch_start"),
    "while validating": (1, 0, "on_validation_batch_start"),
    "between best.ckpt and last.ckpt": (1, 0, "on_train_epoch_end"),
    "exactly at the end of an epoch": (2, 0, "on_train_epoch_start"),
}
EPOCHS = 3


@dataclasses.dataclass
class Case:
    """One kind of run: task, data module, batches per step, Trainer settings, callbacks."""

    task: Callable[[], object]
    data: Callable[[Path, int], object]
    accumulate: int = 1
    trainer: dict = dataclasses.field(default_factory=dict)
    callbacks: Callable[[], list[Callback]] = list


def triples_in(path, entities=12):
    """A folder with 84 triples, 60 of them for training; an existing folder is kept."""
    if not path.is_dir():
        path.mkdir(parents=True)
        source = random.Random(0)
        names = [f"e{number}" for number in range(entities)]
        every = [(h, r, t) for h in names for r in ("r0", "r1") for t in names]
        drawn = source.sample(every, 84)
        for split, part in {"train": drawn[:60], "valid": drawn[60:72], "test": drawn[72:]}.items():
            (path / f"{split}.txt").write_text("".join("\t".join(triple) + "\n" for triple in part))
    return str(path)


STEPS = {"batch_size": 16, "micro_batch_size": 8}


def kg(folder, workers, **settings):
    """60 training triples in steps of 16, each of two micro-batches."""
    return KGDataModule(path=triples_in(folder / "kg"), num_workers=workers, **STEPS, **settings)


def mixture(folder, workers, neighbourhood=8):
    """60 queries per epoch on two graphs, one of which has only 8 entities."""
    paths = [triples_in(folder / "kg"), triples_in(folder / "small", entities=8)]
    return MixtureDataModule(
        names=paths,
        epoch_queries=60,
        neighbourhood=neighbourhood,
        num_workers=workers,
        max_valid_triples=12,
        **STEPS,
    )


def nodes(folder, workers, **settings):
    """60 nodes, 30 of them for training."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_npz(folder / "nodes.npz")
    settings = {"standardize_features": False, **settings}  # so that epochs differ in validation
    return NodeDataModule(name="nodes", path=path, num_workers=workers, **settings)


def links(folder, workers, **settings):
    """About 130 training links in steps of 32, each of two micro-batches."""
    settings = {
        "batch_size": 32,
        "micro_batch_size": 16,
        "depth": 1,
        "num_neighbors": 8,
        "max_nodes": 18,
        **settings,
    }
    found = LinkDataModule(num_workers=workers, **settings)
    found._load = lambda download: make_link_graph()
    return found


RATES = {"lr_milestones": [1, 2], "lr_gamma": 0.5}


def knowformer(spec):
    return KnowFormer(spec, hidden_channels=8, num_heads=2, num_layers=1, dropout=0.2)


def knowformer_any(spec):
    return KnowFormerAny(spec, hidden_channels=8, num_heads=2, num_layers=1, dropout=0.2)


def galit(spec):
    return GALiT(spec, hidden_channels=8, dropout=0.2)


def nodeformer(spec):
    return NodeFormer(spec, hidden_channels=8, num_heads=2, dropout=0.2)


def pencil(spec):
    return PENCIL(spec, hidden_channels=16, num_layers=1, num_heads=2, ffn_channels=16, dropout=0.2)


CASES = {
    "kg-completion, KnowFormer": Case(lambda: KGCompletion(knowformer, **RATES), kg),
    "kg-completion, KnowFormer, sampled negatives": Case(
        lambda: KGCompletion(knowformer, loss="bce", num_negatives=4, **RATES), kg
    ),
    "kg-completion, KnowFormer, neighbourhoods": Case(
        lambda: KGCompletion(knowformer, loss="bce", num_negatives=4, **RATES),
        lambda folder, workers: kg(folder, workers, neighbourhood=6, eval_neighbourhood=9),
    ),
    "kg-completion, KnowFormer, neighbourhoods that end as the graph": Case(
        lambda: KGCompletion(knowformer, loss="bce", num_negatives=4, **RATES),
        lambda folder, workers: kg(
            folder, workers, neighbourhood=6, later_neighbourhoods={1: 8, 2: 12}, protocol="whole_graph"
        ),
    ),
    "kg-completion, KnowFormer, facts hidden by epoch": Case(
        lambda: KGCompletion(knowformer, **RATES),
        lambda folder, workers: kg(
            folder, workers, neighbourhood=6, later_neighbourhoods={1: 8, 2: 10**6}, fact_dropout=0.4
        ),
    ),
    "kg-completion, KnowFormerAny, mixture of graphs": Case(
        lambda: KGCompletion(knowformer_any, loss="filtered_ce", **RATES), mixture
    ),
    "kg-completion, KnowFormer, two validations an epoch": Case(
        lambda: KGCompletion(knowformer, **RATES), kg, trainer={"val_check_interval": 0.5}
    ),
    "kg-completion, KnowFormer, moving averages of the weights": Case(
        lambda: KGCompletion(knowformer, **RATES), kg, callbacks=lambda: [EMAWeightAveraging(decay=0.9)]
    ),
    "kg-completion, KnowFormer, averages that warm up": Case(
        lambda: KGCompletion(knowformer, **RATES), kg, callbacks=lambda: [WarmupEMAWeightAveraging(decay=0.9)]
    ),
    "node-classification, NodeFormer, whole graph": Case(
        lambda: NodeClassification(nodeformer, decoder="mlp", dropout=0.2, **RATES), nodes
    ),
    "node-classification, GALiT, parts": Case(
        lambda: NodeClassification(galit, dropout=0.2, **RATES),
        lambda folder, workers: nodes(folder, workers, batch_size=8),
        accumulate=2,
    ),
    "link-prediction, PENCIL": Case(lambda: LinkPrediction(pencil, dropout=0.2, **RATES), links),
    "link-prediction, GALiT": Case(lambda: LinkPrediction(galit, dropout=0.2, **RATES), links),
    "link-prediction, KnowFormer": Case(lambda: LinkPrediction(knowformer, **RATES), links),
    "heuristic-estimation, PENCIL": Case(lambda: HeuristicEstimation(pencil, **RATES), links),
}
# Cases that are tested with worker processes, too.
WITH_WORKERS = (
    "kg-completion, KnowFormer",
    "kg-completion, KnowFormer, neighbourhoods",
    "kg-completion, KnowFormer, facts hidden by epoch",
    "node-classification, GALiT, parts",
    "link-prediction, PENCIL",
)
STOPS_WITH_WORKERS = ("inside a step", "exactly at the end of an epoch")


def exists(name, stop):
    """Whether a run of the case reaches the stop."""
    if stop == "after a validation inside an epoch":
        return bool(CASES[name].trainer)
    # a whole graph has one step per epoch
    return "whole graph" not in name or stop not in ("between two steps", "inside a step")


def table():
    """A Markdown table of cases and stops; cells are the tested numbers of worker processes."""
    lines = [f"| run | {' | '.join(STOPS)} |", "|---" * (len(STOPS) + 1) + "|"]
    for name in CASES:
        cells = []
        for stop in STOPS:
            workers = "0, 2" if name in WITH_WORKERS and stop in STOPS_WITH_WORKERS else "0"
            cells.append(workers if exists(name, stop) else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def digest(value):
    """A hash of everything in a batch: samples, labels, negatives, subgraphs."""
    found = hashlib.sha256()

    def add(part):
        if isinstance(part, torch.Tensor):
            if part.layout != torch.strided:
                part = part.to_dense()
            raw = part.flatten().view(torch.uint8).numpy().tobytes()  # NumPy has no bfloat16
            found.update(repr((part.dtype, part.shape)).encode() + raw)
        elif isinstance(part, QueryGraph):
            add([part.nodes, part.edge_index, part.edge_type])
        elif dataclasses.is_dataclass(part):
            for field in dataclasses.fields(part):
                found.update(field.name.encode())
                add(getattr(part, field.name))
        elif isinstance(part, list):
            for value in part:
                add(value)
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()


class Seen(Callback):
    """Records epoch, number and hash of every batch."""

    def __init__(self):
        self.batches = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.batches.append((trainer.current_epoch, batch_idx, digest(batch)))


class Killed(Callback):
    """Copies the run's folder at each stop, as a process that is killed there would leave it."""

    def __init__(self, run, stops):
        self.run, self.stops, self.seen = run, stops, {}

    def _reached(self, hook, epoch, batch, seen):
        for name, stop in self.stops.items():
            if stop == (epoch, batch, hook) and name not in self.seen:
                shutil.copytree(self.run, self.run.parent / name)
                self.seen[name] = seen

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self._reached("on_train_batch_start", trainer.current_epoch, batch_idx, batch_idx)

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        self._reached("on_validation_batch_start", trainer.current_epoch, batch_idx, None)

    def on_train_epoch_end(self, trainer, pl_module):
        self._reached("on_train_epoch_end", trainer.current_epoch, 0, None)

    def on_train_epoch_start(self, trainer, pl_module):
        self._reached("on_train_epoch_start", trainer.current_epoch, 0, None)


def train(case, run, *, workers=0, resume=None, more=(), seed=0, epochs=EPOCHS):
    """Fit a case in a folder, from the start or from a checkpoint.

    Returns:
        Epoch, number and hash of every batch, and the Trainer.
    """
    torch.manual_seed(seed)
    task, seen = case.task(), Seen()
    metrics = MetricsFile(run)
    if resume is not None:
        metrics.forget_after(torch.load(resume, weights_only=True)["global_step"] - 1)
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=metrics,
        log_every_n_steps=1,
        callbacks=[
            seen,
            *more,
            *case.callbacks(),
            BestCheckpoint(run / "checkpoints", mode=task.mode, seconds=0),
            LastCheckpoint(run / "checkpoints", minutes=0, seconds=0),
        ],
        accumulate_grad_batches=case.accumulate,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"num_sanity_val_steps": 0, **case.trainer},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(task, datamodule=case.data(run.parent / "data", workers), ckpt_path=resume)
    return seen.batches, trainer


def rows(run):
    """metrics.csv as text, without empty rows."""
    with (run / "metrics.csv").open() as file:
        found = [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]
    return [row for row in found if set(row) - {"step", "epoch"}]


def difference(one, other, where=""):
    """The first place at which two plain values or tensors differ in a bit; empty if they are equal."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return "" if same and bool((one.eq(other) | (one.isnan() & other.isnan())).all()) else where
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            return f"{where} {list(one)} {list(other)}"
        return next(filter(None, (difference(one[key], other[key], f"{where}/{key}") for key in one)), "")
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{where} {len(one)} {len(other)}"
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (difference(*pair, f"{where}/{i}") for i, pair in pairs)), "")
    return "" if one == other else f"{where} {one!r} {other!r}"


def state_of(path):
    """The training state in a checkpoint, without paths."""
    found = torch.load(path, weights_only=True)
    kept = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "loops", "graphzoo")
    averages = ("current_model_state", "averaging_state")
    return {name: found[name] for name in (*kept, *averages) if name in found}
