"""Reference implementation of KnowFormer: one query and edge at a time, explicit N x N attention."""

import math

import torch


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].t() + weights[f"{name}.bias"]


def layer_norm(weights, name, x):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def mlp(weights, name, x):
    return linear(weights, f"{name}.lin2", torch.relu(linear(weights, f"{name}.lin1", x)))


def messages(z, vectors, edges):
    aggregated = torch.zeros_like(z)
    for head, relation, tail in edges:
        aggregated[tail] += z[head] * vectors[relation]
    return aggregated


def message_layer(weights, name, z, vectors, edges):
    mixed = messages(z, vectors, edges) + weights[f"{name}.alpha"] * z
    return z + layer_norm(weights, f"{name}.norm", mlp(weights, name, mixed))


def kernel(q, k, norm):
    """kappa of Eq. 9 for one head, [N, N]."""
    if norm == "l2":
        q, k = q / q.norm(dim=1, keepdim=True), k / k.norm(dim=1, keepdim=True)
    elif norm == "fro":
        q, k = q / q.norm(), k / k.norm()
    else:  # exponential, Eq. 7
        return torch.exp(q @ k.t() / math.sqrt(q.shape[1]))
    return 1 + q @ k.t()


def attend(q, k, v, norm):
    """D^-1 [V + kappa V / N] of Eq. 10 for one head."""
    num_nodes = q.shape[0]
    weights = kernel(q, k, norm) / num_nodes
    return (v + weights @ v) / (1 + weights.sum(1, keepdim=True))


def random_features(x, projection):
    """phi of one head, [N, M]: phi(q) phi(k)^T / M tends to exp(q k^T / sqrt(D))."""
    x = x / x.shape[1] ** 0.25
    return torch.exp(x @ projection.t() - x.square().sum(1, keepdim=True) / 2)


def attend_by_features(q, k, v, projection):
    num_nodes, num_features = q.shape[0], projection.shape[0]
    weights = random_features(q, projection) @ random_features(k, projection).t() / num_features / num_nodes
    return (v + weights @ v) / (1 + weights.sum(1, keepdim=True))


def encode(weights, edges, num_nodes, head, relation, noise, settings):
    """States [N, D] of one query without dropout; `noise` is [L, N]."""
    channels, num_heads = settings["hidden_channels"], settings["num_heads"]
    query = weights["relation_embedding.weight"][relation]
    x = torch.zeros(num_nodes, channels, dtype=query.dtype)
    for i in range(settings["num_layers"]):
        name = f"layers.{i}"
        indicator = torch.zeros_like(x)
        indicator[head] = 1
        z = mlp(weights, f"{name}.value_net", torch.cat([x, indicator], 1))
        for j in range(settings["num_value_layers"] if settings["value_net"] else 0):
            vectors = linear(weights, f"{name}.value_net.relations.{j}", query).view(-1, channels)
            z = message_layer(weights, f"{name}.value_net.layers.{j}", z, vectors, edges)
        value = z
        if settings["attention"] == "none":
            out = value
        else:
            z = x
            if settings["query_net"]:
                z = mlp(weights, f"{name}.query_net", torch.cat([x, noise[i][:, None]], 1))
                for j in range(settings["num_query_layers"]):
                    vectors = linear(weights, f"{name}.query_net.relation", query).view(-1, channels)
                    z = message_layer(weights, f"{name}.query_net.layers.{j}", z, vectors, edges)
            q, k = linear(weights, f"{name}.query_key", z).chunk(2, dim=1)
            heads = zip(*(part.chunk(num_heads, dim=1) for part in (q, k, value)), strict=True)
            if settings["attention"] == "random_features":
                projection = weights[f"{name}.projection"]
                out = torch.cat([attend_by_features(*head_qkv, projection) for head_qkv in heads], dim=1)
            else:
                norm = settings["norm"] if settings["attention"] == "prototype" else "exponential"
                out = torch.cat([attend(*head_qkv, norm) for head_qkv in heads], dim=1)
        x = layer_norm(weights, f"{name}.norm1", x + out)
        hidden = torch.relu(linear(weights, f"{name}.ffn1", x))
        x = layer_norm(weights, f"{name}.norm2", x + linear(weights, f"{name}.ffn2", hidden))
    return x
