"""A KnowFormer training step (forward, backward and Adam) on real graphs with the recipes' sizes.

    python -m benchmarks.bench_training_step [--sizes umls wn18rr-v1] [--providers graphzoo plain]

Writes results/training_step.csv. `graphzoo` is the model of `graphzoo fit`. `plain` is the same model, loss
and batch in plain torch operations: messages by gather and index_add, all intermediates kept for autograd,
the default allocator. Both have the same loss up to rounding. Each provider is measured in a separate
process, so that peak memory is its own.
"""

import json
from collections.abc import Callable
from importlib import import_module
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import RESULTS, Row, in_process, measure_ms, peak_mib, step_parser, write_rows

# name: data set, queries per batch, hidden channels
SIZES = {
    "umls": ("umls", 64, 32),
    "wn18rr-v1": ("wn18rr-v1", 64, 32),
    "fb15k237-v1": ("fb15k237-v1", 64, 64),
    "nell995-v1": ("nell995-v1", 64, 64),
    "wn18rr": ("wn18rr", 32, 32),
    "fb15k237": ("fb15k237", 96, 32),
    # The cost of a query in micro-batches of other sizes, of which a batch is the sum.
    **{f"wn18rr-of-{count}": ("wn18rr", count, 32) for count in (64, 16, 8, 4)},
    **{f"fb15k237-of-{count}": ("fb15k237", count, 32) for count in (192, 48, 24, 12)},
}
PROVIDERS = ("graphzoo", "plain")


def use_plain_operations() -> None:
    """Replace the encoder's chunked and fused operations by plain ones."""
    from graphzoo.encoders import knowformer
    from graphzoo.ops import RelationalGraph, eager, relational_spmm

    def plain_rows(fn: Callable[..., Any], rows: Any, shared: Any = (), **settings: Any) -> Any:
        return fn(tuple(rows), tuple(shared), 0)

    def plain_spmm(
        x: Tensor, relation: Tensor, graph: RelationalGraph, *, edge_mask: Tensor | None
    ) -> Tensor:
        return relational_spmm(x, relation, graph, edge_mask=edge_mask, backend="naive")

    for op in ("message_update", "prototype_layer", "state_mlp"):
        import_module(f"graphzoo.ops.{op}.naive").map_rows = plain_rows
    eager.runs_compiled = lambda *tensors: False
    eager._has_triton = lambda: False
    knowformer.relational_spmm = plain_spmm


def setup_step(size: str, provider: str, *, half: bool = False) -> tuple[Callable[[], float], str]:
    """The step to time, under bf16 autocast if `half`, and a description of the problem."""
    from graphzoo.datamodules import KGDataModule
    from graphzoo.decoders import EntityDecoder
    from graphzoo.encoders import KnowFormer
    from graphzoo.sampling import FactRemover
    from graphzoo.system.memory import keep_freed_memory

    if provider == "plain":
        use_plain_operations()
    else:
        keep_freed_memory()
    name, batch_size, channels = SIZES[size]
    data = KGDataModule(name, batch_size=batch_size)
    data.prepare_data()
    data.setup("fit")
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = KnowFormer(data.spec, hidden_channels=channels).to(device)
    decoder = EntityDecoder(channels).to(device)
    settings: dict[str, Any] = {
        "lr": 5e-3,
        "weight_decay": 1e-4,
        "fused": True if provider == "graphzoo" and device == "cpu" else None,
    }
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], **settings)
    graph = data.graph("train").to(device)
    remover = FactRemover(data.triples("train"), data.spec.num_nodes).to(device)
    batches = [batch.to(device) for batch in islice(data.train_dataloader(), 50)]
    count = 0

    def step() -> float:
        nonlocal count
        batch = batches[count % len(batches)]
        count += 1
        mask = remover.edge_mask(batch.removed)
        with torch.autocast(device, torch.bfloat16, enabled=half):
            logits = decoder(encoder(graph, batch.head, batch.relation, edge_mask=mask, noise_seed=count))
        loss = torch.nn.functional.cross_entropy(logits.float(), batch.tail)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    problem = f"N={graph.num_nodes} E={graph.num_edges} B={batch_size} D={channels}"
    return step, problem


def measure(size: str, provider: str, seconds: float) -> dict[str, object]:
    step, problem = setup_step(size, provider)
    times = measure_ms(step, seconds=seconds, at_least=3)
    return {"times": times, "peak": peak_mib(), "problem": problem}


def main() -> None:
    parser = step_parser(__doc__, out="training_step.csv", seconds=20.0)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["umls", "wn18rr-v1"])
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, default=list(PROVIDERS))
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(*args.child, args.seconds)))
        return
    rows = []
    for size in args.sizes:
        medians = {}
        for provider in args.providers:
            found = in_process(
                "bench_training_step", (size, provider), seconds=args.seconds, plain=provider == "plain"
            )
            p50, p20, p80 = found["times"]
            medians[provider] = p50
            shared = {
                "name": "training_step",
                "provider": provider,
                "mode": "both",
                "x_name": "data",
                "x": size,
            }
            rows.append(
                Row(metric="time", unit="ms", p50=p50, p20=p20, p80=p80, config=found["problem"], **shared)
            )
            peak = found["peak"]
            rows.append(
                Row(
                    metric="peak_memory",
                    unit="MiB",
                    p50=peak,
                    p20=peak,
                    p80=peak,
                    config=found["problem"],
                    **shared,
                )
            )
            print(f"{size:12} {provider:9} {p50:9.1f} ms  {peak:8.0f} MiB  {found['problem']}")
        if len(medians) == 2:
            ratio = medians["plain"] / medians["graphzoo"]
            print(f"{size:12} graphzoo is {ratio:.2f} times as fast as plain")
            rows.append(
                Row(name="training_step", provider="graphzoo", mode="both", metric="speedup_over_plain",
                unit="ratio",
                    x_name="data", x=size, p50=ratio, p20=ratio, p80=ratio, config=rows[-1].config)
            )  # fmt: skip
    write_rows(RESULTS / args.out, rows)


if __name__ == "__main__":
    main()
