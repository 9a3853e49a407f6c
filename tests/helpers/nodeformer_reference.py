"""Reference implementation of NodeFormer: one node and head at a time, explicit N x N matrices."""

import math

import torch


def pattern_powers(edge_index, num_nodes, num_orders):
    """A_1 with self-loops, and the patterns of its repeated squares; an edge u -> v is in row v, column u."""
    pattern = torch.eye(num_nodes, dtype=torch.float64)
    for source, target in edge_index.t().tolist():
        pattern[target, source] = 1
    powers = [pattern]
    for _ in range(num_orders - 1):
        powers.append((powers[-1] @ powers[-1] > 0).double())
    return powers[:num_orders]


def normalized(pattern):
    degree = pattern.sum(1)
    return degree.rsqrt()[:, None] * pattern * degree.rsqrt()


def phi(x, projection, stabiliser):
    exponent = x @ projection.t() - x.square().sum(1, keepdim=True) / 2 - stabiliser
    return (torch.exp(exponent) + 1e-6) / math.sqrt(projection.shape[0])


def kernel(query, key, projection, tau):
    """phi(q_u) phi(k_v) of one head, [N, N]."""
    scale = math.sqrt(tau) * query.shape[1] ** 0.25
    query, key = query / scale, key / scale
    largest_of_queries = (query @ projection.t()).max(1, keepdim=True).values
    largest_of_keys = (key @ projection.t()).max()
    return phi(query, projection, largest_of_queries) @ phi(key, projection, largest_of_keys).t()


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].t() + weights[f"{name}.bias"]


def layer_norm(weights, name, x):
    if f"{name}.weight" not in weights:
        return x
    mean = x.mean(1, keepdim=True)
    variance = ((x - mean) ** 2).mean(1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def elu(x):
    return torch.where(x > 0, x, torch.expm1(x))


def encode(
    weights,
    x,
    edge_index,
    draws,
    *,
    num_heads=4,
    tau=0.25,
    rb_order=2,
    rb_transform="sigmoid",
    residual=True,
    activation=False,
    jumping_knowledge=False,
    **_,
):
    """States, the mean over layers of L_edge, and the attention matrices [L][H] of [N, N].

    `draws` has, for each layer, the random directions [M, D] and the Gumbel noise [N, H, K] or None.
    """
    num_nodes = x.shape[0]
    patterns = pattern_powers(edge_index, num_nodes, max(rb_order, 1))
    h = elu(layer_norm(weights, "norms.0", linear(weights, "lin_in", x)))
    states, edge_losses, attention = [h], [], []
    for i, (projection, gumbel) in enumerate(draws):
        name = f"layers.{i}"
        channels = h.shape[1]
        qkv = linear(weights, f"{name}.query_key_value", h).split(num_heads * channels, dim=1)
        queries, keys, values = (part.split(channels, dim=1) for part in qkv)
        heads, matrices = [], []
        for head in range(num_heads):
            products = kernel(queries[head], keys[head], projection, tau)
            matrices.append(products / products.sum(1, keepdim=True))
            if gumbel is None:
                z = matrices[-1] @ values[head]
            else:
                z = 0
                for sample in gumbel[:, head].t():
                    noisy = products * torch.exp(sample / tau)
                    z = z + noisy / noisy.sum(1, keepdim=True) @ values[head] / gumbel.shape[2]
            for order in range(rb_order):
                strength = weights[f"{name}.relational_bias"][order, head]
                if rb_transform == "sigmoid":
                    strength = torch.sigmoid(strength)
                z = z + strength * normalized(patterns[order]) @ values[head]
            heads.append(z)
        update = linear(weights, f"{name}.out", torch.cat(heads, 1))
        h = layer_norm(weights, f"norms.{i + 1}", update + h if residual else update)
        h = elu(h) if activation else h
        states.append(h)
        attention.append(matrices)
        terms = [
            torch.log(matrix[v, u]) / patterns[0][v].sum()
            for matrix in matrices
            for v, u in patterns[0].nonzero().tolist()
        ]
        edge_losses.append(torch.stack(terms).mean())
    out = torch.cat(states, 1) if jumping_knowledge else h
    return out, torch.stack(edge_losses).mean(), attention
