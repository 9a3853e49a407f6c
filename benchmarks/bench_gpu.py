"""Times and memory on a GPU, compared with alternatives from PyG and Hugging Face. It takes some minutes.

    python -m benchmarks.bench_gpu [--parts spmm knowformer nodes pencil] [--seconds 1]

Replaces the rows of these parts in results/gpu.csv. A figure that fails is reported and left out. Memory is
the peak that torch allocates during a step, minus what was allocated before it.

    spmm        the relational SpMM of FB15k-237, WN18RR and UMLS, forward and backward: Triton kernels,
                gathered rows and index_add (`naive`), PyG's MessagePassing
    knowformer  a training step: forward, backward and Adam, in float32 (TF32) and under bf16 autocast;
                `plain` is the same model in plain torch operations, in micro-batches that fit
    nodes       a training epoch on the whole graph: GALiT and NodeFormer, PyG's SGFormer, Polynormer, GCN
    pencil      training and inference per pair: ours in float32 (TF32) and bf16, Hugging Face's BERT layers
                on one-hot input (`hf_sorted`: batches of similar size), PyG's GAT
"""

import argparse
import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import RESULTS, Row, measure_ms, peak_mib, read_rows, write_rows

Calls = list[tuple[str, str, Callable[[], Any]]]  # provider, mode, call to measure
Figures = tuple[
    str, str, Callable[[], tuple[Calls, str, float]]
]  # x, provider, setup that returns calls, problem and units per call
PARTS = ("spmm", "knowformer", "nodes", "pencil")


def spmm_figures() -> Iterator[Figures]:
    from benchmarks.ops.bench_relational_spmm import setup_relational_spmm

    def setup(size: str, provider: str) -> tuple[Calls, str, float]:
        backend, _, half = provider.partition("-")
        dtype = torch.bfloat16 if half else torch.float32
        call, leaves, problem = setup_relational_spmm(size, backend, dtype=dtype)
        grad = torch.randn_like(leaves[0])
        both = lambda: torch.autograd.grad(call(), leaves, grad)  # noqa: E731
        return [(provider, "forward", call), (provider, "both", both)], problem, 1.0

    for size in ("umls", "fb15k-237", "wn18rr"):
        for provider in ("triton", "triton-bf16", "naive", "pyg"):
            yield size, provider, partial(setup, size, provider)


def knowformer_figures() -> Iterator[Figures]:
    from benchmarks.bench_training_step import SIZES, setup_step

    def setup(size: str, provider: str) -> tuple[Calls, str, float]:
        name, _, half = provider.partition("-")
        step, problem = setup_step(size, name, half=bool(half))
        return [(provider, "training, per query", step)], problem, float(SIZES[size][1])

    small = ("umls", "wn18rr-v1", "fb15k237-v1", "fb15k237-of-24", "wn18rr-of-16")
    for size in (*small, "fb15k237-of-192", "wn18rr-of-64"):
        for provider in ("graphzoo", "graphzoo-bf16"):
            yield size, provider, partial(setup, size, provider)
    for size in small:  # last, because these operations replace ours for the rest of the process
        yield size, "plain", partial(setup, size, "plain")


def node_figures() -> Iterator[Figures]:
    from benchmarks.node_models import PROVIDERS, epoch, galit, load

    @lru_cache(maxsize=1)
    def loaded(graph: str) -> list[Tensor]:
        return [tensor.cuda() for tensor in load(graph)]

    def setup(graph: str, provider: str) -> tuple[Calls, str, float]:
        x, edge_index, y = loaded(graph)
        problem = f"N={x.shape[0]} F={x.shape[1]} E={edge_index.shape[1]} C={int(y.max()) + 1} D=64 L=2"
        calls: Calls = [(provider, "epoch", epoch(provider, x, edge_index, y, False))]
        if provider == "galit":
            encoder = galit(x).cuda()
            calls.append((provider, "denoise", lambda: encoder.precompute(x, edge_index)))
        return calls, problem, 1.0

    for graph in ("pubmed", "arxiv", "pokec"):
        for provider in PROVIDERS:
            if provider != "nodeformer-plain":
                yield graph, provider, partial(setup, graph, provider)


def pencil_figures() -> Iterator[Figures]:
    from benchmarks.bench_pencil_step import CASES, setup

    # CiteSeer and PubMed with the paper's widths. Table 10 gives no width, so it has PubMed's.
    cases = {
        "citeseer-1024": replace(CASES["citeseer-384"], width=1024, num_pairs=2048, micro_batch=256),
        "pubmed-512": replace(CASES["pubmed"], width=512, num_pairs=512, micro_batch=128),
        "table10-3": replace(CASES["table10-3"], width=512),
        "table10-8": replace(CASES["table10-8"], width=512),
    }

    def prepare(case: str, provider: str) -> tuple[Calls, str, float]:
        all_pairs, _, problem = setup(cases[case], provider, "cuda")
        modes = (("training", True), ("inference", False))
        calls: Calls = [(provider, f"{mode}, per pair", partial(all_pairs, flag)) for mode, flag in modes]
        return calls, problem, float(cases[case].num_pairs)

    for case in cases:
        for provider in ("graphzoo", "graphzoo_bf16", "hf", "hf_bf16", "hf_sorted_bf16", "gat"):
            yield case, provider, partial(prepare, case, provider)


def measure(call: Callable[[], Any], share: float, seconds: float) -> tuple[list[float], float]:
    """Milliseconds per unit of work (median, 20 % and 80 % quantile), and peak MiB."""
    call()
    before = torch.cuda.memory_allocated() / 2**20
    torch.cuda.reset_peak_memory_stats()
    times = [time / share for time in measure_ms(call, seconds=seconds)]
    return times, peak_mib() - before


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=1.0, help="time to spend on each figure")
    parser.add_argument("--out", default="gpu.csv", help="file name below results/")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU is visible to torch")  # no error, so that `make bench` continues
        return 0
    torch.set_float32_matmul_precision("high")  # as in the graphzoo command
    made = {
        "spmm": spmm_figures,
        "knowformer": knowformer_figures,
        "nodes": node_figures,
        "pencil": pencil_figures,
    }
    path = RESULTS / args.out
    rows = [row for row in read_rows(path) if row.name not in args.parts]
    for part in args.parts:
        for x, name, set_up in made[part]():
            gc.collect()
            torch.cuda.empty_cache()
            try:
                calls, problem, share = set_up()
                for provider, mode, call in calls:
                    (p50, p20, p80), peak = measure(call, share, args.seconds)
                    common = {"provider": provider, "mode": mode, "x_name": "data", "x": x, "config": problem}
                    rows.append(Row(name=part, metric="time", unit="ms", p50=p50, p20=p20, p80=p80, **common))
                    memory = {"metric": "step_memory", "unit": "MiB", "p50": peak, "p20": peak, "p80": peak}
                    rows.append(Row(name=part, **memory, **common))
                    print(
                        f"{part:10} {x:16} {provider:15} {mode:20} {p50:10.4g} ms  {peak:8.0f} MiB",
                        flush=True,
                    )
            except Exception as error:  # such as out of memory; the other figures are still measured
                print(f"{part:10} {x:16} {name:15} {type(error).__name__}: {str(error)[:150]}", flush=True)
            calls, call = [], None  # free their tensors before the next setup
            write_rows(path, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
