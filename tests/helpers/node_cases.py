"""All node encoders with several settings, and a graph for them."""

import torch

from graphzoo.encoders import GNN, MLP, SGC, GALiT, NodeFormer, Polynormer, SGFormer, SGFormerPyG

WIDE = {"hidden_channels": 12}
CASES = {
    "galit": (GALiT, WIDE),
    "nodeformer": (NodeFormer, {"dropout": 0.5, **WIDE}),
    "gcn": (GNN, {"kind": "gcn", "input_dropout": 0.4, **WIDE}),
    "gat": (GNN, {"kind": "gat", "input_dropout": 0.4, "num_heads": 3, **WIDE}),
    "sage": (GNN, {"kind": "sage", "input_dropout": 0.4, **WIDE}),
    "sgc": (SGC, {}),
    "sgc-mapped": (SGC, WIDE),
    "mlp": (MLP, {"num_layers": 2, **WIDE}),
    "mlp-denoised": (MLP, {"denoise": True, "input_dropout": 0.2, **WIDE}),
    "sgformer": (SGFormer, WIDE),
    "sgformer-bare": (SGFormer, {"layer_norm": False, "alpha": 1.0, "value_map": False, **WIDE}),
    "sgformer-cat": (SGFormer, {"aggregate": "cat", "num_heads": 3, **WIDE}),
    "sgformer-pyg": (SGFormerPyG, WIDE),
    "sgformer-pyg-cat": (SGFormerPyG, {"aggregate": "cat", "num_heads": 3, **WIDE}),
    "polynormer": (Polynormer, {"num_layers": 2, **WIDE}),
    "polynormer-gat": (Polynormer, {"num_layers": 2, "local_attention": True, "pre_norm": True, **WIDE}),
}


def graph(num_nodes=30, channels=9):
    # every node has an in-edge, as needed by GAT without self-loops
    ring = torch.stack([torch.arange(num_nodes), torch.arange(num_nodes).roll(1)])
    edge_index = torch.cat([ring, torch.randint(0, num_nodes, (2, 2 * num_nodes))], 1)
    x = torch.randn(num_nodes, channels) * (torch.rand(num_nodes, channels) < 0.5)
    return x, torch.unique(torch.cat([edge_index, edge_index.flip(0)], 1), dim=1)
