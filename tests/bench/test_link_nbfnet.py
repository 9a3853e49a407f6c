"""The benchmark's NBFNet, compared with its definition for single pairs and messages."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from benchmarks import link_nbfnet
from benchmarks.link_nbfnet import CHANNELS, NBFNet
from graphzoo.datasets import LinkSplit

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
    links = torch.randint(NODES - 2, (2, 45))  # some are repeated; two nodes have none
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


def test_a_training_with_other_settings_is_not_continued(tmp_path, monkeypatch, capsys):
    nodes = torch.arange(12)
    pairs = torch.stack([nodes, (nodes + 1) % 12], dim=1)
    split = LinkSplit(pairs[:4], torch.stack([nodes[:4], nodes[:4] + 6], dim=1))
    graph = SimpleNamespace(
        train=pairs, valid=split, test=split, num_nodes=12,
        edge_index=lambda split: torch.cat([pairs, pairs.flip(1)]).t(),
    )  # fmt: skip
    monkeypatch.setattr(link_nbfnet, "load_link_graph", lambda *args, **options: graph)
    first = link_nbfnet.run("cora-link", 0, 0, 1, tmp_path, sums=False)
    assert first[:2] == [1, 1] and len((tmp_path / "epochs.csv").read_text().splitlines()) == 1
    assert link_nbfnet.run("cora-link", 0, 0, 1, tmp_path, sums=False) == first
    monkeypatch.setattr(link_nbfnet, "RESULTS", tmp_path)
    for more in (["--sums"], ["--split=1"], ["--seed=1"], ["--epochs=0"]):
        monkeypatch.setattr("sys.argv", ["link_nbfnet", "cora-link", f"--out={tmp_path}", *more])
        with pytest.raises(SystemExit):
            link_nbfnet.main()
        printed = capsys.readouterr().err
        assert "give another --out" in printed or "--epochs takes at least 1" in printed
    assert not (tmp_path / "link_nbfnet.csv").exists()
