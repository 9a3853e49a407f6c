"""NBFNet of the benchmark against its definition, pair by pair and message by message."""

import pytest
import torch
from torch.nn import functional as F

from benchmarks.link_nbfnet import CHANNELS, NBFNet

NODES = 30


def scores(model, edges, pairs):
    source, target = torch.cat([edges, torch.arange(NODES).expand(2, -1)], dim=1)
    size = (torch.bincount(target, minlength=NODES) + 1).float()[:, None]
    scale = size.log() / size.log().mean()

    def found(start, end):
        boundary = torch.zeros(NODES, CHANNELS).index_put((start[None],), model.query[None])
        x = boundary
        for layer in model.layers:
            messages = torch.cat([x[source] * layer.relation, boundary])
            of_node = torch.cat([target, torch.arange(NODES)])
            rows = [messages[of_node == node] for node in range(NODES)]
            if layer.sums:
                total = torch.stack([row.sum(0) for row in rows])
                x = x + F.relu(layer.norm(layer.linear(torch.cat([x, total], dim=1))))
                continue
            mean = torch.stack([row.mean(0) for row in rows])
            deviation = torch.stack([(row**2).mean(0) for row in rows]) - mean**2
            parts = [
                mean,
                *(torch.stack([getattr(row, f"a{of}")(0) for row in rows]) for of in ("max", "min")),
            ]
            reduced = torch.cat([*parts, deviation.clamp(min=1e-6).sqrt()], dim=1)
            seen = torch.cat([x, reduced, reduced * scale, reduced / scale.clamp(min=1e-2)], dim=1)
            x = x + F.relu(layer.norm(layer.linear(seen)))
        return torch.cat([x[end], model.query])

    return torch.cat([model.score((found(u, v) + found(v, u)) / 2) for u, v in pairs.t()])


@pytest.mark.parametrize("sums", [False, True])
def test_scores_and_gradients_are_those_of_the_definition(sums):
    torch.manual_seed(0)
    links = torch.randint(NODES - 2, (2, 45))  # repeated ones too, and two nodes without any
    links = links[:, links[0] != links[1]]
    edges = torch.cat([links, links.flip(0)], dim=1)
    model, pairs = NBFNet(sums=sums), torch.tensor([[0, 3, 8], [5, 4, 29]])
    expected = scores(model, edges, pairs)
    given = model(edges, NODES, *pairs)
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)
    weights = torch.tensor([1.0, -2.0, 0.5])
    for name, one, other in zip(
        dict(model.named_parameters()),
        torch.autograd.grad((given * weights).sum(), [*model.parameters()]),
        torch.autograd.grad((expected * weights).sum(), [*model.parameters()]),
        strict=True,
    ):
        assert float((one - other).norm()) < 1e-4 * float(other.norm()) + 1e-6, name
