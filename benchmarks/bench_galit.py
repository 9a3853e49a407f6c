"""GALiT on random graphs of growing size: time and memory of denoising and of a training step.

    python -m benchmarks.bench_galit [--sizes 10000 40000 160000] [--seconds 10]

Writes results/galit.csv. The graphs have 14 edges and 128 features per node, like ogbn-arxiv. A step is
forward, backward and Adam of two layers with 64 channels. `graphzoo` is the library; `quadratic` is the same
encoder with the N x N attention matrix, up to 10,000 nodes. Each figure is measured in a separate process.
Memory is the peak minus the peak after a graph of 100 nodes in the same process. The last rows are slopes of
log time and log memory over log N: 1 is linear, 2 is quadratic.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.common import RESULTS, Row, in_process, measure_ms, peak_mib, step_parser, write_rows

EDGES_PER_NODE, CHANNELS, HIDDEN = 14, 128, 64
SIMILARITIES = ("cos", "mcos")
QUADRATIC_NODES = 10_000  # the largest graph for `quadratic`
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_graph(num_nodes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_nodes, CHANNELS, generator=generator)
    edges = torch.randint(0, num_nodes, (2, EDGES_PER_NODE * num_nodes // 2), generator=generator)
    return x.to(DEVICE), torch.cat([edges, edges.flip(0)], 1).to(DEVICE)


def use_quadratic_attention() -> None:
    """Replace the attention of the encoder by the explicit matrix (Eq. 15 and 2)."""
    from graphzoo.encoders import galit

    def quadratic(
        states: Tensor, value: Tensor, query_map: tuple[Tensor, ...], *_: object, **__: object
    ) -> Tensor:
        query = galit.similarity_map(states, query_map, 0)
        query = query / query.norm(dim=1, keepdim=True).clamp_min(1e-12)
        weights = 1 + query @ query.t()
        return (weights / weights.sum(1, keepdim=True)) @ value

    galit.averaged_cosine_attention = quadratic


def training_step(num_nodes: int, similarity: str) -> Callable[[], object]:
    from graphzoo.encoders import GALiT
    from graphzoo.types import GraphSpec

    torch.manual_seed(0)
    x, edge_index = make_graph(num_nodes)
    encoder = GALiT(
        GraphSpec(num_nodes, in_channels=CHANNELS),
        hidden_channels=HIDDEN,
        num_layers=2,
        similarity=similarity,
    ).to(DEVICE)
    denoised = encoder.precompute(x, edge_index)["denoised"]
    del edge_index
    decoder = torch.nn.Linear(HIDDEN, 40).to(DEVICE)
    y = torch.randint(0, 40, (num_nodes,), device=DEVICE)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(decoder(encoder(x, denoised=denoised)), y).backward()
        optimizer.step()

    return step


def preprocessing(num_nodes: int, mode: str) -> Callable[[], object]:
    from graphzoo.ops import cached_denoise, denoise_features

    x, edge_index = make_graph(num_nodes)
    if mode == "denoise":
        return lambda: denoise_features(x, edge_index, gamma=0.1, num_iterations=10)
    folder = tempfile.TemporaryDirectory()

    def call(_keep: object = folder) -> object:
        return cached_denoise(x, edge_index, gamma=0.1, num_iterations=10, cache=folder.name)

    call()
    return call


def measure(num_nodes: int, provider: str, mode: str, seconds: float) -> dict[str, object]:
    if provider == "quadratic":
        use_quadratic_attention()
    build = preprocessing if mode in ("denoise", "from_cache") else training_step
    build(100, mode)()
    before = peak_mib()
    call = build(num_nodes, mode)
    call()
    memory = peak_mib() - before
    return {"times": measure_ms(call, seconds=seconds, at_least=3), "memory": memory}


def slope(points: dict[int, float]) -> float:
    """Slope of the least-squares line through the logarithms."""
    xs, ys = ([math.log(value) for value in values] for values in zip(*points.items(), strict=True))
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)


def main() -> None:
    parser = step_parser(__doc__, out="galit.csv", seconds=10.0)
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 40_000, 160_000])
    args = parser.parse_args()
    if args.child:
        nodes, provider, mode = args.child
        print(json.dumps(measure(int(nodes), provider, mode, args.seconds)))
        return
    rows = []
    wanted = [(mode, "graphzoo") for mode in ("denoise", "from_cache", *SIMILARITIES)]
    for mode, provider in [*wanted, ("mcos", "quadratic")]:
        times, memory = {}, {}
        sizes = [n for n in args.sizes if provider == "graphzoo" or n <= QUADRATIC_NODES]
        for nodes in sizes:
            load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
            found = in_process("bench_galit", (nodes, provider, mode), seconds=args.seconds, plain=False)
            config = (
                f"E={EDGES_PER_NODE * nodes} F={CHANNELS} D={HIDDEN} K=10 L=2 "
                f"threads={torch.get_num_threads()} load_before={load}"
            )
            shared = {
                "name": "galit",
                "provider": provider,
                "mode": mode,
                "x_name": "num_nodes",
                "x": str(nodes),
            }
            p50, p20, p80 = found["times"]
            times[nodes], memory[nodes] = p50, found["memory"]
            rows.append(Row(metric="time", unit="ms", p50=p50, p20=p20, p80=p80, config=config, **shared))
            m = found["memory"]
            rows.append(Row(metric="memory", unit="MiB", p50=m, p20=m, p80=m, config=config, **shared))
            print(f"{mode:10} {provider:9} N={nodes:<8} {p50:9.1f} ms {m:8.0f} MiB", flush=True)
        if len(times) > 1:
            for metric, points in (("slope_of_time", times), ("slope_of_memory", memory)):
                s = slope(points)
                shared = {
                    "name": "galit",
                    "provider": provider,
                    "mode": mode,
                    "x_name": "num_nodes",
                    "x": "all",
                }
                rows.append(Row(metric=metric, unit="ratio", p50=s, p20=s, p80=s, config=config, **shared))
                print(f"{mode:10} {provider:9} {metric} {s:.2f}")
    write_rows(RESULTS / args.out, rows)


if __name__ == "__main__":
    main()
