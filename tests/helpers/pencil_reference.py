"""Reference implementation of PENCIL: one pair and head at a time, with the wide encoding."""

import math

import torch


def encoding(links, max_nodes):
    """(one-hot | adjacency row | role) of N nodes and two task tokens, [N + 2, 2 max_nodes + 2] (Fig. 2)."""
    num_nodes = links.shape[0]
    tokens = torch.zeros(num_nodes + 2, 2 * max_nodes + 2, dtype=torch.float64)
    for i in range(num_nodes):
        tokens[i, i] = 1
        for j in range(num_nodes):
            tokens[i, max_nodes + j] = float(links[i, j])
        tokens[i, 2 * max_nodes] = 1
    for task in (0, 1):
        tokens[num_nodes + task, : 2 * max_nodes] = tokens[task, : 2 * max_nodes]
        tokens[num_nodes + task, 2 * max_nodes + 1] = 1
    return tokens


def square_operator(tokens, max_nodes, norm):
    """The operator of the multiplicative residual, taken from the encoding, [N + 2, N + 2] (App. A)."""
    num_nodes = tokens.shape[0] - 2
    source = tokens[:, max_nodes : max_nodes + num_nodes] + tokens[:, :num_nodes]  # Eq. 6
    operator = torch.cat([source, torch.zeros(num_nodes + 2, 2, dtype=torch.float64)], 1)  # Eq. 7
    degree = operator.sum(1)
    if norm == "row":
        return torch.diag(1 / degree) @ operator
    if norm == "column":
        return operator @ torch.diag(degree**-0.5)
    return operator


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].t() + weights[f"{name}.bias"]


def layer_norm(weights, name, x):
    mean = x.mean(1, keepdim=True)
    variance = ((x - mean) ** 2).mean(1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-12) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def bert_layer(weights, name, h, num_heads, kept=None):
    """T_k; `kept` has the dropout factors of attention [H, T, T], its output and the FFN's output [T, D]."""
    channels = h.shape[1]
    width = channels // num_heads
    query, key, value = linear(weights, f"{name}.query_key_value", h).split(channels, 1)
    heads = []
    for head in range(num_heads):
        part = slice(head * width, (head + 1) * width)
        logits = query[:, part] @ key[:, part].t() / math.sqrt(width)
        attention = logits.exp() / logits.exp().sum(1, keepdim=True)
        if kept is not None:
            attention = attention * kept[0][head]
        heads.append(attention @ value[:, part])
    update = linear(weights, f"{name}.attention_out", torch.cat(heads, 1))
    h = layer_norm(weights, f"{name}.attention_norm", h + (update if kept is None else update * kept[1]))
    update = linear(weights, f"{name}.ffn_out", gelu(linear(weights, f"{name}.ffn_in", h)))
    return layer_norm(weights, f"{name}.ffn_norm", h + (update if kept is None else update * kept[2]))


def encode(
    weights,
    links,
    *,
    max_nodes,
    num_layers,
    num_heads,
    features=None,
    residual_norm="row",
    multiplicative_residual=True,
    position_embedding=False,
    **_,
):
    """States of both task tokens side by side, [2 D], from links [N, N] and features of the N nodes."""
    num_nodes = links.shape[0]
    tokens = encoding(links, max_nodes)
    h = tokens @ weights["projection"]
    if features is not None:
        h = h + linear(weights, "features.linear", torch.cat([features, features[:2]]))
    if position_embedding:
        place = [*range(num_nodes), max_nodes, max_nodes + 1]
        h = h + weights["positions.weight"][place]
    operator = square_operator(tokens, max_nodes, residual_norm)
    for k in range(num_layers):
        h = bert_layer(weights, f"layers.{k}", h, num_heads)
        if multiplicative_residual:
            h = h + linear(weights, f"layers.{k}.propagation", operator @ h)
    return torch.cat([h[num_nodes], h[num_nodes + 1]])
