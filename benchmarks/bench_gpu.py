"""What takes how long on a GPU, beside what a user would write or take instead. One process, some minutes.

    python -m benchmarks.bench_gpu [--parts spmm knowformer nodes pencil] [--seconds 1]

Writes results/gpu.csv, part by part: a figure that fails is told and left out. Memory is what torch
allocated at most during the figure, beyond what was there before it.

    spmm        the relational SpMM of FB15k-237, WN18RR and UMLS, forward and backward: Triton kernels,
                gathered rows that are index-added (`naive`), PyG's MessagePassing
    knowformer  a training step: forward, backward and Adam, in float32 (TF32) and under bf16 autocast;
                `plain` is the same model tensor by tensor, in micro-batches that fit
    nodes       a training epoch on the whole graph: GALiT and NodeFormer, PyG's SGFormer, Polynormer, GCN
    pencil      training and inference per pair: ours in float32 (TF32) and bf16, Hugging Face's BERT layers
                on literal one-hot input (`hf_sorted`: batches of similar size), PyG's GAT
"""

import argparse
import gc
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from benchmarks.common import RESULTS, Row, measure_ms, peak_mib, write_rows

Figure = tuple[str, str, str, Callable[[], tuple[Callable[[], Any], str, float]]]  # x, provider, mode, set up
PARTS = ("spmm", "knowformer", "nodes", "pencil")


def autocast(dtype: str) -> Any:
    return torch.autocast("cuda", torch.bfloat16) if dtype == "bf16" else nullcontext()


def spmm_figures() -> Iterator[Figure]:
    from benchmarks.ops.bench_relational_spmm import setup_relational_spmm

    def setup(size: str, provider: str, mode: str) -> tuple[Callable[[], Any], str, float]:
        backend, _, dtype = provider.partition("-")
        call, leaves, problem = setup_relational_spmm(
            size, backend, dtype=torch.bfloat16 if dtype else torch.float32
        )
        if mode == "forward":
            return call, problem, 1.0
        grad = torch.randn_like(leaves[0])
        return lambda: torch.autograd.grad(call(), leaves, grad), problem, 1.0

    for size in ("umls", "fb15k-237", "wn18rr"):
        for provider in ("triton", "triton-bf16", "naive", "pyg"):
            for mode in ("forward", "both"):
                yield size, provider, mode, lambda s=size, p=provider, m=mode: setup(s, p, m)


def knowformer_figures() -> Iterator[Figure]:
    from benchmarks.bench_training_step import SIZES, setup_step

    # the plain operations replace ours for good, so they come last
    ours = (
        "umls",
        "wn18rr-v1",
        "fb15k237-v1",
        "wn18rr-of-16",
        "fb15k237-of-24",
        "wn18rr-of-64",
        "fb15k237-of-192",
    )
    runs = [(size, provider) for size in ours for provider in ("graphzoo", "graphzoo-bf16")]
    runs += [(size, "plain") for size in ours[:5]]

    def setup(size: str, provider: str) -> tuple[Callable[[], Any], str, float]:
        name, _, dtype = provider.partition("-")
        step, problem = setup_step(size, name)

        def run() -> float:
            with autocast(dtype):
                return step()

        return run, problem, float(SIZES[size][1])

    for size, provider in runs:
        yield size, provider, "training, per query", lambda s=size, p=provider: setup(s, p)


def node_figures() -> Iterator[Figure]:
    from benchmarks.node_models import epoch, galit, load

    def setup(graph: str, provider: str) -> tuple[Callable[[], Any], str, float]:
        x, edge_index, y = (tensor.cuda() for tensor in load(graph))
        problem = f"N={x.shape[0]} F={x.shape[1]} E={edge_index.shape[1]} C={int(y.max()) + 1} D=64 L=2"
        if provider == "galit denoising":
            encoder = galit(x).cuda()
            return lambda: encoder.precompute(x, edge_index), problem, 1.0
        return epoch(provider, x, edge_index, y, False), problem, 1.0

    for graph in ("pubmed", "arxiv", "pokec"):
        for provider in (
            "galit",
            "galit denoising",
            "galit-mcos",
            "nodeformer",
            "sgformer",
            "polynormer",
            "gcn",
        ):
            yield graph, provider, "epoch", lambda g=graph, p=provider: setup(g, p)


def pencil_figures() -> Iterator[Figure]:
    from benchmarks.bench_pencil_step import CASES, setup

    # widths of the papers: CiteSeer's recipe, and Table 10 (whose width is not given there)
    cases = {
        "citeseer-1024": replace(CASES["citeseer-384"], width=1024, num_pairs=2048, micro_batch=256),
        "pubmed-512": replace(CASES["pubmed"], width=512, num_pairs=512, micro_batch=128),
        "table10-3": replace(CASES["table10-3"], width=512),
        "table10-8": replace(CASES["table10-8"], width=512),
    }

    def prepare(case: str, provider: str, training: bool) -> tuple[Callable[[], Any], str, float]:
        all_pairs, _, problem = setup(cases[case], provider, "cuda")
        return lambda: all_pairs(training), problem, float(cases[case].num_pairs)

    for case in cases:
        for provider in ("graphzoo", "graphzoo_bf16", "hf", "hf_bf16", "hf_sorted_bf16", "gat"):
            for mode in ("training", "inference"):
                made = lambda c=case, p=provider, m=mode: prepare(c, p, m == "training")  # noqa: E731
                yield case, provider, f"{mode}, per pair", made


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=1.0, help="time to spend on each figure")
    parser.add_argument("--out", default="gpu.csv", help="file name below results/")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no GPU is visible to torch")
    torch.set_float32_matmul_precision("high")  # as the graphzoo command does
    made = {
        "spmm": spmm_figures,
        "knowformer": knowformer_figures,
        "nodes": node_figures,
        "pencil": pencil_figures,
    }
    rows: list[Row] = []
    for part in args.parts:
        for x, provider, mode, set_up in made[part]():
            gc.collect()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated() / 2**20
            try:
                call, problem, share = set_up()
                call()
                torch.cuda.reset_peak_memory_stats()
                times = [time / share for time in measure_ms(call, seconds=args.seconds)]
                peak = peak_mib() - before
            except Exception as error:  # out of memory, say: the others are still measured
                print(
                    f"{part:10} {x:16} {provider:16} {mode:20} {type(error).__name__}: {str(error)[:200]}",
                    flush=True,
                )
                times, peak, problem = [math.nan] * 3, math.nan, f"failed: {type(error).__name__}"
            common = {"provider": provider, "mode": mode, "x_name": "data", "x": x, "config": problem}
            p50, p20, p80 = times
            rows.append(Row(name=part, metric="time", unit="ms", p50=p50, p20=p20, p80=p80, **common))
            rows.append(
                Row(name=part, metric="peak_memory", unit="MiB", p50=peak, p20=peak, p80=peak, **common)
            )
            call = set_up = None  # type: ignore[assignment]
            print(f"{part:10} {x:16} {provider:16} {mode:20} {p50:10.4g} ms  {peak:8.0f} MiB", flush=True)
            write_rows(RESULTS / args.out, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
