"""Load a knowledge graph of a million entities and ten million facts, and answer one query.

    OMP_NUM_THREADS=1 python -m benchmarks.large_graph [--entities 1000000] [--facts 10000000] [--gib 8]

Writes results/large_graph.csv: CPU time and peak memory of the process after each stage. The graph is
random, with skewed degrees and 100 relations, and is read from text files, as with `--data kg`. The query
is a validation triple in both directions, for KnowFormer of width 32 on the whole graph. After that,
`graphzoo.load(...).predict` answers in neighbourhoods of 1,000 entities. The memory of the process is
limited to --gib, so the result shows that this is enough. Not part of `python -m benchmarks`, because it
takes minutes.
"""

import argparse
import resource
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch import Trainer

import graphzoo
from benchmarks.common import RESULTS, Row, peak_mib, write_rows
from graphzoo.datamodules import KGDataModule
from graphzoo.encoders import KnowFormer
from graphzoo.layers.relation_graph import compare_relations
from graphzoo.tasks import KGCompletion

NUM_RELATIONS = 100
QUERIES = 30  # their median is written
CLOCK = time.process_time  # of one thread; other jobs on the machine hardly change it


def write_graph(folder: Path, num_entities: int, num_facts: int) -> None:
    """Write train, validation and test triples as text; every entity occurs."""
    generator = np.random.default_rng(0)
    with open(folder / "train.txt", "w") as file:
        for start in range(0, num_facts, 1_000_000):
            size = min(1_000_000, num_facts - start)
            # the square makes some entities much more frequent than others
            head = (generator.random(size) ** 2 * num_entities).astype(np.int64)
            tail = (np.arange(start, start + size)) % num_entities
            relation = generator.integers(0, NUM_RELATIONS, size)
            file.writelines(
                f"entity{h}\trelation{r}\tentity{t}\n" for h, r, t in zip(head, relation, tail, strict=True)
            )
    for split, number in (("valid", 1), ("test", 2)):
        (folder / f"{split}.txt").write_text(f"entity{number}\trelation{number}\tentity{number + 5}\n")


def main() -> None:
    """Parse the arguments, run all stages, write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--facts", type=int, default=10_000_000)
    parser.add_argument("--gib", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "large_graph.csv")
    args = parser.parse_args()
    if args.entities < 2 or args.facts < 1 or args.gib <= 0:
        parser.error("--entities must be at least 2, --facts at least 1, --gib above 0")
    warnings.filterwarnings("ignore")
    rows: list[Row] = []

    def stage(name: str, began: float) -> None:
        seconds, gib = CLOCK() - began, peak_mib() / 1024
        print(f"{name}: {seconds:.1f} s, peak {gib:.2f} GiB", flush=True)
        config = f"{args.entities} entities, {NUM_RELATIONS} relations, bound {args.gib} GiB"
        for metric, unit, value in (("processor time", "s", seconds), ("peak memory", "GiB", gib)):
            rows.append(
                Row(
                    "large_graph",
                    "graphzoo",
                    name,
                    metric,
                    unit,
                    "facts",
                    str(args.facts),
                    value,
                    value,
                    value,
                    config,
                )
            )

    with tempfile.TemporaryDirectory() as folder:
        write_graph(Path(folder), args.entities, args.facts)
        most = int(args.gib * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        began = CLOCK()
        datamodule = KGDataModule(path=folder, eval_batch_size=1)
        datamodule.setup("validate")
        stage("load", began)
        began = CLOCK()
        datamodule.graph("valid")
        datamodule.answers("valid")
        stage("index", began)
        began = CLOCK()
        trainer = Trainer(
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        found = trainer.validate(KGCompletion(KnowFormer), datamodule=datamodule, verbose=False)[0]
        stage("two queries", began)
        print(f"val/mr {found['val/mr']:.1f} of {args.entities:,} entities")
        began = CLOCK()
        compare_relations(datamodule.graph("valid"))
        stage("compare relations, for knowformer-any", began)
        near = KGDataModule(path=folder, eval_batch_size=1, neighbourhood=300, eval_neighbourhood=1000)
        near._graphs, near._answers = datamodule._graphs, datamodule._answers
        near._message_graphs = datamodule._message_graphs
        trainer.validate(KGCompletion(KnowFormer), datamodule=near, verbose=False)
        trainer.save_checkpoint(Path(folder) / "model.ckpt")
        graph = datamodule.knowledge_graph
        del datamodule, near, trainer
        began = CLOCK()
        model = graphzoo.load(Path(folder) / "model.ckpt", data=graph)
        model.predict("entity1", "relation3", k=10)
        stage("graphzoo.load, and its first answer in neighbourhoods", began)
        times = []
        for head in torch.randint(args.entities, (QUERIES,)).tolist():
            began = CLOCK()
            model.predict(f"entity{head}", "relation3", k=10)
            times.append(CLOCK() - began)
        stage("each answer after that", CLOCK() - statistics.median(times))
    write_rows(args.out, rows)


if __name__ == "__main__":
    main()
