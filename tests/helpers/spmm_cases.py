"""Backends, random graphs and a float64 reference for the tests of the relational SpMM."""

import importlib.util

import pytest
import torch

from graphzoo.ops import RelationalGraph, relational_spmm


def backend_device(backend):
    return torch.device("cuda" if backend == "triton" and torch.cuda.is_available() else "cpu")


FAST_BACKENDS = [
    "numba",
    pytest.param(
        "triton",
        marks=pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed"),
    ),
    pytest.param(
        "scatter",
        marks=pytest.mark.skipif(
            not importlib.util.find_spec("torch_scatter"), reason="torch-scatter is not installed"
        ),
    ),
]


def random_graph(num_nodes, num_edges, num_relations):
    """Random edges with a hub and a frequent relation, usually with repeated edges, loops, isolated nodes."""
    edge_index = torch.randint(num_nodes, (2, num_edges))
    edge_index[1, : num_edges // 3] = num_nodes // 2
    edge_type = torch.randint(num_relations, (num_edges,))
    edge_type[num_edges // 2 :] = num_relations - 1
    order = torch.randperm(num_edges)
    return RelationalGraph(edge_index[:, order], edge_type[order], num_nodes, num_relations)


def run(backend, x, relation, graph, edge_mask, grad):
    """Output and both gradients, on the CPU."""
    device = backend_device(backend)
    x = x.detach().to(device).requires_grad_()
    relation = relation.detach().to(device).requires_grad_()
    edge_mask = None if edge_mask is None else edge_mask.to(device)
    out = relational_spmm(x, relation, graph.to(device), edge_mask=edge_mask, backend=backend)
    out.backward(grad.to(device))
    return out.detach().cpu(), x.grad.cpu(), relation.grad.cpu()


def reference(x, relation, graph, edge_mask, grad):
    """The same by the definition: a Python loop over edges in float64, without code of the package."""
    x, relation, grad = x.detach().double(), relation.detach().double(), grad.double()
    out, grad_x, grad_relation = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(relation)
    edges = zip(*graph.edge_index.tolist(), graph.edge_type.tolist(), strict=True)
    for e, (u, v, r) in enumerate(edges):
        if edge_mask is None or edge_mask[e]:
            out[v] += x[u] * relation[r]
            grad_x[u] += grad[v] * relation[r]
            grad_relation[r] += grad[v] * x[u]
    return out, grad_x, grad_relation
