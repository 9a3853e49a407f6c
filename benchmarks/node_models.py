"""Graphs and training epochs for `bench_node_models`: graphzoo's encoders and PyG's models of equal size."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, DEPTH = 64, 2
PROVIDERS = ("galit", "galit-mcos", "nodeformer", "nodeformer-plain", "sgformer", "polynormer", "gcn")
REAL = ("cora", "pubmed")


@dataclass(frozen=True)
class Size:
    """A random graph.

    Args:
        num_nodes: Number of nodes N.
        num_pairs: Number of linked pairs; `edge_index` has each in both directions.
        num_features: Number of features F.
        num_classes: Number of classes C.
    """

    num_nodes: int
    num_pairs: int
    num_features: int = 128
    num_classes: int = 40


SCALING = {f"{n // 1000}k": Size(n, 7 * n) for n in (10_000, 30_000, 100_000, 300_000, 1_000_000)}
SIZES = {
    "arxiv": Size(169_343, 1_166_243),
    "arxiv-double-edges": Size(169_343, 2 * 1_166_243),
    **SCALING,
}
# Sizes for the memory of a GPU. As in the papers, Pokec's edges count in both directions, Amazon2M's once.
GPU_SIZES = {
    "pokec": Size(1_632_803, 30_622_564 // 2, 65, 2),
    "amazon2m": Size(2_449_029, 61_859_140, 100, 47),
}


def load(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Features [N, F], edges in both directions [2, E] and classes [N]."""
    if name in REAL:
        from graphzoo.datasets import load_node_graph

        graph = load_node_graph(name)
        return (
            graph.x.to_dense() if graph.x.layout is not torch.strided else graph.x,
            graph.edge_index,
            graph.y,
        )
    size = {**SIZES, **GPU_SIZES}[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size.num_nodes, size.num_features, generator=generator)
    pairs = torch.randint(size.num_nodes, (2, size.num_pairs), generator=generator)
    y = torch.randint(size.num_classes, (size.num_nodes,), generator=generator)
    return x, torch.cat([pairs, pairs.flip(0)], 1), y


def epoch(provider: str, x: Tensor, edge_index: Tensor, y: Tensor, autocast: bool) -> Callable[[], float]:
    """A step of forward, backward and Adam on the whole graph with all nodes; it returns the loss."""
    torch.manual_seed(0)
    num_classes = int(y.max()) + 1
    build = _graphzoo if provider.startswith(("galit", "nodeformer")) else _pyg
    modules, forward = build(provider, x, edge_index, num_classes)
    modules = modules.to(x.device).train()
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3, weight_decay=5e-4)

    def step() -> float:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
            logits, auxiliary = forward()
        # PyG's models end with log_softmax; applying it twice changes nothing.
        loss = F.cross_entropy(logits.float(), y) + auxiliary
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())  # a value on the host, which waits for the GPU

    return step


Forward = Callable[[], tuple[Tensor, Tensor | float]]


def galit(x: Tensor, similarity: str = "cos") -> nn.Module:
    from graphzoo.encoders import GALiT
    from graphzoo.types import GraphSpec

    spec = GraphSpec(x.shape[0], in_channels=x.shape[1])
    return GALiT(spec, hidden_channels=WIDTH, num_layers=DEPTH, similarity=similarity)


def _graphzoo(provider: str, x: Tensor, edge_index: Tensor, num_classes: int) -> tuple[nn.Module, Forward]:
    """graphzoo's encoders as in `graphzoo fit`: results that depend only on the graph are computed once."""
    from graphzoo.encoders import NodeFormer
    from graphzoo.tasks.prepared_graph import PreparedGraph
    from graphzoo.types import GraphSpec

    if provider.startswith("galit"):
        encoder = galit(x, "mcos" if provider == "galit-mcos" else "cos")
    else:
        spec = GraphSpec(x.shape[0], in_channels=x.shape[1])
        # rb_order=1 uses the edges only, like the other models; ten Gumbel samples, thirty random features
        settings = {"hidden_channels": WIDTH, "num_layers": DEPTH, "num_heads": 1, "rb_order": 1}
        encoder = NodeFormer(spec, dropout=0.5, **settings)
        if provider == "nodeformer-plain":
            from benchmarks.bench_nodeformer_step import use_plain_operations

            use_plain_operations()
    decoder = nn.Linear(WIDTH, num_classes)
    encoder.to(x.device)
    graph = PreparedGraph(encoder, x, edge_index, x.device)
    if provider == "nodeformer-plain":
        graph.x = x
    del edge_index

    def forward() -> tuple[Tensor, Tensor | float]:
        states, auxiliary = encoder.forward_with_auxiliary(graph.x, graph.edge_index, **graph.precomputed)
        return decoder(states), 0.0 if auxiliary is None else auxiliary

    return nn.ModuleList([encoder, decoder]), forward


def _pyg(provider: str, x: Tensor, edge_index: Tensor, num_classes: int) -> tuple[nn.Module, Forward]:
    """PyG's models as in its documentation, with one head and `DEPTH` layers of each kind."""
    from torch_geometric.nn.models import GCN, Polynormer, SGFormer

    batch = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
    shape = (x.shape[1], WIDTH, num_classes)
    if provider == "gcn":
        model: nn.Module = GCN(x.shape[1], WIDTH, DEPTH, num_classes, dropout=0.5)
        return model, lambda: (model(x, edge_index), 0.0)
    if provider == "sgformer":
        model = SGFormer(*shape, trans_num_layers=DEPTH, gnn_num_layers=DEPTH)
    else:
        model = Polynormer(*shape, local_layers=DEPTH, global_layers=DEPTH)
        model._global = True  # the second phase of training, with global attention
    return model, lambda: (model(x, edge_index, batch), 0.0)
