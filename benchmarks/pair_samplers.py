"""The samplers and graphs of `bench_pair_sampler`."""

from collections.abc import Callable

import torch
from torch import Tensor

SETTINGS = {"pubmed": (2, 16), "ogbl-ddi": (1, 350), "collab-size": (1, 75)}
COLLAB_NODES, COLLAB_EDGES = 235_868, 1_179_052
MICRO_BATCH = 64
# from pairs and seed to the number of nodes of all subgraphs
Work = Callable[[Tensor, int], int]


def load(name: str) -> tuple[Tensor, int]:
    """Distinct edges in both directions, and the number of nodes."""
    if name != "collab-size":
        from graphzoo.datasets import load_link_graph

        graph = load_link_graph({"pubmed": "pubmed-link"}.get(name, name))
        return graph.edge_index("train"), graph.num_nodes
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(COLLAB_NODES, generator=generator).pow(-0.5)
    ends = torch.multinomial(weight, 2 * COLLAB_EDGES, replacement=True, generator=generator).view(2, -1)
    ends = ends[:, ends[0] != ends[1]]
    return torch.cat([ends, ends.flip(0)], 1).unique(dim=1), COLLAB_NODES


def make_pairs(edge_index: Tensor, num_nodes: int, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    links = edge_index[:, torch.randint(edge_index.shape[1], (count // 2,), generator=generator)].t()
    u = torch.randint(num_nodes, (count - count // 2,), generator=generator)
    step = torch.randint(1, num_nodes, u.shape, generator=generator)
    return torch.cat([links, torch.stack([u, (u + step) % num_nodes], 1)]).contiguous()


def graphzoo_sampler(edge_index: Tensor, num_nodes: int, depth: int, num_neighbors: int, mode: str) -> Work:
    from graphzoo.sampling import PairSubgraphSampler

    sampler = PairSubgraphSampler(edge_index, num_nodes, depth=depth, num_neighbors=num_neighbors)

    def one_tensor(pairs: Tensor, seed: int) -> int:
        return int(sampler(pairs, seed=seed).num_nodes.sum())

    def micro_batches(pairs: Tensor, seed: int) -> int:
        samples = sampler.sample(pairs, seed=seed)
        parts = samples.num_nodes.argsort(descending=True).split(MICRO_BATCH)
        return sum(int(samples.pad(rows).num_nodes.sum()) for rows in parts)

    return one_tensor if mode == "one_tensor" else micro_batches


def pyg_k_hop(edge_index: Tensor, num_nodes: int, depth: int, num_neighbors: int, mode: str) -> Work:
    from torch_geometric.data import Batch, Data
    from torch_geometric.utils import k_hop_subgraph

    def work(pairs: Tensor, seed: int) -> int:
        parts = []
        for pair in pairs:
            nodes, edges, _, _ = k_hop_subgraph(
                pair, depth, edge_index, relabel_nodes=True, num_nodes=num_nodes
            )
            parts.append(Data(edge_index=edges, n_id=nodes, num_nodes=nodes.numel()))
        return int(Batch.from_data_list(parts).num_nodes)

    return work


def pyg_sampled(edge_index: Tensor, num_nodes: int, depth: int, num_neighbors: int, mode: str) -> Work:
    from torch_geometric.data import Batch, Data
    from torch_geometric.utils import sort_edge_index, subgraph

    edge_index = sort_edge_index(edge_index, num_nodes=num_nodes)
    degrees = torch.bincount(edge_index[0], minlength=num_nodes)
    rowptr, col = [0, *degrees.cumsum(0).tolist()], edge_index[1]

    def neighbours(node: int) -> Tensor:
        row = col[rowptr[node] : rowptr[node + 1]]
        return row if len(row) <= num_neighbors else row[torch.randperm(len(row))[:num_neighbors]]

    def ego(root: Tensor) -> Tensor:
        seen = frontier = root
        for _ in range(depth):
            drawn = torch.cat([neighbours(node) for node in frontier.tolist()]).unique()
            frontier = drawn[torch.isin(drawn, seen, invert=True)]
            seen = torch.cat([seen, frontier])
            if not frontier.numel():
                break
        return seen

    def work(pairs: Tensor, seed: int) -> int:
        parts = []
        for u, v in pairs[:, :, None]:
            nodes = torch.cat([ego(u), ego(v)]).unique()
            edges, _ = subgraph(nodes, edge_index, relabel_nodes=True, num_nodes=num_nodes)
            parts.append(Data(edge_index=edges, n_id=nodes, num_nodes=nodes.numel()))
        return int(Batch.from_data_list(parts).num_nodes)

    return work


def pyg_shadow(edge_index: Tensor, num_nodes: int, depth: int, num_neighbors: int, mode: str) -> Work:
    from torch_geometric.data import Data
    from torch_geometric.loader import ShaDowKHopSampler

    loader = ShaDowKHopSampler(
        Data(edge_index=edge_index, num_nodes=num_nodes), depth, num_neighbors, batch_size=1
    )
    collate = loader.collate_fn

    def work(pairs: Tensor, seed: int) -> int:
        return int(collate(pairs.flatten().tolist()).batch.numel())

    return work


PROVIDERS = {
    "graphzoo": graphzoo_sampler,
    "pyg_sampled": pyg_sampled,
    "pyg_k_hop": pyg_k_hop,
    "pyg_shadow": pyg_shadow,
}


def is_available(provider: str) -> bool:
    """Whether the provider's backend is installed; prints a message if not."""
    if provider != "pyg_shadow":
        return True
    from torch_geometric.typing import WITH_TORCH_SPARSE

    if not WITH_TORCH_SPARSE:
        print("pyg_shadow: NOT MEASURED, ShaDowKHopSampler needs torch-sparse, which is not installed")
    return bool(WITH_TORCH_SPARSE)
