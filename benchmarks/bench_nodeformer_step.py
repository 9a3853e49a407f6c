"""A NodeFormer training step (forward, edge loss, backward and Adam) with the published settings for Cora.

    python -m benchmarks.bench_nodeformer_step [--sizes cora 10k 40k 160k] [--providers graphzoo plain]

Writes results/nodeformer_step.csv. `cora` is the data set; the others are random graphs of growing size with
five edges per node. `graphzoo` is the model of `graphzoo fit`. `plain` is the same model in plain torch
operations, like the published code: all noisy copies of the features at once, features gathered for both
ends of every edge, all intermediates kept for autograd, dense input. Each figure is measured in a separate
process, so that peak memory is its own.

CPU time is that of all threads. On shared cores it is more reliable than wall-clock time; `load` in the
table is the number of running processes.
"""

import json
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.common import RESULTS, Row, in_process, peak_mib, step_parser, write_rows
from graphzoo.encoders import NodeFormer
from graphzoo.encoders import nodeformer as module
from graphzoo.ops import SparseMatrix
from graphzoo.types import GraphSpec

NODES = {"cora": 2_708, "10k": 10_000, "40k": 40_000, "160k": 160_000}
PROVIDERS = ("graphzoo", "plain")
SETTINGS = {"hidden_channels": 32, "num_layers": 2, "num_heads": 4, "num_random_features": 30, "rb_order": 2}


def plain_features(x: Tensor, projection: Tensor, *, tau: float, is_query: bool) -> Tensor:
    scaled = x / (tau**0.5 * x.shape[-1] ** 0.25)
    projected = scaled @ projection.t()
    largest = projected.amax(-1 if is_query else (0, 2), keepdim=True)
    exponent = projected - scaled.square().sum(-1, keepdim=True) / 2 - largest
    return (torch.exp(exponent) + 1e-6) / projection.shape[0] ** 0.5


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, *, tau: float, gumbel: Tensor | None
) -> Tensor:
    assert gumbel is not None
    noisy = key[:, :, None] * torch.exp(gumbel / tau)[..., None]  # [N, H, K, M]
    mixed = torch.einsum("nhm,hkmd->nhkd", query, torch.einsum("nhkm,nhd->hkmd", noisy, value))
    return (mixed / torch.einsum("nhm,hkm->nhk", query, noisy.sum(0))[..., None]).mean(2)


def plain_edge_weights(query: Tensor, key: Tensor, pattern: SparseMatrix) -> Tensor:
    row, column = pattern.row_of_entry(), pattern.col.long()
    denominator = torch.einsum("nhm,hm->nh", query, key.sum(0))[row]
    return (torch.einsum("ehm,ehm->eh", query[row], key[column]) / denominator).log()


def use_plain_operations() -> None:
    module.random_features_at = plain_features
    module.attend_features = plain_attention
    module.edge_log_weights = plain_edge_weights
    module._SPARSE_SHARE = -1.0


def load(size: str) -> tuple[Tensor, Tensor, Tensor]:
    """Features, edges and classes."""
    if size == "cora":
        from graphzoo.datasets import load_node_graph

        graph = load_node_graph("cora")
        return graph.x, graph.edge_index, graph.y
    num_nodes = NODES[size]
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(num_nodes, (2, num_nodes * 5 // 2), generator=generator)
    x = torch.randn(num_nodes, 128, generator=generator)
    return x, torch.cat([pairs, pairs.flip(0)], 1), torch.randint(7, (num_nodes,), generator=generator)


def setup_step(size: str, provider: str) -> tuple[Callable[[], float], str]:
    """The step to time, and a description of the problem."""
    from graphzoo.system.memory import keep_freed_memory

    if provider == "plain":
        use_plain_operations()
    else:
        keep_freed_memory()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, edge_index, y = load(size)
    if provider == "plain" and x.layout is not torch.strided:
        x = x.to_dense()
    x, edge_index, y = x.to(device), edge_index.to(device), y.to(device)
    torch.manual_seed(0)
    encoder = NodeFormer(GraphSpec(num_nodes=x.shape[0], in_channels=x.shape[1]), **SETTINGS).to(device)
    decoder = torch.nn.Linear(encoder.out_channels, int(y.max()) + 1).to(device)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, weight_decay=5e-3)
    precomputed = encoder.precompute(x, edge_index)
    target = torch.randperm(x.shape[0], generator=torch.Generator().manual_seed(0))[: x.shape[0] // 2].to(
        device
    )

    def step() -> float:
        states, edge_loss = encoder.forward_with_auxiliary(x, None, **precomputed)
        loss = torch.nn.functional.cross_entropy(decoder(states)[target], y[target]) + edge_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    first, second = (order.nnz for order in precomputed["adjacency"])
    return step, f"N={x.shape[0]} F={x.shape[1]} E={first}+{second} threads={torch.get_num_threads()}"


def measure(size: str, provider: str, seconds: float) -> dict[str, object]:
    step, problem = setup_step(size, provider)
    before = peak_mib()
    wall, cpu = [], []
    for i in range(202):
        clock, spent = time.perf_counter(), time.process_time()
        step()  # ends with a value on the host, which waits for the GPU
        if i >= 2:
            wall.append((time.perf_counter() - clock) * 1e3)
            cpu.append((time.process_time() - spent) * 1e3)
        if len(wall) >= 3 and sum(wall) > seconds * 1e3:
            break
    peak = peak_mib()
    quantiles = [statistics.quantiles(times, n=5, method="inclusive") for times in (wall, cpu)]
    found = [
        (metric, "ms", statistics.median(times), cut[0], cut[3])
        for metric, times, cut in zip(("time", "cpu_time"), (wall, cpu), quantiles, strict=True)
    ]
    found += [(name, "MiB", m, m, m) for name, m in (("peak_memory", peak), ("step_memory", peak - before))]
    return {"found": found, "problem": f"{problem} load={os.getloadavg()[0]:.1f}"}


def main() -> None:
    parser = step_parser(__doc__, out="nodeformer_step.csv", seconds=15.0)
    parser.add_argument("--sizes", nargs="+", choices=NODES, default=list(NODES))
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, default=list(PROVIDERS))
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(*args.child, args.seconds)))
        return
    rows = []
    for size in args.sizes:
        for provider in args.providers:
            if provider == "plain" and NODES[size] > 10_000:
                continue  # it takes several GiB and shows nothing new
            result = in_process(
                "bench_nodeformer_step", (size, provider), seconds=args.seconds, plain=provider == "plain"
            )
            for metric, unit, p50, p20, p80 in result["found"]:
                rows.append(
                    Row(name="nodeformer_step", provider=provider, mode="both", metric=metric, unit=unit,
                        x_name="data", x=size, p50=p50, p20=p20, p80=p80, config=result["problem"])
                )  # fmt: skip
                print(f"{size:5} {provider:9} {metric:12} {p50:9.1f} {unit:4} {result['problem']}")
    write_rows(RESULTS / args.out, rows)


if __name__ == "__main__":
    main()
