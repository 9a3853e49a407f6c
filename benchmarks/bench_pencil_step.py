"""Training and inference of PENCIL, compared with the same model of Hugging Face's BERT layers and PyG's GAT.

    python -m benchmarks.bench_pencil_step [--cases citeseer pubmed table10] [--providers graphzoo hf ...]

Writes results/pencil_step.csv. Pairs are training links and as many random ones, with subgraphs of the
published sampler. Times do not include sampling or the one-hot encoding for Hugging Face's model. A step is
forward, binary cross-entropy and backward for each micro-batch, then AdamW.

    graphzoo         as in `graphzoo fit`: micro-batches of similar size, grouped further by the encoder
    graphzoo_bf16    the same under autocast, as with `--trainer bf16`
    graphzoo_random  micro-batches in random order, which the encoder groups by size
    graphzoo_equal   micro-batches of similar size, padded to their largest subgraph, like hf_sorted
    hf               one-hot input, BertLayer, micro-batches in random order, padded to their largest
    hf_sorted        the same, micro-batches of similar size
    gat              PyG's GATConv on batched graphs, with the same layers, width and heads

`epoch_time` is the time per pair times the pairs of an epoch (links and as many others). `padding` is the
number of computed tokens per real one. Each provider is measured in a separate process, so that peak memory
is its own. CPU time is that of all threads. On shared cores it is more reliable than wall-clock time; `load`
in the table is the number of running processes.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common import RESULTS, Row, peak_mib, write_rows
from graphzoo.encoders import PENCIL
from graphzoo.encoders import pencil as module
from graphzoo.types import GraphSpec, PairSubgraphs


@dataclass(frozen=True)
class Case:
    data: str
    depth: int
    num_neighbors: int
    max_nodes: int
    num_layers: int
    width: int
    num_pairs: int
    micro_batch: int = 64


# max_nodes is about the size of the largest subgraph, as in the paper.
CASES = {
    "citeseer": Case("citeseer", 2, 20, 200, num_layers=2, width=128, num_pairs=512),
    "citeseer-256": Case("citeseer", 2, 20, 200, num_layers=2, width=256, num_pairs=256),
    "citeseer-384": Case("citeseer", 2, 20, 174, num_layers=2, width=384, num_pairs=256),
    "pubmed": Case("pubmed", 2, 16, 350, num_layers=8, width=128, num_pairs=128),
    # Table 10 with a width for the CPU and batches of 100.
    "table10-3": Case("pubmed", 1, 75, 152, num_layers=3, width=128, num_pairs=200, micro_batch=100),
    "table10-8": Case("pubmed", 1, 75, 152, num_layers=8, width=128, num_pairs=200, micro_batch=100),
}
PROVIDERS = ("graphzoo", "graphzoo_bf16", "graphzoo_random", "graphzoo_equal", "hf", "hf_sorted", "gat")
NUM_HEADS = 8


class HuggingFacePencil(nn.Module):
    """PENCIL like its authors' code: one-hot encoding, `BertLayer`, the operator taken from the encoding."""

    def __init__(self, encoder: PENCIL) -> None:
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertLayer

        super().__init__()
        settings = encoder.init_args
        self.max_nodes, self.projection = encoder.max_nodes, encoder.projection
        config = BertConfig(
            hidden_size=settings["hidden_channels"],
            num_attention_heads=settings["num_heads"],
            intermediate_size=settings["ffn_channels"],
            hidden_dropout_prob=settings["dropout"],
            attention_probs_dropout_prob=settings["dropout"],
        )
        config._attn_implementation = "sdpa"
        self.layers = nn.ModuleList(BertLayer(config) for _ in encoder.layers)
        self.propagations = nn.ModuleList(
            nn.Linear(encoder.hidden_channels, encoder.hidden_channels) for _ in encoder.layers
        )
        self.to(encoder.projection.dtype)
        for theirs, propagation, ours in zip(self.layers, self.propagations, encoder.layers, strict=True):
            attention = theirs.attention
            maps = (attention.self.query, attention.self.key, attention.self.value)
            for part, (weight, bias) in zip(
                maps,
                zip(ours.query_key_value.weight.chunk(3), ours.query_key_value.bias.chunk(3), strict=True),
                strict=True,
            ):
                part.load_state_dict({"weight": weight, "bias": bias})
            for part, own in (
                (attention.output.dense, ours.attention_out),
                (attention.output.LayerNorm, ours.attention_norm),
                (theirs.intermediate.dense, ours.ffn_in),
                (theirs.output.dense, ours.ffn_out),
                (theirs.output.LayerNorm, ours.ffn_norm),
                (propagation, ours.propagation),
            ):
                part.load_state_dict(own.state_dict())

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """States [B, 2 D] from encoding [B, S + 2, 2 N_max + 2] and mask [B, S + 2], True for real tokens."""
        num_nodes = tokens.shape[1] - 2
        source = tokens[:, :, self.max_nodes : self.max_nodes + num_nodes] + tokens[:, :, :num_nodes]
        operator = F.pad(source, (0, 2))
        operator = operator / operator.sum(-1, keepdim=True).clamp_min(1)
        hidden = tokens @ self.projection
        for layer, propagation in zip(self.layers, self.propagations, strict=True):
            found = layer(hidden, attention_mask=mask[:, None, None])
            states = found[0] if isinstance(found, tuple) else found
            hidden = states + propagation(operator @ states)
        return hidden[:, -2:].flatten(1)


def literal_encoding(subgraphs: PairSubgraphs, max_nodes: int) -> tuple[Tensor, Tensor]:
    """(one-hot | adjacency | role) of all tokens, and a mask that is True for real tokens."""
    pairs, num_nodes = subgraphs.nodes.shape
    valid = torch.arange(num_nodes) < subgraphs.num_nodes[:, None]
    tokens = torch.zeros(pairs, num_nodes + 2, 2 * max_nodes + 2)
    tokens[:, :num_nodes, :num_nodes] = torch.diag_embed(valid.float())
    tokens[:, :num_nodes, max_nodes : max_nodes + num_nodes] = subgraphs.adjacency.float()
    tokens[:, num_nodes:] = tokens[:, :2]
    tokens[:, :num_nodes, -2] = valid.float()
    tokens[:, num_nodes:, -1] = 1
    return tokens, F.pad(valid, (0, 2), value=True)


class BatchedGat(nn.Module):
    """GAT on the subgraphs of a batch as one graph; a node's input is an embedding of its position."""

    def __init__(self, case: Case) -> None:
        from torch_geometric.nn import GATConv

        super().__init__()
        self.places = nn.Embedding(case.max_nodes, case.width)
        self.layers = nn.ModuleList(
            GATConv(case.width, case.width // NUM_HEADS, heads=NUM_HEADS, dropout=0.1)
            for _ in range(case.num_layers)
        )

    def forward(self, place: Tensor, edge_index: Tensor, first: Tensor) -> Tensor:
        """States [B, 2 D] from positions of nodes [N], edges [2, E] and the indices of all u [B]."""
        hidden = self.places(place)
        for layer in self.layers:
            hidden = F.dropout(F.elu(layer(hidden, edge_index)), 0.1, self.training)
        return torch.cat([hidden[first], hidden[first + 1]], 1)


def batched_graph(subgraphs: PairSubgraphs) -> tuple[Tensor, Tensor, Tensor]:
    valid = torch.arange(subgraphs.nodes.shape[1]) < subgraphs.num_nodes[:, None]
    number = torch.zeros(valid.shape, dtype=torch.int64)
    number[valid] = torch.arange(int(valid.sum()))
    pair, row, column = subgraphs.adjacency.nonzero().t()
    return valid.nonzero()[:, 1], torch.stack([number[pair, row], number[pair, column]]), number[:, 0]


def load(case: Case) -> tuple[PairSubgraphs, Tensor, int]:
    """Subgraphs of links and other pairs in random order, their labels, and the pairs in an epoch."""
    from graphzoo.datasets import load_link_graph
    from graphzoo.sampling import PairSubgraphSampler

    graph = load_link_graph(f"{case.data}-link")
    sampler = PairSubgraphSampler(
        graph.edge_index("train"),
        graph.num_nodes,
        depth=case.depth,
        num_neighbors=case.num_neighbors,
        max_nodes=case.max_nodes,
    )
    generator = torch.Generator().manual_seed(0)
    half = case.num_pairs // 2
    links = graph.train[torch.randperm(len(graph.train), generator=generator)[:half]]
    others = torch.randint(graph.num_nodes, (half, 2), generator=generator)
    order = torch.randperm(2 * half, generator=generator)
    label = torch.arange(2 * half) < half
    return sampler(torch.cat([links, others])[order], seed=0), label[order].float(), 2 * len(graph.train)


def cut(subgraphs: PairSubgraphs, size: int, by_size: bool) -> list[tuple[PairSubgraphs, Tensor]]:
    """Micro-batches, each padded to its largest subgraph, with their rows."""

    def picked(counts: tuple[int, ...] | None, rows: Tensor) -> tuple[int, ...] | None:
        return None if counts is None else tuple(counts[i] for i in rows.tolist())

    count = len(subgraphs)
    order = torch.argsort(subgraphs.num_nodes, stable=True) if by_size else torch.arange(count)
    batches = []
    for rows in order.split(size):
        width = int(subgraphs.num_nodes[rows].max())
        batch = PairSubgraphs(
            subgraphs.nodes[rows, :width],
            subgraphs.adjacency[rows, :width, :width],
            subgraphs.num_nodes[rows],
            *(picked(counts, rows) for counts in (subgraphs.sizes, subgraphs.near, subgraphs.links)),
        )
        batches.append((batch, rows))
    return batches


def computed_tokens(batches: list[tuple[PairSubgraphs, Tensor]], grouped: bool) -> int:
    total = 0
    for batch, _ in batches:
        width = batch.nodes.shape[1]
        groups = module._groups_of_size(batch) if grouped else None
        total += sum(len(pairs) * (size + 2) for pairs, size, *_ in groups or [(batch.num_nodes, width)])
    return total


def setup(
    case: Case, provider: str, device: str = "cpu"
) -> tuple[Callable[[bool], None], dict[str, float], str]:
    """A pass over all pairs (argument: training), counts known beforehand, a description of the problem."""
    torch.manual_seed(0)
    subgraphs, label, pairs_per_epoch = load(case)
    spec = GraphSpec(num_nodes=1, max_subgraph_nodes=case.max_nodes)
    encoder: nn.Module = PENCIL(
        spec,
        hidden_channels=case.width,
        num_layers=case.num_layers,
        num_heads=NUM_HEADS,
        ffn_channels=4 * case.width,
    )
    batches = cut(
        subgraphs, case.micro_batch, provider.removesuffix("_bf16") not in ("graphzoo_random", "hf", "gat")
    )
    tokens = int((subgraphs.num_nodes + 2).sum())
    padding = computed_tokens(batches, provider in ("graphzoo", "graphzoo_bf16", "graphzoo_random")) / tokens
    inputs: list[tuple[Any, ...]] = [(batch,) for batch, _ in batches]
    if provider.startswith("hf"):
        encoder = HuggingFacePencil(encoder)
        inputs = [literal_encoding(batch, case.max_nodes) for batch, _ in batches]
    elif provider == "gat":
        encoder, padding = BatchedGat(case), 1.0
        inputs = [batched_graph(batch) for batch, _ in batches]
    elif provider == "graphzoo_equal":
        module._MIN_TOKENS = (2**62, 2**62)
    decoder = nn.Linear(2 * case.width, 1)
    encoder, decoder, label = encoder.to(device), decoder.to(device), label.to(device)
    inputs = [tuple(part.to(device) for part in given) for given in inputs]
    batches = [(batch, rows.to(device)) for batch, rows in batches]
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)

    def all_pairs(training: bool) -> None:
        encoder.train(training)
        with torch.set_grad_enabled(training):
            for given, (_, rows) in zip(inputs, batches, strict=True):
                with torch.autocast(device, torch.bfloat16, enabled=provider.endswith("bf16")):
                    logits = decoder(encoder(*given)).squeeze(1).float()
                if training:
                    loss = F.binary_cross_entropy_with_logits(logits, label[rows], reduction="sum")
                    (loss / len(label)).backward()
        if training:
            optimizer.step()
            optimizer.zero_grad()

    problem = (
        f"({case.depth}, {case.num_neighbors}) D={case.width} L={case.num_layers} N_max={case.max_nodes} "
        f"pairs={len(label)} micro_batch={case.micro_batch} "
        f"mean_nodes={subgraphs.num_nodes.float().mean():.1f} threads={torch.get_num_threads()}"
    )
    known = {"padding": padding, "pairs_per_epoch": float(pairs_per_epoch)}
    known["parameters"] = float(sum(weight.numel() for weight in encoder.parameters()))
    return all_pairs, known, problem


def measure(name: str, provider: str, seconds: float) -> dict[str, object]:
    from graphzoo.system.memory import keep_freed_memory

    keep_freed_memory()
    case = CASES[name]
    all_pairs, known, problem = setup(case, provider)
    before, found = peak_mib(), []
    for mode, training in (("inference", False), ("training", True)):
        wall: list[float] = []
        cpu: list[float] = []
        for i in range(50):
            clock, spent = time.perf_counter(), time.process_time()
            all_pairs(training)
            if i:
                wall.append(time.perf_counter() - clock)
                cpu.append(time.process_time() - spent)
            if len(wall) >= 2 and sum(wall) > seconds:
                break
        per_pair = 1e3 / case.num_pairs
        for metric, times in (("time", wall), ("cpu_time", cpu)):
            cuts = statistics.quantiles(times, n=5, method="inclusive")
            values = [value * per_pair for value in (statistics.median(times), cuts[0], cuts[3])]
            found.append((mode, metric, "ms/pair", *values))
            if training:
                epoch = [value * known["pairs_per_epoch"] / 1e3 for value in values]
                found.append((mode, f"epoch_{metric}", "s", *epoch))
    peak = peak_mib() - before
    found += [
        ("training", metric, unit, value, value, value)
        for metric, unit, value in (
            ("step_memory", "MiB", peak),
            ("padding", "tokens/token", known["padding"]),
            ("parameters", "count", known["parameters"]),
        )
    ]
    return {"found": found, "problem": f"{problem} load={os.getloadavg()[0]:.1f}"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, default=list(PROVIDERS))
    parser.add_argument("--seconds", type=float, default=10.0, help="time to spend on each figure")
    parser.add_argument("--out", default="pencil_step.csv", help="file name below results/")
    parser.add_argument("--child", nargs=2, metavar=("CASE", "PROVIDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(*args.child, args.seconds)))
        return
    providers = list(args.providers)
    if importlib.util.find_spec("transformers") is None:
        providers = [provider for provider in providers if not provider.startswith("hf")]
        print("skipped: hf, hf_sorted (pip install transformers)")
    rows = []
    for case in args.cases:
        for provider in providers:
            command = [sys.executable, "-m", "benchmarks.bench_pencil_step", "--seconds", str(args.seconds)]
            done = subprocess.run(
                [*command, "--child", case, provider], stdout=subprocess.PIPE, text=True, check=True
            )
            result = json.loads(done.stdout.splitlines()[-1])
            for mode, metric, unit, p50, p20, p80 in result["found"]:
                rows.append(
                    Row(name="pencil_step", provider=provider, mode=mode, metric=metric, unit=unit,
                        x_name="case", x=case, p50=p50, p20=p20, p80=p80, config=result["problem"])
                )  # fmt: skip
                print(f"{case:12} {provider:15} {mode:9} {metric:14} {p50:12.3f} {unit}", flush=True)
            write_rows(RESULTS / args.out, rows)


if __name__ == "__main__":
    main()
