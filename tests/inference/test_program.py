"""Exported programs have the scores of the model, for other sizes of graphs and batches, without graphzoo."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import link_graphs
from helpers.link_runs import link_data, train_links
from helpers.program_cases import NODES, SMALL, a_graph, trained
from torch_geometric.data import Data

import graphzoo
from graphzoo.cli import main as graphzoo_main
from graphzoo.encoders import PENCIL, KnowFormer, KnowFormerAny
from graphzoo.encoders.base import NodeEncoder
from graphzoo.errors import UsageError
from graphzoo.heuristics import LinkHeuristic
from graphzoo.inference import export_run, program
from graphzoo.inference.program import make_program, write_program
from graphzoo.layers import compare_relations
from graphzoo.ops import RelationalGraph
from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification
from graphzoo.types import GraphSpec, PairSubgraphs

ROOT = Path(__file__).resolve().parents[2]


def load(folder):
    return torch.export.load(folder / "model.pt2").module()


@pytest.mark.parametrize(
    "settings", [{}, {"norm": "fro"}, {"attention": "random_features"}, {"query_net": False}]
)
def test_scores_of_a_knowledge_graph_are_those_of_the_task(tmp_path, settings):
    task = trained(
        KGCompletion(lambda spec: KnowFormer(spec, num_heads=2, **SMALL, **settings)), GraphSpec(9, 3)
    )
    write_program(task, tmp_path)
    edges, types = torch.randint(30, (2, 90)), torch.randint(6, (90,))
    head, relation = torch.randint(30, (5,)), torch.randint(6, (5,))
    found = load(tmp_path)(edges, types, torch.arange(30), head, relation)
    expected = task.score_queries(RelationalGraph(edges, types, 30, 6), head, relation)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def reached(edges, steps):
    """Pairs of different nodes joined by paths of `steps` edges, from a dense matrix."""
    joined = torch.eye(int(edges.max()) + 1)
    joined[edges[0], edges[1]] = 1
    joined = torch.linalg.matrix_power(joined, steps)
    return joined.fill_diagonal_(0).nonzero().t()


@pytest.mark.parametrize("name", NODES)
def test_scores_of_nodes_are_those_of_the_task(tmp_path, name):
    task = trained(NodeClassification(NODES[name]), GraphSpec(9, 0, 5, 3))
    write_program(task, tmp_path)
    x, edges = a_graph()
    given = task.encoder.precompute(x, edges)
    names = list(json.loads((tmp_path / "inputs.json").read_text())["inputs"])
    graph = {
        "edge_index": edges,
        "edge_index_2": reached(edges, 2),
        "edge_index_4": reached(edges, 4),
        **given,
    }
    found = load(tmp_path)(x, *(graph[name] for name in names[1:]))
    assert len(names) == 2 + ("steps" in name) + ("four" in name)
    with torch.no_grad():
        expected = task.decoder(task.encoder(x, edges))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert getattr(task.encoder, "fixed", None) is None, "the encoder is left as it was"


@pytest.mark.parametrize("size", [12, 3])
def test_scores_of_pairs_in_subgraphs_are_those_of_the_task(tmp_path, size):
    spec = GraphSpec(30, 1, 5, max_subgraph_nodes=12)
    task = trained(LinkPrediction(lambda spec: PENCIL(spec, num_heads=2, **SMALL)), spec)
    write_program(task, tmp_path)
    x = torch.rand(30, 5)
    sizes = torch.tensor([size, 2, 3, 2])
    valid = torch.arange(size) < sizes[:, None]
    links = torch.rand(4, size, size) < 0.4
    links = (links | links.mT) & valid[:, None] & valid[..., None]
    nodes = torch.where(valid, torch.randint(30, (4, size)), -1)
    found = load(tmp_path)(nodes, links, sizes, x)
    with torch.no_grad():
        expected = task.decoder(*task.encoder(PairSubgraphs(nodes, links, sizes), x).chunk(2, dim=-1))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["galit", "nodeformer two steps"])
def test_scores_of_pairs_of_node_states_are_those_of_the_task(tmp_path, name):
    task = trained(LinkPrediction(NODES[name]), GraphSpec(9, 1, 5))
    write_program(task, tmp_path)
    x, edges = a_graph()
    source, target = torch.randint(40, (2, 11))
    if name == "galit":
        graph = [task.encoder.precompute(x, edges)["denoised"]]
    else:
        graph = [edges, reached(edges, 2)]
    with torch.no_grad():
        states = task.encoder(x, edges)
        expected = task.decoder(states[source], states[target])
    found = load(tmp_path)(x, *graph, source, target)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_program_takes_any_relations_with_their_cosines(tmp_path):
    """The program of the shipped weights scores a graph with other relations than the traced one."""
    export_run("knowformer-any", tmp_path / "program", to="torch.export")
    triples = torch.stack([torch.randint(50, (200,)), torch.randint(7, (200,)), torch.randint(50, (200,))], 1)
    graph = RelationalGraph.from_triples(triples, 50, 7)
    head, relation = torch.randint(50, (9,)), torch.randint(14, (9,))
    cosines = compare_relations(graph).to_dense()
    found = load(tmp_path / "program")(
        graph.edge_index, graph.edge_type, torch.arange(50), head, relation, cosines.heads, cosines.pairs
    )
    expected = graphzoo.load("knowformer-any", data="umls").task.score_queries(graph, head, relation)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_an_exported_run_has_the_scores_of_predict_without_graphzoo(umls_run, umls, tmp_path):
    """A process without graphzoo reads names from the graph of the folder, and scores from the program."""
    folder = export_run(umls_run.path, tmp_path / "umls-program", to="torch.export", licence="cc0-1.0")
    assert {path.name for path in folder.iterdir()} == {"model.pt2", "inputs.json", "README.md", "graph"}
    with zipfile.ZipFile(folder / "model.pt2") as archive:
        stored = b"".join(archive.read(name) for name in archive.namelist())
    assert b"site-packages" not in stored and str(ROOT).encode() not in stored
    card = (folder / "README.md").read_text()
    assert 'torch.export.load("umls-program/model.pt2")' in card.replace("'", '"') and "cc0-1.0" in card
    code = f"""
import sys
sys.modules["graphzoo"] = None
import json, numpy, torch
stored = numpy.load({str(folder / "graph" / "knowledge_graph.npz")!r}, allow_pickle=False)
facts = torch.from_numpy(stored["train"])
head, relation, tail = facts.t()
R = {umls.graph.num_relations}
edges = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
program = torch.export.load({str(folder / "model.pt2")!r}).module()
scores = program(edges, torch.cat([relation, relation + R]), torch.arange({umls.graph.num_entities}),
                 torch.tensor([3, 8]), torch.tensor([0, R + 2]))
print(json.dumps(scores.tolist()))
card = open("umls-program/README.md").read().split("```python\\n")[1].split("```")[0]
assert card.splitlines() == json.load(open("umls-program/inputs.json"))["example"]
found = {{}}
exec(card, found)
print(json.dumps([found["scores"].tolist(), found["answers"]]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, of_card = done.stdout.splitlines()[-2:]
    found = torch.tensor(json.loads(first))
    queries = torch.tensor([3, 8]), torch.tensor([0, umls.graph.num_relations + 2])
    expected = umls.task.score_queries(umls._default.messages, *queries)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    # The example of the card predicts the tail of the first fact, by names.
    head, relation, _ = umls.graph.train[:1].T
    expected = umls.task.score_queries(umls._default.messages, head, relation)
    scores, answers = json.loads(of_card)
    torch.testing.assert_close(torch.tensor(scores), expected, atol=1e-4, rtol=1e-4)
    assert answers == [umls.graph.entities[i] for i in torch.tensor(scores)[0].topk(3).indices]
    files = json.loads((folder / "inputs.json").read_text())["files"]
    assert {"graph/names.json", "graph/knowledge_graph.npz"} == {*files}


class Untraceable(NodeEncoder):
    """Reads a value, which cannot be traced."""

    def __init__(self, spec, *, wrong=False):
        super().__init__()
        self.out_channels, self.wrong = spec.in_channels, wrong

    def forward(self, x, edge_index):
        if not self.wrong:
            return x * int(edge_index.sum())
        return x + torch.compiler.is_exporting()


def test_an_encoder_that_cannot_be_traced_is_refused_and_leaves_no_files(tmp_path):
    task = trained(NodeClassification(lambda spec: Untraceable(spec)), GraphSpec(9, 0, 5, 3))
    with pytest.raises(
        UsageError, match=r"Untraceable cannot be traced: .*\nExport it with --to safetensors"
    ):
        write_program(task, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_program_with_other_scores_is_not_written(tmp_path):
    task = trained(NodeClassification(lambda spec: Untraceable(spec, wrong=True)), GraphSpec(9, 0, 5, 3))
    with pytest.raises(UsageError, match="scores differ from the model's by"):
        write_program(task, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_full_disk_is_an_error_that_leaves_no_files(umls_run, tmp_path, monkeypatch):
    """Torch's writer would end the process."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match="model cannot be written: No space left on device"):
        export_run(umls_run.path, tmp_path / "model", to="torch.export")
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_elsewhere_is_not_taken_for_that_of_the_program(umls_run, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "/temporary/torchinductor")

    monkeypatch.setattr(torch.export, "export", full)
    with pytest.raises(OSError, match="No space left on device: '/temporary/torchinductor'"):
        export_run(umls_run.path, tmp_path / "model", to="torch.export")
    assert list(tmp_path.iterdir()) == []


def test_scores_of_links_by_queries_are_those_of_the_task(tmp_path):
    task = trained(LinkPrediction(lambda spec: KnowFormer(spec, num_heads=2, **SMALL)), GraphSpec(9, 1))
    write_program(task, tmp_path)
    _, edges = a_graph()
    types, source, target = torch.zeros(edges.shape[1], dtype=torch.int64), *torch.randint(40, (2, 11))
    found = load(tmp_path)(edges, types, torch.arange(40), source, torch.zeros_like(source))
    with torch.no_grad():
        graph = RelationalGraph(edges, types, 40, 2)
        states = task.encoder(graph, source, torch.zeros_like(source), noise_seed=0)
        expected = task.decoder(states[target, torch.arange(11)][:, None]).squeeze(0)
    torch.testing.assert_close(found[torch.arange(11), target], expected, atol=1e-5, rtol=1e-4)


def test_tasks_without_a_program_are_refused():
    task = LinkPrediction(lambda spec: LinkHeuristic(spec, name="cn"))
    task.build(GraphSpec(9, 1))
    with pytest.raises(UsageError, match="LinkPrediction of a LinkHeuristic cannot be exported as a program"):
        make_program(task)


@pytest.mark.parametrize("file", ["model.pt2", "model.onnx"])
def test_a_program_cannot_be_loaded_as_a_model(tmp_path, capsys, file):
    (tmp_path / file).touch()
    with pytest.raises(UsageError, match="has an exported program, which runs without graphzoo"):
        graphzoo.load(tmp_path)
    assert graphzoo_main(["predict", "--ckpt_path", str(tmp_path), "--queries", str(tmp_path / file)]) == 2
    assert "has an exported program" in capsys.readouterr().err


def test_an_existing_folder_is_not_overwritten(umls_run, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    monkeypatch.setattr(program, "write_program", lambda *a: pytest.fail("nothing is computed for it"))
    with pytest.raises(UsageError, match="exists already"):
        export_run(umls_run.path, tmp_path / "mine", to="torch.export")
    assert [path.name for path in Path(tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("kind", ["galit", "nodeformer", "links"])
def test_the_example_of_a_card_has_the_scores_of_the_model_without_graphzoo(tmp_path, kind):
    """The folder holds features that are standardised and, for GALiT, denoised."""
    if kind == "links":
        train_links(tmp_path / "run", "galit", link_data())
        expected = graphzoo.load(tmp_path / "run").score([(0, 1)])["score"].to_numpy()
    else:
        x = 3 * torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) + 5
        around = torch.arange(60)
        data = Data(x=x, edge_index=torch.stack([around, around.roll(1)]), y=(x[:, 0] > 5).long())
        graphzoo.fit(kind, data, max_epochs=2, quiet=True, run_dir=tmp_path / "run")
        expected = graphzoo.load(tmp_path / "run")._default.outputs.logits.numpy()
    folder = export_run(tmp_path / "run", tmp_path / "program", to="torch.export")
    code = """
import sys
sys.modules["graphzoo"] = None
card = open("program/README.md").read().split("```python\\n")[1].split("```")[0]
found = {}
exec(card, found)
found["numpy"].save("scores.npy", found["scores"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, atol=1e-4, rtol=1e-4)
    text = json.loads((folder / "inputs.json").read_text())["files"]["graph/inputs.npz"]
    assert text.startswith("x, denoised of" if kind != "nodeformer" else "x, edge_index, edge_index_2 of")


def any_relations(spec):
    return KnowFormerAny(spec, hidden_channels=8, num_layers=1)


@pytest.mark.parametrize(("encoder", "is_directed"), [("knowformer", False), (any_relations, True)])
def test_the_example_of_a_card_finds_partners_by_a_query(tmp_path, monkeypatch, encoder, is_directed):
    names = [f"n{number}" for number in range(link_graphs.NODES)] if is_directed else range(link_graphs.NODES)
    graph = link_graphs.make_link_graph(is_directed=is_directed, node_names=tuple(names) * is_directed)
    train_links(tmp_path / "run", encoder, link_data(graph))
    expected = graphzoo.load(tmp_path / "run").score([(names[0], other) for other in names[1:]])["score"]
    export_run(tmp_path / "run", tmp_path / "program", to="torch.export")
    card = (tmp_path / "program/README.md").read_text().split("```python\n")[1].split("```")[0]
    assert "of your graph" not in card and "source" not in card
    monkeypatch.chdir(tmp_path)
    exec(card, made := {})
    np.testing.assert_allclose(made["scores"][0, 1:], expected, atol=1e-4, rtol=1e-4)
    if is_directed:
        assert made["best"] == [names[i] for i in made["scores"][0].argsort()[::-1][:3]]


@pytest.mark.parametrize("settings", [{}, {"reduce_channels": 2}, {"normalize_features": True}])
def test_only_standardised_features_have_a_formula(tmp_path, settings):
    """Projected features and those without standardisation are not (x - mean) / scale."""
    x = torch.rand(60, 4, generator=torch.Generator().manual_seed(0)) * 3 + 5
    around = torch.arange(60)
    data = Data(x=x, edge_index=torch.stack([around, around.roll(1)]), y=(x[:, 0] > 6).long())
    options = {f"--data.{name}": value for name, value in settings.items()}
    graphzoo.fit("nodeformer", data, max_epochs=1, quiet=True, run_dir=tmp_path / "run", **options)
    folder = export_run(tmp_path / "run", tmp_path / "program", to="torch.export")
    given = np.load(folder / "graph" / "inputs.npz")
    assert ({"mean", "scale"} <= set(given)) == (not settings)
    text = json.loads((folder / "inputs.json").read_text())["files"]["graph/inputs.npz"]
    assert ("(x - mean) / scale" in text) == (not settings)
    if not settings:
        np.testing.assert_allclose(given["x"], (x.numpy() - given["mean"]) / given["scale"], atol=1e-5)
