"""A small graph with labels, and its file."""

import numpy as np
import torch


def small_parts(seed=0, *, num_nodes=60, num_classes=3, num_features=12):
    """Arrays x, edge_index, y and three masks; features and edges depend on the class."""
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
    """Write the graph to an .npz file; `changes` replace arrays, and None omits them."""
    parts = {**small_parts(), **changes}
    np.savez(path, **{name: value for name, value in parts.items() if value is not None})
    return str(path)


def yes_no_labels(num_nodes=60, num_labels=4, seed=1):
    """Labels [N, C] of 0, 1 and NaN; every label has both values in every part of the split."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(num_nodes, num_labels, generator=generator) < 0.5).float()
    y[torch.rand(num_nodes, num_labels, generator=generator) < 0.2] = float("nan")
    return y.numpy()
