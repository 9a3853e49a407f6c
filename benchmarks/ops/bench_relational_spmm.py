"""The relational SpMM, forward and backward, on the training graphs of UMLS, FB15k-237 and WN18RR.

    python -m benchmarks.ops.bench_relational_spmm [--sizes umls wn18rr] [--providers naive numba]
    python -m benchmarks.ops.bench_relational_spmm --providers numba-64 numba-256 numba-1024 numba \
        --out benchmarks/results/relational_spmm_blocks.csv
    python -m benchmarks.ops.bench_relational_spmm --sizes fb15k-237-query wn18rr-query \
        --providers naive numba-wide numba pyg --out rows.csv

Writes results/relational_spmm.csv. Inverse edges are included. Providers: `numba-masked` masks every
hundredth edge, as training masks the facts of its batch. `numba-64` and the like process that many features
at a time, while `numba` processes up to 2,048 (FB15k-237 has 512 here, WN18RR 1,024). `numba-wide` does not
keep sums of a single query's narrow rows in registers. `naive` multiplies gathered rows and adds them with
index_add. `segment_csr` is torch-scatter on all gathered messages at once, with edges sorted beforehand.
`pyg` is a MessagePassing layer. `scatter` is the package's backend, which uses torch-scatter in blocks.
Each provider is measured in a separate process, so that peak memory is its own. Ratios are relative to the
median of `naive` in the same run.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common import RESULTS, Row, measure_ms, peak_mib, write_rows

# name: data set, trailing dimensions (queries per batch, channels)
SIZES = {
    "umls": ("umls", (64, 32)),
    "fb15k-237": ("fb15k-237", (16, 32)),
    "wn18rr": ("wn18rr", (32, 32)),
    "fb15k-237-query": ("fb15k-237", (1, 32)),
    "wn18rr-query": ("wn18rr", (1, 32)),
}
PROVIDERS = ("naive", "numba", "numba-masked", "scatter", "segment_csr", "pyg", "triton")
BLOCKS = {f"numba-{width}": width for width in (64, 256, 1024)}
MODES = ("forward", "backward", "both")


def setup_relational_spmm(
    size: str, provider: str, features: tuple[int, int] | None = None, dtype: torch.dtype = torch.float32
) -> tuple[Callable[[], Tensor], list[Tensor], str]:
    """The call to time, its leaf tensors, and a description of the problem."""
    from graphzoo.datasets import load_knowledge_graph
    from graphzoo.ops import RelationalGraph, relational_spmm

    data, usual_features = SIZES[size]
    features = features or usual_features
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    knowledge_graph, _ = load_knowledge_graph(data)
    head, relation, tail = knowledge_graph.train.t()
    num_relations = 2 * knowledge_graph.num_relations
    graph = RelationalGraph(
        torch.cat([torch.stack([head, tail]), torch.stack([tail, head])], dim=1).to(device),
        torch.cat([relation, relation + knowledge_graph.num_relations]).to(device),
        knowledge_graph.num_entities,
        num_relations,
    )
    x = torch.randn(graph.num_nodes, *features, device=device, dtype=dtype, requires_grad=True)
    rel = torch.randn(num_relations, *features, device=device, dtype=dtype, requires_grad=True)
    problem = f"N={graph.num_nodes} E={graph.num_edges} R={num_relations} F={features[0]}*{features[1]}"

    if provider == "segment_csr":
        from torch_scatter import segment_csr

        ordering = graph.ordering("target")
        offsets, first, second = ordering.offsets.long(), ordering.first.long(), ordering.second.long()
        return lambda: segment_csr(x[first] * rel[second], offsets, reduce="sum"), [x, rel], problem
    if provider == "pyg":
        from torch_geometric.nn import MessagePassing

        class Layer(MessagePassing):
            def forward(self, x: Tensor, rel: Tensor) -> Tensor:
                return self.propagate(graph.edge_index, x=x, rel=rel, edge_type=graph.edge_type)

            def message(self, x_j: Tensor, rel: Tensor, edge_type: Tensor) -> Tensor:
                return x_j * rel[edge_type]

        layer = Layer(aggr="sum", node_dim=0)
        return lambda: layer(x, rel), [x, rel], problem
    mask = None
    if provider in BLOCKS:
        from graphzoo.ops.relational_spmm import numba

        numba.MAX_BLOCK = BLOCKS[provider]
    elif provider == "numba-wide":
        from graphzoo.ops.relational_spmm import numba

        numba.vectors_of = lambda size: ()
    elif provider == "numba-masked":
        mask = torch.arange(graph.num_edges, device=device) % 100 != 0
    backend = provider.partition("-")[0]
    return lambda: relational_spmm(x, rel, graph, edge_mask=mask, backend=backend), [x, rel], problem


def run_one(size: str, provider: str, seconds: float) -> dict[str, object]:
    """Milliseconds of each mode, and the peak memory that they add to the process."""
    # First with one feature, so that memory of compilers and sorted edges is not counted.
    tiny_call, tiny_leaves, _ = setup_relational_spmm(size, provider, (1, 1))
    torch.autograd.grad(tiny_call().sum(), tiny_leaves)
    call, leaves, problem = setup_relational_spmm(size, provider)
    grad = torch.randn_like(leaves[0])
    before = peak_mib()
    torch.autograd.grad(call(), leaves, grad)
    added = peak_mib() - before

    def backward(out: Tensor) -> list[float]:
        return measure_ms(lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True), seconds=seconds)

    return {
        "forward": measure_ms(call, seconds=seconds),
        "backward": backward(call()),
        "both": measure_ms(lambda: torch.autograd.grad(call(), leaves, grad), seconds=seconds),
        "memory": added,
        "problem": problem,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--providers", nargs="+", choices=[*PROVIDERS, "numba-wide", *BLOCKS], default=None)
    parser.add_argument("--seconds", type=float, default=3.0, help="time per figure, of at least five calls")
    parser.add_argument("--out", default=str(RESULTS / "relational_spmm.csv"))
    parser.add_argument("--one", nargs=2, metavar=("SIZE", "PROVIDER"), help="measure here and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run_one(*arguments.one, arguments.seconds)))
        return
    on_gpu = torch.cuda.is_available()
    other = "numba" if on_gpu else "triton"
    providers = arguments.providers or [name for name in PROVIDERS if not name.startswith(other)]
    rows: list[Row] = []
    for size in arguments.sizes:
        naive: dict[str, float] = {}
        for provider in providers:
            command = [sys.executable, "-m", "benchmarks.ops.bench_relational_spmm", "--one", size, provider]
            load = os.getloadavg()[0]
            done = subprocess.run(
                [*command, "--seconds", str(arguments.seconds)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(f"{size:10} {provider:12} failed: {done.stderr.strip().splitlines()[-1]}")
                continue
            result = json.loads(done.stdout.splitlines()[-1])
            config = f"{result['problem']} float32 threads={torch.get_num_threads()} load_before={load:.1f}"
            common = {
                "name": "relational_spmm",
                "provider": provider,
                "x_name": "size",
                "x": size,
                "config": config,
            }
            line = f"{size:10} {provider:12}"
            for mode in MODES:
                p50, p20, p80 = result[mode]
                rows.append(Row(**common, mode=mode, metric="time", unit="ms", p50=p50, p20=p20, p80=p80))
                line += f"  {mode} {p50:9.2f} ms ({p20:.2f}..{p80:.2f})"
                if provider == "naive":
                    naive[mode] = p50
                if mode in naive:
                    ratios = {"p50": naive[mode] / p50, "p20": naive[mode] / p80, "p80": naive[mode] / p20}
                    rows.append(Row(**common, mode=mode, metric="speedup_over_naive", unit="x", **ratios))
                    line += f" {ratios['p50']:6.1f}x"
            memory = {"p50": result["memory"], "p20": result["memory"], "p80": result["memory"]}
            rows.append(Row(**common, mode="both", metric="peak_memory", unit="MiB", **memory))
            print(f"{line}  +{result['memory']:.0f} MiB", flush=True)
    if not rows:
        sys.exit("nothing measured; the old results stay")
    write_rows(Path(arguments.out), rows)


if __name__ == "__main__":
    main()
