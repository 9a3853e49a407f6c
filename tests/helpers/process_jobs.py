"""Jobs that tests/tasks/test_processes.py runs in one and in several processes: `process_jobs.py FOLDER OUT`.

Rank and number of processes are in environment variables, as with torchrun.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from helpers.link_graphs import make_link_graph
from helpers.node_graphs import write_npz, yes_no_labels

FAMILIES = 15  # 15 validation and test triples, 30 queries

# Evaluations by name. tests/tasks/test_processes.py asserts that every figure has the same bits.
JUDGED = {
    "kg": "knowledge graph: ranks of 14 triples in batches of 5 queries",
    "kg-near": "knowledge graph: neighbourhoods of 20 entities, and the whole graph beside it",
    "kg-one": "knowledge graph: one triple, fewer batches than processes",
    "kg-mixture": "two knowledge graphs, one after the other, the mean of their ranks",
    "nodes": "nodes: accuracy",
    "nodes-auroc": "nodes: ROC-AUC, multi-label",
    "links-pool": "links, PENCIL: negatives that all links share",
    "links-own": "links, PENCIL: each link with negatives of its own",
    "links-nodes": "links, GALiT: states of the whole graph",
    "links-rmse": "links, PENCIL: a heuristic's scores, RMSE",
}
# Trainings by name. The loss of every step must agree to 2e-5.
TRAINED = {
    "kg-bce": "KnowFormer, `bce`, batches of 8, the last of one query",
    "kg-parts": "KnowFormer, `ce`, batches of 12 in micro-batches of 2",
    "kg-near-parts": "KnowFormer, neighbourhoods of 8 entities, batches of 12 in micro-batches of 2",
    "kg-hidden": "KnowFormer, three tenths of the facts hidden, batches of 12",
    "kg-accumulated": "KnowFormer, two batches of 7 a step",
    "kg-mixture-parts": "KnowFormerAny on two graphs in turn, batches of 12 in micro-batches of 2",
    "nodes-whole": "NodeFormer, whole graph",
    "nodes-parts": "NodeFormer, six parts a step",
    "links-pencil": "PENCIL, batches of 50 in micro-batches of 20",
    "links-galit": "GALiT on links, batches of 50",
    "links-knowformer": "KnowFormer on links, batches of 50",
}


def write_families(folder: Path) -> Path:
    """A knowledge graph: parent of a parent is a grandparent."""
    folder.mkdir(parents=True, exist_ok=True)
    parents = [f"{a}{i}\tparent\t{b}{i}\n" for i in range(2 * FAMILIES) for a, b in ("ab", "bc")]
    asked = [f"a{i}\tgrandparent\tc{i}\n" for i in range(2 * FAMILIES)]
    (folder / "train.txt").write_text("".join(parents + asked[2:FAMILIES]))
    (folder / "valid.txt").write_text("".join(asked[:2] + asked[FAMILIES + 12 :]))
    (folder / "test.txt").write_text("".join(asked[FAMILIES : FAMILIES + 12]))
    return folder


def write_friends(folder: Path) -> Path:
    """A knowledge graph with other relations: friends live in the same town."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"p{i}\tlives_in\tt{i // 4}\np{i}\tfriend_of\tp{i ^ 1}\n" for i in range(20)]
    (folder / "train.txt").write_text("".join(lines[:17]))
    (folder / "valid.txt").write_text("".join(lines[17:18]))
    (folder / "test.txt").write_text("".join(lines[18:]))
    return folder


def _mixture(folder: Path, world_size: int, **data: Any) -> tuple[Any, Any]:
    from graphzoo.datamodules import MixtureDataModule
    from graphzoo.encoders import KnowFormerAny
    from graphzoo.tasks import KGCompletion

    encoder = partial(KnowFormerAny, hidden_channels=8, num_layers=1, num_heads=2, dropout=0.0)
    names = [str(folder / "families"), str(folder / "friends")]
    # a small learning rate, since Adam amplifies the rounding of gradients near zero
    task = KGCompletion(encoder, loss="filtered_ce", lr=2e-4)
    return task, MixtureDataModule(names=names, neighbourhood=8, **data)


def _knowledge_graph(folder: Path, world_size: int, *, task: dict[str, Any], **data: Any) -> tuple[Any, Any]:
    from graphzoo.datamodules import KGDataModule
    from graphzoo.encoders import KnowFormer
    from graphzoo.tasks import KGCompletion

    encoder = partial(KnowFormer, hidden_channels=8, num_layers=1, num_heads=2)
    return KGCompletion(encoder, **task), KGDataModule(path=str(folder / "families"), **data)


def _nodes(folder: Path, world_size: int, *, labels: bool = False, **data: Any) -> tuple[Any, Any]:
    from graphzoo.datamodules import NodeDataModule
    from graphzoo.encoders import NodeFormer
    from graphzoo.tasks import NodeClassification

    path = folder / ("labels.npz" if labels else "classes.npz")
    encoder = partial(NodeFormer, hidden_channels=8, num_heads=2, num_random_features=8)
    return NodeClassification(encoder, metric="roc_auc" if labels else None), NodeDataModule(
        path=str(path), **data
    )


def _links(
    folder: Path, world_size: int, *, encoder: str, own: int = 0, rmse: bool = False, **data: Any
) -> tuple[Any, Any]:
    from graphzoo.datamodules import LinkDataModule
    from graphzoo.encoders import PENCIL, GALiT, KnowFormer
    from graphzoo.tasks import HeuristicEstimation, LinkPrediction

    pencil = {"hidden_channels": 16, "num_layers": 1, "num_heads": 2, "ffn_channels": 16, "dropout": 0.0}
    factory: Callable[..., Any] = {
        "pencil": partial(PENCIL, **pencil),
        "galit": partial(GALiT, hidden_channels=8, dropout=0.0),
        "knowformer": partial(KnowFormer, hidden_channels=8, num_layers=1, num_heads=2),
    }[encoder]
    usual = {"batch_size": 64, "eval_batch_size": 7, "depth": 1, "num_neighbors": 12, "max_nodes": 26}
    datamodule = LinkDataModule(**{**usual, **data})
    graph = make_link_graph(own_negatives=own)
    datamodule._load = lambda download: graph  # type: ignore[method-assign,assignment]
    task = HeuristicEstimation(factory, heuristic="cn") if rmse else LinkPrediction(factory)
    return task, datamodule


_MAKE: dict[str, Callable[[Path, int], tuple[Any, Any]]] = {
    "kg": partial(_knowledge_graph, task={}, eval_batch_size=5),
    "kg-near": partial(_knowledge_graph, task={}, eval_batch_size=5, neighbourhood=20),
    "kg-one": partial(_knowledge_graph, task={}, max_valid_triples=1),
    "kg-mixture": partial(_mixture, eval_batch_size=5),
    "nodes": _nodes,
    "nodes-auroc": partial(_nodes, labels=True),
    "links-pool": partial(_links, encoder="pencil"),
    "links-own": partial(_links, encoder="pencil", own=5),
    "links-nodes": partial(_links, encoder="galit"),
    "links-rmse": partial(_links, encoder="pencil", rmse=True),
    "kg-bce": partial(_knowledge_graph, task={"loss": "bce", "num_negatives": 9}, batch_size=8),
    "kg-parts": partial(_knowledge_graph, task={"loss": "ce"}, batch_size=12, micro_batch_size=2),
    "kg-near-parts": partial(
        _knowledge_graph, task={}, batch_size=12, micro_batch_size=2, neighbourhood=8, relation_share=0.25
    ),
    "kg-hidden": partial(_knowledge_graph, task={}, batch_size=12, fact_dropout=0.3),
    "kg-accumulated": partial(_knowledge_graph, task={}, batch_size=7),
    "kg-mixture-parts": partial(_mixture, batch_size=12, micro_batch_size=2, epoch_queries=96),
    "nodes-whole": _nodes,
    "nodes-parts": partial(_nodes, batch_size=5),
    "links-pencil": partial(_links, encoder="pencil", batch_size=50, micro_batch_size=20),
    "links-galit": partial(_links, encoder="galit", batch_size=50),
    "links-knowformer": partial(_links, encoder="knowformer", batch_size=50),
}


def make(name: str, folder: Path | str, **data: Any) -> Any:
    """The data module of a job.

    Args:
        name: Name of the job.
        folder: Folder of `write_data`.
        **data: Further arguments of the data module.
    """
    return partial(_MAKE[name], **data)(Path(folder), 1)[1]


def run(name: str, folder: Path, world_size: int) -> dict[str, Any]:
    """Figures of a job as hexadecimal numbers; for a training also losses of steps and a sum of weights."""
    from lightning.pytorch import Trainer, seed_everything

    task, datamodule = _MAKE[name](folder, world_size)
    losses: list[float] = []
    log = task.log_training

    def note(name: str, value: torch.Tensor) -> None:
        if name == "train/loss":
            losses.append(float(value))
        log(name, value)

    task.log_training = note
    gradients: list[float] = []
    before_step = task.on_before_optimizer_step

    def note_gradients(optimizer: torch.optim.Optimizer) -> None:
        """Record the gradients of the first step; with Adam, losses do not show a wrong scale of the loss."""
        if not gradients:
            gradients.extend(float(p.grad.norm()) for p in task.parameters() if p.grad is not None)
        before_step(optimizer)

    task.on_before_optimizer_step = note_gradients
    accumulate = {"nodes-parts": 6 // world_size, "kg-accumulated": 2}
    seed_everything(0, verbose=False)
    trainer = Trainer(
        max_epochs=1 if not name.startswith("nodes") else 5,
        accelerator="cpu",
        devices=world_size,
        strategy="ddp" if world_size > 1 else "auto",
        accumulate_grad_batches=accumulate.get(name, 1),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    if name in JUDGED:
        figures = {
            **trainer.validate(task, datamodule=datamodule, verbose=False)[0],
            **trainer.test(task, datamodule=datamodule, verbose=False)[0],
        }
    else:
        trainer.fit(task, datamodule=datamodule)
        figures = {k: v for k, v in trainer.callback_metrics.items() if k.startswith("val/")}
    weight = torch.cat([parameter.detach().flatten() for parameter in task.parameters()])
    return {
        "figures": {key: float(value).hex() for key, value in figures.items()},
        "evaluated": task.num_evaluated,
        "tables": {table.name: table.data.to_csv() for table in task.test_tables},
        "losses": losses,
        "gradients": gradients,
        "weight": float(weight.double().abs().sum()),
    }


def main(folder: Path, out: Path) -> None:
    """Run all jobs; each process writes its results to OUT-RANK."""
    warnings.filterwarnings("ignore")
    world_size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    found = {name: run(name, folder, world_size) for name in _MAKE}
    Path(f"{out}-{rank}").write_text(json.dumps(found))


def write_data(folder: Path) -> None:
    """The files that the jobs read."""
    write_families(folder / "families")
    write_friends(folder / "friends")
    write_npz(folder / "classes.npz")
    write_npz(folder / "labels.npz", y=yes_no_labels())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
