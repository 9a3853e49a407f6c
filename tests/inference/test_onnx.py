"""Programs for onnxruntime have the scores of the model, for inputs of other sizes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from helpers.program_cases import NODES, a_graph, trained

from graphzoo.cli import main
from graphzoo.encoders import PENCIL, NodeFormer
from graphzoo.encoders.base import NodeEncoder
from graphzoo.errors import UsageError
from graphzoo.inference.program import write_program
from graphzoo.tasks import LinkPrediction, NodeClassification
from graphzoo.types import GraphSpec, PairSubgraphs

ROOT = Path(__file__).resolve().parents[2]


def run(folder, **given):
    """Run the program in onnxruntime; inputs have the names of inputs.json."""
    onnxruntime = pytest.importorskip("onnxruntime")
    assert list(json.loads((folder / "inputs.json").read_text())["inputs"]) == list(given)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["scores"]
    (scores,) = session.run(None, {name: value.numpy() for name, value in given.items()})
    return torch.from_numpy(scores)


def test_scores_of_nodes_are_those_of_the_task(tmp_path):
    task = trained(NodeClassification(NODES["gcn"]), GraphSpec(9, 0, 5, 3))
    pytest.importorskip("onnxscript")
    assert write_program(task, tmp_path, "onnx") == tmp_path / "model.onnx"
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "inputs.json"}
    stored = (tmp_path / "model.onnx").read_bytes()
    assert b"site-packages" not in stored and str(ROOT).encode() not in stored
    x, edges = a_graph()
    with torch.no_grad():
        expected = task.decoder(task.encoder(x, edges))
    torch.testing.assert_close(run(tmp_path, x=x, edge_index=edges), expected, atol=1e-5, rtol=1e-4)


def test_loops_repeated_edges_and_no_edges_give_the_scores_of_the_task(tmp_path):
    pytest.importorskip("onnxscript")
    made = lambda spec: NodeFormer(spec, hidden_channels=8, rb_order=1)  # noqa: E731
    task = trained(NodeClassification(made), GraphSpec(9, 0, 5, 3))
    write_program(task, tmp_path, "onnx")
    x, edges = a_graph()
    for given in (edges, torch.cat([edges, edges[:, :3], torch.tensor([[2], [2]])], 1), edges[:, :0]):
        with torch.no_grad():
            expected = task.decoder(task.encoder(x, given))
        torch.testing.assert_close(run(tmp_path, x=x, edge_index=given), expected, atol=1e-5, rtol=1e-4)


def test_scores_of_pairs_in_subgraphs_are_those_of_the_task(tmp_path):
    pytest.importorskip("onnxscript")
    spec = GraphSpec(30, 1, 5, max_subgraph_nodes=12)
    small = {"hidden_channels": 8, "num_layers": 1, "num_heads": 2}
    task = trained(LinkPrediction(lambda spec: PENCIL(spec, **small)), spec)
    write_program(task, tmp_path, "onnx")
    x = torch.rand(30, 5)
    sizes = torch.tensor([9, 2, 3, 2])
    valid = torch.arange(9) < sizes[:, None]
    links = torch.rand(4, 9, 9) < 0.4
    links = (links | links.mT) & valid[:, None] & valid[..., None]
    nodes = torch.where(valid, torch.randint(30, (4, 9)), -1)
    found = run(tmp_path, nodes=nodes, adjacency=links, num_nodes=sizes, x=x)
    with torch.no_grad():
        expected = task.decoder(*task.encoder(PairSubgraphs(nodes, links, sizes), x).chunk(2, dim=-1))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_run_is_exported_by_the_command(named_links, tmp_path, capsys):
    """The example of the card runs without graphzoo and torch."""
    pytest.importorskip("onnxscript")
    folder = tmp_path / "links"
    assert main(["export", str(named_links.path), "--to", "onnx", "--out", str(folder)]) == 0
    assert "onnxruntime.InferenceSession(" in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} == {"model.onnx", "inputs.json", "README.md", "graph"}
    task, data = named_links.task.cpu(), named_links.datamodule
    given = [data.x, task.encoder.precompute(data.x, data.edge_index("test"))["denoised"]]
    code = """
import json, sys
sys.modules |= dict.fromkeys(["graphzoo", "torch"])
card = open("links/README.md").read().split("```python\\n")[1].split("```")[0]
assert card.splitlines() == json.load(open("links/inputs.json"))["example"]
import numpy
found = dict(zip(["x", "denoised"], numpy.load("given.npy")))
exec(card, found)
print(json.dumps([found[name].tolist() for name in ("source", "target", "scores")]))
"""
    numpy.save(tmp_path / "given.npy", torch.stack(given).numpy())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    source, target, scores = json.loads(done.stdout.splitlines()[-1])
    with torch.no_grad():
        states = task.encoder(data.x, data.edge_index("test"))
        expected = task.decoder(states[source], states[target])
    torch.testing.assert_close(torch.tensor(scores), expected, atol=1e-5, rtol=1e-4)


class Sorted(NodeEncoder):
    """Uses an operation that ONNX lacks."""

    def __init__(self, spec):
        super().__init__()
        self.out_channels = spec.in_channels

    def forward(self, x, edge_index):
        return x.sort(dim=0, stable=True).values + 0 * edge_index.sum()


def test_an_operation_that_onnx_lacks_is_refused_and_leaves_no_files(tmp_path):
    pytest.importorskip("onnxscript")
    task = trained(NodeClassification(lambda spec: Sorted(spec)), GraphSpec(9, 0, 5, 3))
    with pytest.raises(UsageError, match=r"Sorted cannot be .* ONNX: .*sort.*\nExport it with --to torch"):
        write_program(task, tmp_path / "new", "onnx")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_missing_packages_are_named_with_a_remedy(named_links, tmp_path, capsys, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    command = ["export", str(named_links.path), "--to=onnx", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "pip install 'graphzoo[onnx]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
