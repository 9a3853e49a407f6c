"""A small graph with labels, and the files it is read from."""

import numpy as np
import torch


def small_parts(seed=0, *, num_nodes=60, num_classes=3, num_features=12):
    """Arrays of a graph whose features and edges tell the class: x, edge_index, y and three masks."""
    generator = np.random.default_rng(seed)
    y = np.arange(num_nodes) % num_classes
    x = generator.random((num_nodes, num_features)).astype(np.float32) * 0.5
    x[np.arange(num_nodes), y] += 1.0
    source = generator.integers(0, num_nodes, 4 * num_nodes)
    steps = generator.integers(1, num_nodes // num_classes, 4 * num_nodes) * num_classes
    edge_index = np.unique(np.sort([source, (source + steps) % num_nodes], axis=0), axis=1)
    place = np.arange(num_nodes) // num_classes % 4
    masks = {"train_mask": place < 2, "val_mask": place == 2, "test_mask": place == 3}
    return {"x": x, "edge_index": edge_index, "y": y, **masks}


def write_npz(path, **changes):
    """The graph as an .npz file; `changes` replace its arrays, None drops them."""
    parts = {**small_parts(), **changes}
    np.savez(path, **{name: value for name, value in parts.items() if value is not None})
    return str(path)


def yes_no_labels(num_nodes=60, num_labels=4, seed=1):
    """[N, C] of 0, 1 and NaN; every label has both answers in every part of the split."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(num_nodes, num_labels, generator=generator) < 0.5).float()
    y[torch.rand(num_nodes, num_labels, generator=generator) < 0.2] = float("nan")
    return y.numpy()
