"""Evaluate a model on graphs that it was not trained on.

    python -m benchmarks.zero_shot RUN [--data umls,kinship] [--split valid] [--k 500] [--out FILE]

RUN is a run directory, an exported folder, or the name of pretrained weights. Writes results/zero_shot.csv,
a row per graph: MRR and Hits with filtered ranks over all entities, both directions, ties averaged; seconds
per query; the part of the graph that the model has seen; ULTRA's scores if they are known; and the paper's
scores of KnowFormer trained on the graph. If a graph has more than K entities, queries are answered in
neighbourhoods of K, and entities outside rank after all inside. Not part of `python -m benchmarks`, because
it takes a quarter of an hour.
"""

import argparse
import csv
import time
import warnings
from pathlib import Path

from lightning.pytorch import Trainer

from benchmarks.common import RESULTS, machine
from graphzoo.catalog.presets import list_presets
from graphzoo.datamodules import KGDataModule
from graphzoo.inference.checkpoint import build_task, find_checkpoint, read_checkpoint
from graphzoo.runs.published import parse_published

PRETRAINED = ("fb15k237", "wn18rr", "codex-m", "nell995")
FAMILIES = {"wn18rr-v": "wn18rr", "fb15k237-v": "fb15k237", "nell995-v": "nell995"}
NAMES = (
    *(f"{family}{k}" for family in FAMILIES for k in range(1, 5)),
    "umls",
    "kinship",
    "nations",
    "yago310-quarter",
)
ULTRA = {
    "wn18rr-v1": 0.591,
    "fb15k237-v1": 0.470,
    "nell995-v1": 0.732,
    "umls": 0.696,
    "kinship": 0.205,
    "nations": 0.542,
}
"""MRR of ULTRA's released `ultra_3g` checkpoint, run on a CPU under the same protocol."""
COLUMNS = ("data", "split", "entities", "relations", "mrr", "hits@1", "hits@10", "ultra_mrr", "trained_mrr",
           "queries", "ms_a_query", "asked", "seen", "machine")  # fmt: skip


def seen(name: str) -> str:
    """The part of a graph that a model trained on `PRETRAINED` with `leave_out: inductive` has seen."""
    family = next((full for start, full in FAMILIES.items() if name.startswith(start)), None)
    return "nothing" if family is None else f"nothing: its triples were left out of {family}"


def trained(name: str) -> str:
    """The paper's MRR of KnowFormer trained on the graph, from the recipe."""
    names = {preset.name: preset for preset in list_presets("recipe")}
    recipe = names.get(f"knowformer/{name}")
    published = parse_published(recipe.header.get("paper", "")) if recipe else {}
    return f"{published['test/mrr'].value:.3f}" if "test/mrr" in published else ""


def evaluate(path: str, name: str, split: str, k: int, most: int | None) -> dict[str, object]:
    """The row of one graph."""
    file, _ = find_checkpoint(path)
    task = build_task(read_checkpoint(file), file)
    data = KGDataModule(name, neighbourhood=k, max_valid_triples=most, test_both=False, eval_batch_size=32)
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data.setup()
    began = time.perf_counter()
    ask = trainer.validate if split == "valid" else trainer.test
    figures = ask(task, data, verbose=False)[0]
    seconds = time.perf_counter() - began
    graph = data.inference_graph if split == "test" and data.inference_graph else data.knowledge_graph
    count = data.num_tested if split == "test" else 2 * min(most or 10**9, len(data.triples("valid")))
    prefix = "val" if split == "valid" else "test"
    whole = graph.num_entities <= k
    return {
        "data": name,
        "split": split,
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        **{metric: f"{float(figures[f'{prefix}/{metric}']):.4f}" for metric in ("mrr", "hits@1", "hits@10")},
        "ultra_mrr": ULTRA.get(name, "") if split == "test" else "",
        "trained_mrr": trained(name) if split == "test" else "",
        "queries": count,
        "ms_a_query": round(1000 * seconds / count, 1),
        "asked": "whole graph" if whole else f"neighbourhoods of {k}",
        "seen": seen(name),
        "machine": machine(),
    }


def main() -> None:
    """Parse the arguments, evaluate, write the table after each graph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("--data", default=",".join(NAMES))
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--k", type=int, default=500)
    parser.add_argument("--most", type=int, help="number of validation triples of each graph")
    parser.add_argument("--out", type=Path, default=RESULTS / "zero_shot.csv")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = []
    for name in args.data.split(","):
        rows.append(evaluate(args.run, name, args.split, args.k, args.most))
        print(", ".join(f"{key} {value}" for key, value in rows[-1].items() if value != ""), flush=True)
        with open(args.out, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
