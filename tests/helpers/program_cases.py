"""Models and graphs for the tests of exported programs."""

import torch

from graphzoo.encoders import GNN, MLP, SGC, GALiT, NodeFormer

SMALL = {"hidden_channels": 8, "num_layers": 2}
NODES = {
    "galit": lambda spec: GALiT(spec, num_heads=2, similarity="mcos", **SMALL),
    "galit fro": lambda spec: GALiT(spec, norm="fro", **SMALL),
    "nodeformer": lambda spec: NodeFormer(spec, rb_order=1, num_heads=2, **SMALL),
    "nodeformer two steps": lambda spec: NodeFormer(spec, rb_order=2, **SMALL),
    "nodeformer four steps": lambda spec: NodeFormer(spec, rb_order=3, num_heads=2, **SMALL),
    "nodeformer without edges": lambda spec: NodeFormer(spec, rb_order=0, edge_loss_weight=0, **SMALL),
    "mlp": lambda spec: MLP(spec, **SMALL),
    "sgc": lambda spec: SGC(spec),
    "gcn": lambda spec: GNN(spec, kind="gcn", **SMALL),
    "gat": lambda spec: GNN(spec, kind="gat", num_heads=2, **SMALL),
}


def trained(task, spec):
    """A built task whose weights differ from their initial values."""
    task.build(spec)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return task.eval()


def a_graph(num_nodes=40, num_features=5):
    """Features and distinct edges in both directions, without self-loops."""
    pairs = torch.combinations(torch.arange(num_nodes))
    pairs = pairs[torch.randperm(len(pairs))[: 3 * num_nodes]].t()
    return torch.rand(num_nodes, num_features), torch.cat([pairs, pairs.flip(0)], 1)
