"""Small graphs with missing links, for tests of data modules, tasks and the command."""

import torch
from torch import Tensor

from graphzoo.datasets import LinkGraph, LinkSplit

COMMUNITIES, SIZE = 4, 12
NODES = COMMUNITIES * SIZE


def make_link_graph(
    *, own_negatives: int = 0, features: bool = True, seed: int = 0, **changes: object
) -> LinkGraph:
    """Communities with dense links inside and none between; features are the community plus noise.

    Args:
        own_negatives: Number K of negatives per positive; 0 gives a shared pool, as large as the positives.
        features: Whether nodes have features.
        seed: Of the random graph.
        **changes: Other fields of the graph.
    """
    generator = torch.Generator().manual_seed(seed)
    community = torch.arange(NODES) // SIZE
    u, v = torch.triu_indices(NODES, NODES, 1)
    inside = community[u] == community[v]
    links = torch.stack([u[inside], v[inside]], dim=1)
    links = links[torch.randperm(len(links), generator=generator)]
    links = links[: int(0.7 * len(links))]
    others = torch.stack([u[~inside], v[~inside]], dim=1)
    others = others[torch.randperm(len(others), generator=generator)]
    held = len(links) // 10
    valid = _split(links[:held], others[:200], own_negatives)
    test = _split(links[held : 3 * held], others[200:], own_negatives)
    x = torch.nn.functional.one_hot(community, COMMUNITIES).float()
    x = x + 0.3 * torch.randn(NODES, COMMUNITIES, generator=generator)
    fields: dict[str, object] = {
        "name": "communities",
        "num_nodes": NODES,
        "x": x if features else None,
        "train": links[3 * held :],
        "valid": valid,
        "test": test,
        "is_directed": False,
        "metric": "mrr",
        "protocol": "heart-ours" if own_negatives else "original",
        "valid_edges_at_test": False,
    }
    return LinkGraph(**{**fields, **changes})  # type: ignore[arg-type]


def _split(positive: Tensor, others: Tensor, own_negatives: int) -> LinkSplit:
    if not own_negatives:
        return LinkSplit(positive, others[: len(positive)])
    place = torch.arange(len(positive) * own_negatives) % len(others)
    return LinkSplit(positive, others[place].view(len(positive), own_negatives, 2))
