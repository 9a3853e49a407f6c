"""The benchmark of node models: models of equal size, continued runs, figures and tables."""

import math
import sys

import pytest
import torch

from benchmarks import bench_node_models as bench
from benchmarks import node_models as models
from benchmarks import node_models_report as report
from benchmarks.common import Row, append_row
from graphzoo.encoders import nodeformer


def graph(monkeypatch):
    monkeypatch.setitem(models.SIZES, "tiny", models.Size(40, 90, 6, 3))
    return models.load("tiny")


def test_random_graphs_have_the_sizes_in_their_names(monkeypatch):
    x, edge_index, y = graph(monkeypatch)
    assert x.shape == (40, 6) and edge_index.shape == (2, 180) and y.unique().tolist() == [0, 1, 2]
    assert torch.equal(edge_index[:, :90], edge_index[:, 90:].flip(0))
    arxiv, double = models.SIZES["arxiv"], models.SIZES["arxiv-double-edges"]
    assert (arxiv.num_nodes, arxiv.num_pairs) == (169_343, 1_166_243)
    assert double.num_nodes == arxiv.num_nodes and double.num_pairs == 2 * arxiv.num_pairs


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("provider", models.PROVIDERS)
def test_every_provider_reduces_the_loss(provider, autocast, monkeypatch):
    for name in ("random_features_at", "attend_features", "edge_log_weights", "_SPARSE_SHARE"):
        monkeypatch.setattr(nodeformer, name, getattr(nodeformer, name))  # so that it is restored afterwards
    step = models.epoch(provider, *graph(monkeypatch), autocast)
    losses = [step() for _ in range(30)]
    assert all(math.isfinite(loss) for loss in losses) and sum(losses[-10:]) < sum(losses[:10])


def test_models_have_one_width_and_depth(monkeypatch):
    x, edge_index, _ = graph(monkeypatch)
    sgformer, _ = models._pyg("sgformer", x, edge_index, 3)
    assert len(sgformer.trans_conv.attns) == len(sgformer.graph_conv.convs) == models.DEPTH
    polynormer, _ = models._pyg("polynormer", x, edge_index, 3)
    assert len(polynormer.local_convs) == len(polynormer.global_attn) == models.DEPTH
    assert polynormer._global
    assert models._pyg("gcn", x, edge_index, 3)[0].num_layers == models.DEPTH
    for provider in ("galit", "galit-mcos", "nodeformer"):
        encoder = models._graphzoo(provider, x, edge_index, 3)[0][0]
        assert len(encoder.layers) == models.DEPTH and encoder.out_channels == models.WIDTH


def run(monkeypatch, tmp_path, *words):
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", "--out", "found.csv", "--graphs", "10k", "30k", *words])
    measured = []

    def measure(figure, seconds, limit):
        measured.append(figure)
        nodes = models.SIZES[figure[0]].num_nodes
        values = [("time", "s"), ("cpu_time", "s"), ("peak_memory", "MiB"), ("step_memory", "MiB")]
        slower = 1 + models.PROVIDERS.index(figure[1])
        return {"rows": [(*value, *[nodes * slower / 1e4] * 3) for value in values], "problem": "N=1"}

    monkeypatch.setattr(bench, "run_figure", measure)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    bench.main()
    return measured


def test_a_stopped_run_is_continued(monkeypatch, tmp_path):
    first = run(monkeypatch, tmp_path, "--providers", "galit")
    assert [figure[:3] for figure in first] == [
        (graph, "galit", mode) for graph in ("10k", "30k") for mode in ("epoch-kept", "denoise")
    ]
    path = tmp_path / "found.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))  # the rows of the last figure are incomplete
    again = run(monkeypatch, tmp_path, "--providers", "galit", "sgformer")
    assert [figure[:3] for figure in again] == [
        ("10k", "sgformer", "epoch-kept"),
        ("30k", "galit", "denoise"),
        ("30k", "sgformer", "epoch-kept"),
    ]
    assert run(monkeypatch, tmp_path, "--providers", "galit", "sgformer") == []
    assert len(run(monkeypatch, tmp_path, "--providers", "galit", "--fresh")) == 4


def test_results_are_drawn_and_printed(monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="pip install matplotlib")
    run(monkeypatch, tmp_path, "--providers", "galit", "gcn")
    row = Row(
        name="node_models", provider="sgformer", mode="epoch-kept", metric="did_not_fit", unit="GiB",
        x_name="graph", x="30k", p50=1.0, p20=1.0, p80=1.0, config="cpu float32",
    )  # fmt: skip
    append_row(tmp_path / "found.csv", row)
    monkeypatch.setattr(report, "FIGURES", tmp_path)
    run(monkeypatch, tmp_path, "--plot")
    printed = capsys.readouterr().out
    assert (
        "| GCN (PyG) | 7 (7.0) | 21 (7.0) |" in printed and "| SGFormer (PyG) |  | did not fit |" in printed
    )
    assert (tmp_path / "node-models-cpu.png").stat().st_size > 1000
    assert report.slope([(10, 3.0), (100, 30.0), (1000, 300.0)]) == pytest.approx(1)
