"""LinkModel: partners of nodes and scores of pairs, on the graph of the run and on others."""

import copy
import dataclasses
import json
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from helpers.link_graphs import NODES, make_link_graph
from helpers.link_runs import link_data, train_links
from helpers.link_tasks import fit
from torch_geometric.data import Data

import graphzoo
from graphzoo.datamodules import LinkDataModule, base
from graphzoo.datasets import LinkGraph, LinkSplit, link_graph_from_files
from graphzoo.errors import GraphzooDataWarning, UsageError
from graphzoo.inference import link_scoring, trained
from graphzoo.inference import sources as sources_module
from graphzoo.metrics import link_figures
from graphzoo.ops.of_weights import OfWeights
from graphzoo.tasks import LinkPrediction

ENCODERS = ("pencil", "galit", "knowformer")


@pytest.fixture
def load(link_runs):
    return lambda encoder, **options: graphzoo.load(link_runs[encoder].path, **options)


@pytest.fixture
def model(load):
    return load("galit")


def scores_of_test(run):
    """Pairs of the test split with their scores by the task, averaged over repeated pairs."""
    graph = run.datamodule.graph
    pairs = torch.cat([graph.test.positive, graph.test.negative.reshape(-1, 2)])
    total, count = torch.zeros(2, len(pairs), dtype=torch.float64)
    for batch in run.datamodule.test_dataloader():
        total.index_add_(0, batch.index, run.task.score_batch(batch, "test").double())
        count.index_add_(0, batch.index, torch.ones(len(batch), dtype=torch.float64))
    return pairs, total / count


def links(graph, *splits):
    found = {tuple(pair) for split in splits for pair in graph.positive(split).tolist()}
    return found if graph.is_directed else found | {(v, u) for u, v in found}


# Scores


@pytest.mark.parametrize("encoder", ENCODERS)
def test_scores_are_those_of_the_test(link_runs, load, encoder):
    run = link_runs[encoder]
    pairs, expected = scores_of_test(run)
    table = load(encoder).score(pairs)
    assert list(table) == ["source", "target", "score", "probability", "known"]
    assert table[["source", "target"]].to_numpy().tolist() == pairs.tolist()
    assert np.allclose(table["score"], expected, atol=1e-6, rtol=0)
    assert np.allclose(table["probability"], expected.sigmoid(), atol=1e-6, rtol=0)
    score = torch.from_numpy(table["score"].to_numpy(copy=True))
    number = len(run.datamodule.graph.test.positive)
    figures = link_figures(score[:number], score[number:])
    assert run.metrics["test/auroc"] == pytest.approx(figures["auroc"].item(), abs=1e-6)


@pytest.mark.parametrize("encoder", ["galit", "pencil"])
@pytest.mark.parametrize("late", [True, False])
def test_messages_pass_along_the_edges_of_the_test(tmp_path, encoder, late):
    """Messages pass along validation links only if the data allow it (`valid_edges_at_test`)."""
    run = train_links(tmp_path, encoder, link_data(make_link_graph(valid_edges_at_test=late)))
    pairs, expected = scores_of_test(run)
    assert np.allclose(graphzoo.load(tmp_path).score(pairs)["score"], expected, atol=1e-6, rtol=0)
    other = make_link_graph(valid_edges_at_test=not late)
    assert not np.allclose(graphzoo.load(tmp_path, data=other).score(pairs)["score"], expected, atol=1e-6)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_scores_do_not_depend_on_batches(load, encoder):
    model = load(encoder)
    pairs = np.array([(u, v) for u in range(0, 20, 3) for v in range(25, 47, 2)])
    whole = model.score(pairs)
    for size in (1, 7):
        pd.testing.assert_frame_equal(model.score(pairs, batch_size=size), whole, atol=1e-5, rtol=0)
    some = whole.iloc[::-4].reset_index(drop=True)
    pd.testing.assert_frame_equal(model.score(pairs[::-4]), some, atol=1e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_gpu_gives_the_same_scores(load, encoder):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pairs = [(u, v) for u in range(0, 20, 3) for v in range(25, 47, 2)]
    on_gpu = load(encoder, device="cuda")
    pd.testing.assert_frame_equal(on_gpu.score(pairs), load(encoder).score(pairs), atol=1e-3, rtol=0)
    assert len(on_gpu.predict(nodes=[3, 4], k=5, known="mark")) == 10


def test_long_tables_are_made_in_pieces(model, monkeypatch):
    pairs = [(u, u + 1) for u in range(30)]
    whole = model.score(pairs)
    monkeypatch.setattr(trained, "_TABLE_ROWS", 13)
    from graphzoo.datasets.link.named_pairs import pairs_from_table

    pieces = list(model.score_batches(pairs_from_table(pairs)))
    assert [len(piece) for piece in pieces] == [13, 13, 4]
    pd.testing.assert_frame_equal(pd.concat(pieces, ignore_index=True), whole, atol=1e-6, rtol=0)
    empty = model.score([])
    assert len(empty) == 0 and empty.dtypes.equals(whole.dtypes)


@pytest.mark.parametrize("directed", [False, True])
def test_links_of_every_split_are_known(tmp_path, directed):
    run = train_links(tmp_path, "galit", link_data(make_link_graph(is_directed=directed)))
    graph = run.datamodule.graph
    pairs = [(u, v) for u in range(NODES) for v in range(NODES) if u != v]
    table = graphzoo.load(tmp_path).score(pairs)
    found = {pair for pair, known in zip(pairs, table["known"], strict=True) if known}
    assert found == links(graph, "train", "valid", "test")


FORMS = {
    "lists": [[3, 40], [8, 9]],
    "tuples of text": [("3", "40"), ("8", "9")],
    "array": np.array([[3, 40], [8, 9]]),
    "tensor": torch.tensor([[3, 40], [8, 9]]),
    "named columns": pd.DataFrame({"target": [40, 9], "weight": [0.5, 0.1], "source": ["3", "8"]}),
    "two columns": pd.DataFrame({"a": [3, 8], "b": [40, 9]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_pairs_may_have_many_forms(model, form):
    expected = model.score([(3, 40), (8, 9)])
    assert model.score(FORMS[form]).equals(expected)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(1, 2), (3, NODES)], "pairs: one name is unknown.*\n  row 2: node '48': .* the numbers 0 to 47"),
        ([(1, 2), (-1, 5)], "row 2: node '-1'"),
        ([(4, 5), (3, 3), (2, 2)], r"pairs, row 2: '3' is paired with itself \(2 such rows\)"),
        ([(1, 2, 3)], r"row 1: expected two nodes, got \(1, 2, 3\)"),
        ((3, 40), "row 1: expected two nodes, got 3\nGive a list of pairs, even for a single one"),
        (["34", "56"], "row 1: expected two nodes, got '34'\nGive a list of pairs"),
        ([torch.tensor(3), torch.tensor(40)], "row 1: expected two nodes, got tensor\(3\)\nGive a list of"),
        ([{"source": 1, "target": 2}], "row 1: expected two nodes, got {'source': 1, 'target': 2}\nGive"),
        ([b"34"], "row 1: expected two nodes, got b'34'\nGive a list of pairs"),
        (3, "expected pairs of nodes, got int"),
        (np.array([3, 40]), "row 1: expected two nodes, got 3\nGive a list of pairs"),
        (pd.DataFrame({"a": [1], "b": [2], "c": [3]}), "expected the columns source, target; got a, b, c"),
        (pd.DataFrame({"a": ["x"], "b": [None]}), "row 1: the target is missing"),
    ],
)
def test_wrong_pairs_are_refused(model, pairs, message):
    with pytest.raises(UsageError, match=message):
        model.score(pairs)


# Partners


def by_hand(model, node, *, k, known, candidates=range(NODES)):
    """Expected table of partners, from the scores of all pairs of a node."""
    pairs = [(node, other) for other in candidates if other != node]
    table = model.score(pairs).rename(columns={"source": "node", "target": "partner"})
    if known == "drop":
        table = table[~table["known"]]
    table = table.sort_values("score", ascending=False, kind="stable")[:k].reset_index(drop=True)
    table.insert(2, "rank", range(1, len(table) + 1))
    return table.drop(columns="known") if known == "keep" else table


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("known", ["drop", "mark", "keep"])
def test_partners_are_the_best_of_all_pairs(load, encoder, known):
    model = load(encoder)
    table = model.predict(nodes=[7, 0, 31], k=NODES, known=known)
    expected = pd.concat([by_hand(model, node, k=NODES, known=known) for node in (7, 0, 31)])
    pd.testing.assert_frame_equal(table, expected.reset_index(drop=True), atol=1e-5, rtol=0)
    short = model.predict(7, k=4, known=known)
    pd.testing.assert_frame_equal(short, by_hand(model, 7, k=4, known=known), atol=1e-5, rtol=0)
    default = list(model.predict(7))
    assert default == ["node", "partner", "rank", "score", "probability", "known"]


def test_known_links_are_left_out_by_default(model):
    graph = model.graph
    every = links(graph, "train", "valid", "test")
    table = model.predict(nodes=range(NODES), k=NODES)
    found = set(zip(table["node"], table["partner"], strict=True))
    assert found == {(u, v) for u in range(NODES) for v in range(NODES) if u != v} - every
    marked = model.predict(nodes=range(NODES), k=NODES, known="mark").query("known")
    assert set(zip(marked["node"], marked["partner"], strict=True)) == every


@pytest.mark.parametrize("encoder", ENCODERS)
def test_candidates_are_scored_in_pieces(load, encoder, monkeypatch):
    """A piece holds at most `_PAIRS` pairs: a part of one node's candidates, or several nodes."""
    model = load(encoder)
    expected = model.predict(nodes=[5, 6, 7], k=9)
    sizes = []
    score = link_scoring.LinkPlace.score
    monkeypatch.setattr(
        link_scoring.LinkPlace,
        "score",
        lambda self, p, *a, **b: sizes.append(len(p)) or score(self, p, *a, **b),
    )
    monkeypatch.setattr(link_scoring, "_PAIRS", 10)
    tables = list(model.predict_batches(nodes=[5, 6, 7], k=9))
    assert len(tables) == 3 and [len(table) for table in tables] == [9, 9, 9]
    pd.testing.assert_frame_equal(pd.concat(tables, ignore_index=True), expected, atol=1e-5, rtol=0)
    # A query encoder scores all candidates of a node at once.
    assert len(sizes) == (3 if encoder == "knowformer" else 3 * 5)
    assert max(sizes) <= (NODES if encoder == "knowformer" else 10)
    monkeypatch.setattr(link_scoring, "_PAIRS", 100)
    assert [len(table) for table in model.predict_batches(nodes=[5, 6, 7], k=9)] == [18, 9]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_scored_pairs_are_counted(load, encoder, monkeypatch):
    shown = []

    @contextmanager
    def bar(what, total):
        shown.append(total)
        yield shown.append

    monkeypatch.setattr(link_scoring, "progress", bar)
    load(encoder).predict(nodes=[5, 6], k=3, known="keep")
    total, *steps = shown
    assert total == 2 * NODES and sum(steps) == 2 * (NODES - 1), "all pairs but those of a node with itself"


@pytest.mark.parametrize("pairs_at_once", [5, 1000])
def test_equal_scores_are_in_the_order_of_nodes(model, monkeypatch, pairs_at_once):
    monkeypatch.setattr(link_scoring, "_PAIRS", pairs_at_once)
    monkeypatch.setattr(
        link_scoring.LinkPlace, "score", lambda self, pairs, *a, **b: (pairs[:, 1] // 10).float()
    )
    table = model.predict(40, k=12, known="keep")
    assert table["partner"].tolist() == [41, 42, 43, 44, 45, 46, 47, *range(30, 35)]


def test_partners_are_chosen_among_candidates(model):
    table = model.predict(nodes=[40, 3], k=9, known="mark", candidates=[40, "7", 3, 7, 21])
    expected = pd.concat([by_hand(model, n, k=9, known="mark", candidates=(3, 7, 21, 40)) for n in (40, 3)])
    pd.testing.assert_frame_equal(table, expected.reset_index(drop=True), atol=1e-6, rtol=0)
    with pytest.raises(UsageError, match="candidates is empty"):
        model.predict(3, candidates=[])
    with pytest.raises(UsageError, match="unknown node 99"):
        model.predict(3, candidates=[4, 99])


def test_some_nodes_are_answered_in_their_order(model):
    table = model.predict(nodes=[9, 4, 9], k=2)
    assert table["node"].tolist() == [9, 9, 4, 4, 9, 9]
    assert model.predict("9", k=2).equals(table[:2])
    empty = model.predict(nodes=[], k=2)
    assert len(empty) == 0 and empty.dtypes.equals(table.dtypes)
    assert len(model.predict(4, candidates=[4])) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one node or several"),
        ({"node": 3, "nodes": [4]}, "one node or several"),
        ({"node": 3, "k": 0}, "k must be at least 1"),
        ({"node": 3, "k": 2.5}, "k must be a whole number of at least 1, got 2.5"),
        ({"node": 2.5}, "nodes must be a name, a number, or several of them, got 2.5"),
        ({"node": 3, "known": "hide"}, "known must be one of mark, drop, keep, got 'hide'"),
        ({"node": 3, "batch_size": 0}, "batch_size must be at least 1"),
        ({"node": NODES}, "unknown node 48: nodes have the numbers 0 to 47"),
        ({"nodes": [1, 1.5]}, "unknown node 1.5"),
    ],
)
def test_wrong_queries_are_refused(model, options, message):
    with pytest.raises(UsageError, match=message):
        model.predict_batches(**options)


def test_nodes_have_names(load, model):
    names = tuple(f"person{number}" for number in range(NODES))
    named = load("galit", data=make_link_graph(node_names=names))
    table = named.predict(nodes=["person4", "person40"], k=3)
    numbers = model.predict(nodes=[4, 40], k=3)
    assert table["partner"].tolist() == [names[number] for number in numbers["partner"]]
    assert table["score"].tolist() == numbers["score"].tolist()
    pairs = named.score([("person3", "person9")])
    assert pairs["source"].tolist() == ["person3"] and pairs["target"].tolist() == ["person9"]
    assert named.predict(nodes=[]).dtypes.equals(table.dtypes)
    with pytest.raises(UsageError, match="unknown node 'persn4'; nearest: 'person4'"):
        named.predict("persn4")
    with pytest.raises(
        UsageError, match="2 names are unknown.*\n  row 1: node 'x'.*\n  row 2: node 'persn4'"
    ):
        named.score([("x", "person1"), ("person1", "persn4")])


def test_node_states_are_computed_once_per_graph(model, monkeypatch):
    calls = []
    encoder = type(model.task.encoder)
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda self, *a, **k: calls.append(1) or forward(self, *a, **k))
    model.predict(3)
    model.predict(nodes=range(9), candidates=range(5))
    model.score([(3, 4)])
    assert len(calls) == 1
    other = make_link_graph(seed=4)
    model.predict(3, data=other)
    model.score([(3, 4)], data=other)
    assert len(calls) == 2


@pytest.mark.parametrize("encoder", ["galit", "pencil"])
def test_changed_weights_give_other_scores_and_noise_is_off_in_training_mode(load, encoder):
    model = load(encoder)
    before = model.score([(3, 4), (5, 6)])["score"].tolist()
    model.task.train()
    assert model.score([(3, 4), (5, 6)])["score"].tolist() == before
    assert model.task.training
    with torch.no_grad():
        for weight in model.task.parameters():
            weight.zero_()
    assert model.score([(3, 4), (5, 6)])["score"].tolist() == [0.0, 0.0]


def test_states_are_cached_for_weights_of_inference_mode(link_runs, monkeypatch):
    with torch.inference_mode():
        model = graphzoo.load(link_runs["galit"].path)
    calls = []
    encoder = type(model.task.encoder)
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda self, *a, **k: calls.append(1) or forward(self, *a, **k))
    before = model.score([(3, 4)], batch_size=1)["score"].item()
    model.score([(3, 4), (5, 6), (7, 8)], batch_size=1)
    assert len(calls) == 1
    halves = {name: weight / 2 for name, weight in model.task.encoder.state_dict().items()}
    model.task.encoder.load_state_dict(halves, assign=True)
    assert model.score([(3, 4)])["score"].item() != before and len(calls) == 2


def test_results_are_cached_until_the_weights_change():
    module, calls = torch.nn.Linear(300, 300), []
    of_weights = OfWeights()

    def outputs():
        return of_weights.get(module, lambda: calls.append(1) or module.weight.sum().item())

    outputs(), outputs()
    assert len(calls) == 1
    for _ in range(50):  # new tensors may have the addresses of old ones
        module.half().float()
        outputs()
    assert len(calls) == 51
    module.register_buffer("sparse", torch.eye(3).to_sparse())
    outputs(), outputs()
    assert len(calls) == 52
    copy.deepcopy(of_weights).get(module, lambda: calls.append(1))
    assert len(calls) == 53, "a copy has no result"


@pytest.mark.parametrize("fused", [True, False])
def test_a_step_of_an_optimiser_changes_the_weights(fused):
    """The kernel of a fused optimiser does not increase the version of a tensor."""
    module, of_weights = torch.nn.Linear(3, 1), OfWeights()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.5, fused=fused)
    module(torch.ones(3)).sum().backward()
    before = of_weights.get(module, lambda: module.weight.sum().item())
    optimizer.step()
    assert of_weights.get(module, lambda: module.weight.sum().item()) != before


def test_partners_do_not_depend_on_the_default_dtype(load):
    model = load("pencil")
    before = model.predict(1)
    torch.set_default_dtype(torch.float64)
    try:
        assert model.predict(1)["partner"].tolist() == before["partner"].tolist()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("both", [False, True])
def test_a_query_is_answered_once_for_all_partners(tmp_path, both, monkeypatch):
    run = train_links(tmp_path, "knowformer", link_data(both_directions=both))
    model = graphzoo.load(run.path)
    heads = []
    encoder = type(model.task.encoder)
    forward = encoder.forward
    monkeypatch.setattr(
        encoder,
        "forward",
        lambda self, g, h, *a, **k: heads.extend(h.tolist()) or forward(self, g, h, *a, **k),
    )
    model.predict(nodes=[3, 8], known="keep")
    # The other direction needs a query for every node.
    assert sorted(heads) == sorted([3, 8] + both * list(range(NODES)))


def test_nan_scores_are_refused(model):
    with torch.no_grad():
        model.task.decoder.out.bias.fill_(torch.nan)
    with pytest.raises(UsageError, match="NaN or infinite scores"):
        model.predict(3)


class Regression(LinkPrediction):
    """A task whose scores are not logits."""

    def losses(self, logits, label):
        return (logits - label) ** 2


def test_scores_of_another_loss_have_no_probability(tmp_path, model):
    run = train_links(tmp_path, "galit", link_data(), Regression)
    pairs, expected = scores_of_test(run)
    regression = graphzoo.load(tmp_path)
    table = regression.score(pairs)
    assert list(table) == ["source", "target", "score", "known"]
    assert np.allclose(table["score"], expected, atol=1e-6, rtol=0)
    assert list(regression.predict(3)) == ["node", "partner", "rank", "score", "known"]
    assert "probability" in model.predict(3)


# Other graphs


@pytest.mark.parametrize("encoder", ENCODERS)
def test_scores_on_another_graph_are_those_of_the_task(link_runs, load, encoder):
    """On a new graph the model has the scores of the task."""
    other = make_link_graph(seed=5)
    task = load(encoder).task
    datamodule = link_data(other, both_directions=True, num_relabelings=2, normalize_features=True)
    datamodule.setup()
    datamodule.batching = task.batching
    task._trainer = SimpleNamespace(datamodule=datamodule)
    pairs, expected = scores_of_test(SimpleNamespace(task=task, datamodule=datamodule))
    model = load(encoder)
    assert np.allclose(model.score(pairs, data=other)["score"], expected, atol=1e-6, rtol=0)
    assert model.predict(3, data=other).equals(load(encoder, data=other).predict(3))
    assert not np.allclose(model.score(pairs)["score"], expected, atol=1e-3), "its own graph is not replaced"


def write_ring(folder, *, features):
    """Write a ring with chords of 40 named nodes as `edges.csv`, and features as `nodes.csv`."""
    folder.mkdir()
    pairs = [(i, (i + j) % 40) for i in range(40) for j in (1, 2)]
    lines = ["source,target"] + [f"n{u},n{v}" for u, v in pairs]
    (folder / "edges.csv").write_text("\n".join(lines) + "\n")
    if features:
        draw = np.random.default_rng(0).random((40, 4))
        rows = ["name,a,b,c,d"] + [f"n{i},{','.join(map(str, draw[i]))}" for i in range(40)]
        (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    return pairs


@pytest.mark.parametrize("encoder", ENCODERS)
def test_all_links_of_an_own_file_pass_messages(load, tmp_path, encoder):
    """No links are set aside for validation and test."""
    listed = write_ring(tmp_path / "ring", features=True)
    model = load(encoder)
    none = LinkSplit(torch.empty(0, 2, dtype=torch.int64), torch.empty(0, 2, dtype=torch.int64))
    table = pd.read_csv(tmp_path / "ring" / "nodes.csv", index_col=0)
    graph = LinkGraph(
        "ring",
        40,
        torch.tensor(listed),
        none,
        none,
        x=torch.from_numpy(table.to_numpy(np.float32)),
        node_names=tuple(table.index),
    )
    found = model.predict("n7", k=40, known="mark", data=tmp_path / "ring")
    pd.testing.assert_frame_equal(found, model.predict("n7", k=40, known="mark", data=graph), atol=1e-6)
    assert set(found.query("known")["partner"]) == {"n5", "n6", "n8", "n9"}


def test_a_header_and_further_columns_give_a_warning(tmp_path):
    lines = ["user,friend", *(f"n{i},n{(i + 1) % 40}" for i in range(40))]
    (tmp_path / "edges.csv").write_text("\n".join(f"{line},1" for line in lines) + "\n")
    with pytest.warns(GraphzooDataWarning) as warned:
        sources_module.load_link_source(tmp_path / "edges.csv")
    text = " ".join(str(one.message) for one in warned)
    assert (
        "columns 1 and 2 are read as source and target, 1 further column ignored" in text
        and "line 1 looks like a header" in text
    )


def test_arrays_in_a_file_are_a_graph(load, tmp_path):
    model = load("galit")
    listed = np.array(write_ring(tmp_path / "ring", features=True)).T
    x = pd.read_csv(tmp_path / "ring" / "nodes.csv", index_col=0).to_numpy(np.float32)
    np.savez(tmp_path / "ring.npz", edge_index=listed, x=x, node_names=[f"n{i}" for i in range(40)])
    expected = model.predict("n7", data=tmp_path / "ring")
    assert model.predict("n7", data=tmp_path / "ring.npz").equals(expected)
    model.graph.save(tmp_path / "own.npz")
    assert model.predict(3, data=tmp_path / "own.npz").equals(model.predict(3))


def test_files_of_three_splits_are_a_graph(load, tmp_path):
    write_ring(tmp_path / "ring", features=True)
    lines = (tmp_path / "ring" / "edges.csv").read_text().splitlines()[1:]
    (tmp_path / "ring" / "edges.csv").unlink()
    for split, part in (("train", lines[::2]), ("valid", lines[1::4]), ("test", lines[3::4])):
        (tmp_path / "ring" / f"{split}.csv").write_text("\n".join(part) + "\n")
    graph = link_graph_from_files(tmp_path / "ring")
    model = load("galit")
    assert model.predict("n7", data=tmp_path / "ring").equals(model.predict("n7", data=graph))
    assert model.score([("n35", "n36")], data=tmp_path / "ring")["known"].tolist() == [True]


def test_a_model_without_features_takes_graphs_without(tmp_path):
    run = train_links(tmp_path / "run", "pencil", link_data(use_features=False))
    write_ring(tmp_path / "ring", features=False)
    model = graphzoo.load(run.path)
    plain = model.predict("n7", data=tmp_path / "ring")
    few = tmp_path / "few.txt"
    few.write_text("a b\nb c\nc a\nc d\n")
    assert len(plain) == 10 and set(model.predict("a", data=few)["partner"]) == {"d"}
    assert np.allclose(model.score([(3, 9)])["score"], model.score([(3, 9)], data=make_link_graph())["score"])


def test_an_encoder_that_uses_no_features_takes_graphs_without(load):
    model, graph = load("knowformer"), make_link_graph()
    without = model.predict(3, data=dataclasses.replace(graph, x=None, fingerprint=""))
    pd.testing.assert_frame_equal(without, model.predict(3, data=graph))


def test_a_larger_graph_has_the_subgraph_budget_of_the_model(tmp_path):
    """Without `max_nodes` the budget is the size of the training graph."""
    run = train_links(tmp_path / "run", "pencil", link_data(num_neighbors=40, use_features=False))
    assert run.task.spec.max_subgraph_nodes == NODES
    star = tmp_path / "star.txt"
    star.write_text("".join(f"{hub} {leaf}\n" for hub in (0, 1) for leaf in range(2, 120)))
    found = graphzoo.load(run.path).score([(0, 1), (0, 5)], data=star)
    assert np.isfinite(found["score"]).all()


def test_other_features_are_refused(model, tmp_path):
    with pytest.raises(UsageError, match="has 3 features per node, the model was trained with 4"):
        model.predict(3, data=dataclasses.replace(make_link_graph(), x=torch.rand(NODES, 3), fingerprint=""))
    with pytest.raises(UsageError, match="have no features, but the model was trained with 4"):
        model.predict(3, data=make_link_graph(features=False))
    with pytest.raises(UsageError, match="there is no such path, and no data set"):
        model.predict(3, data=str(tmp_path / "nothing.csv"))
    (tmp_path / "loops.txt").write_text("a a\n")
    with pytest.raises(UsageError, match="loops.txt: no link between two different nodes"):
        model.predict(3, data=tmp_path / "loops.txt")


def test_features_of_tables_are_found_by_name(tmp_path, load):
    write_ring(tmp_path / "ring", features=True)
    run = train_links(tmp_path / "run", "galit", LinkDataModule(path=str(tmp_path / "ring"), batch_size=64))
    table = pd.read_csv(tmp_path / "ring" / "nodes.csv")
    model, expected = graphzoo.load(run.path), graphzoo.load(run.path, data=tmp_path / "ring").predict("n7")
    shutil.copytree(tmp_path / "ring", tmp_path / "turned")
    table[["name", "d", "b", "a", "c"]].assign(e=1).to_csv(tmp_path / "turned" / "nodes.csv", index=False)
    assert model.predict("n7", data=tmp_path / "turned").equals(expected)
    turned = LinkDataModule(path=str(tmp_path / "turned"))
    with pytest.raises(UsageError, match="the model's features are a, b, c, d, those of turned are d, b, a"):
        model.task.check_data(described(model), loaded(turned))
    model.task.encoder = load("knowformer").task.encoder  # does not use features
    with pytest.raises(UsageError, match="was trained on split random 0 of these links"):
        model.task.check_data(described(model), loaded(turned))
    model = graphzoo.load(run.path)
    table.rename(columns={"c": "other"}).to_csv(tmp_path / "turned" / "nodes.csv", index=False)
    with pytest.raises(UsageError, match="no feature 'c', which the model was trained with"):
        model.predict("n7", data=tmp_path / "turned")


@pytest.mark.parametrize("name", ["pencil", "galit"])
def test_a_test_with_another_number_of_features_is_refused(load, monkeypatch, name):
    model, data = load(name), loaded(link_data(normalize_features=True))
    trained = described(model)
    model.task.check_data(trained, data)
    others = [(None, 0), ({**trained["features"], "in_channels": 9}, 9)]
    for features, count in others:
        with pytest.raises(
            UsageError, match=f"has 4 features per node, the model was trained with {count}\n"
        ):
            model.task.check_data({**trained, "features": features}, data)
    monkeypatch.setattr(model.task.encoder, "use_features", False, raising=False)
    for features, _ in others:  # features are not used
        model.task.check_data({**trained, "features": features}, data)


def loaded(datamodule):
    datamodule.setup()
    return datamodule


def described(model):
    """Description of the data in the checkpoint."""
    return torch.load(model.checkpoint, weights_only=True)["graphzoo"]


def test_graphs_of_other_kinds_are_refused(link_runs, load):
    from graphzoo.datasets import NodeGraph, from_triples

    graph = make_link_graph()
    nodes = NodeGraph("n", graph.x, graph.edge_index("train"), torch.full((NODES,), -1), ())
    for data, what in (
        (nodes, "of nodes with features"),
        (from_triples([("a", "r", "b"), ("b", "r", "a")]), "knowledge"),
    ):
        with pytest.raises(UsageError, match=f"predicts links, but data= is a .*{what}"):
            load("pencil", data=data)


# Runs and checkpoints


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_copied_run_is_self_contained(link_runs, load, tmp_path, encoder):
    run = shutil.copytree(link_runs[encoder].path, tmp_path / "elsewhere")
    meta = json.loads((run / "graph" / "meta.json").read_text())
    meta["path"] = ["/gone/away.csv"]
    (run / "graph" / "meta.json").write_text(json.dumps(meta))
    assert graphzoo.load(run).predict(3).equals(load(encoder).predict(3))


def test_a_lone_checkpoint_asks_for_a_graph(link_runs, load, tmp_path):
    lone = shutil.copy(link_runs["pencil"].path / "checkpoints" / "best.ckpt", tmp_path / "lone.ckpt")
    with pytest.raises(UsageError, match="comes without a graph to answer on"):
        graphzoo.load(lone)
    assert graphzoo.load(lone, data=make_link_graph()).predict(3).equals(load("pencil").predict(3))


def test_a_large_graph_is_read_from_its_original_path(tmp_path, monkeypatch):
    from graphzoo.datamodules import LinkDataModule

    monkeypatch.setattr(base, "_KEPT_BYTES", 10)
    write_ring(tmp_path / "ring", features=True)
    run = tmp_path / "run"
    datamodule = LinkDataModule(path=str(tmp_path / "ring"), split_index=3)
    train_links(run, "galit", datamodule)
    assert not (run / "graph" / "link_graph.npz").exists()
    model = graphzoo.load(run)
    assert model.graph.fingerprint == datamodule.graph.fingerprint and len(model.predict("n4")) == 10
    edges = tmp_path / "ring" / "edges.csv"
    edges.write_text(edges.read_text() + "n0,n20\n")
    with pytest.raises(UsageError, match="is not the graph that the run was trained on"):
        graphzoo.load(run)
    edges.unlink()
    with pytest.raises(UsageError, match="reading it again from .*ring failed"):
        graphzoo.load(run)
    assert len(graphzoo.load(run, data=make_link_graph()).predict(4)) == 10


def test_a_large_data_set_is_read_with_its_split(tmp_path, monkeypatch):
    seen = []

    def load_by_name(name, **options):
        seen.append((name, options))
        return make_link_graph()

    monkeypatch.setattr(base, "_KEPT_BYTES", 10)
    monkeypatch.setattr(sources_module, "load_link_graph", load_by_name)
    datamodule = link_data(name="cora-link", root=str(tmp_path), split_index=2)
    graphzoo.load(train_links(tmp_path / "run", "galit", datamodule).path)
    assert seen == [("cora-link", {"protocol": "original", "split_index": 2, "root": str(tmp_path)})]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["graphzoo"].pop("data"), "no usable 'data'"),
        (lambda c: c["graphzoo"]["data"].pop("settings"), "no usable 'data.settings'"),
        (lambda c: c["graphzoo"]["data"]["settings"].update(depth=None), "no usable 'data.settings.depth'"),
        (
            lambda c: c["graphzoo"]["spec"].update(max_subgraph_nodes=20),
            "max_subgraph_nodes=20, but the weights are those of 14",
        ),
        (
            lambda c: c["graphzoo"]["encoder"]["init_args"].update(hidden_channels=32),
            "settings say hidden_channels=32, but the weights are those of hidden_channels=16",
        ),
    ],
)
def test_damaged_descriptions_are_refused(link_runs, tmp_path, change, message):
    run = shutil.copytree(link_runs["pencil"].path, tmp_path / "copy")
    path = run / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    change(checkpoint)
    torch.save(checkpoint, path)
    with pytest.raises(UsageError, match=message):
        graphzoo.load(run)


def test_a_heuristic_has_no_weights_to_load():
    from graphzoo.heuristics import LinkHeuristic
    from graphzoo.tasks import LinkPrediction

    task = LinkPrediction(lambda spec: LinkHeuristic(spec, name="cn"))
    datamodule = link_data()
    datamodule.setup()
    task.build(datamodule.spec)
    with pytest.raises(UsageError, match="LinkHeuristic is a heuristic without weights"):
        link_scoring.LinkPlace(task, datamodule.graph, None, datamodule.describe_settings())


def test_all_links_of_a_data_object_of_pyg_pass_messages(model):
    data = Data(x=model.graph.x.to_dense(), edge_index=model.graph.train.t(), num_nodes=model.graph.num_nodes)
    pairs = [(0, 1), (2, 3)]
    model.score(pairs, data=data)
    place = model._place(data)
    assert torch.equal(place.graph.train.sort(1).values, model.graph.train.sort(1).values)
    assert torch.equal(place.graph.x, data.x) and place.graph.num_nodes == data.num_nodes
    with pytest.raises(UsageError, match="data is a dict; graphzoo takes triples .*, an edge_index"):
        model.score(pairs, data={"edge_index": data.edge_index})


def test_features_of_another_graph_are_scaled_as_in_training(tmp_path):
    graph = make_link_graph()
    x = graph.x * 100 + 5
    first = dataclasses.replace(graph, x=x, fingerprint="")
    other = dataclasses.replace(make_link_graph(seed=1), name="other", x=x * 3, fingerprint="")
    data = LinkDataModule(edge_index=first, batch_size=64)
    task, trainer = fit("galit", data, 2)
    assert data.transform.mean is not None
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    model = graphzoo.load(tmp_path / "a.ckpt", data=first)
    pairs = other.test.positive
    there = LinkDataModule(edge_index=other, batch_size=64)
    figures = trainer.test(task, there, ckpt_path=str(tmp_path / "a.ckpt"), verbose=False)[0]
    torch.testing.assert_close(there.transform.mean, data.transform.mean)
    scores = torch.from_numpy(np.array(model.score(pairs, data=other)["score"]))
    negative = torch.from_numpy(np.array(model.score(other.test.negative, data=other)["score"]))
    assert figures["test/auroc"] == pytest.approx(float(link_figures(scores, negative)["auroc"]), abs=1e-6)
    again = LinkDataModule(edge_index=other, batch_size=64)
    in_memory = trainer.test(graphzoo.load(tmp_path / "a.ckpt", data=first).task, again, verbose=False)[0]
    assert in_memory["test/auroc"] == figures["test/auroc"]
    alike = torch.from_numpy(np.array(model.score(pairs)["score"]))
    assert not torch.allclose(alike, scores, atol=1e-3), "else this shows nothing"
    plain = LinkDataModule(edge_index=first, batch_size=64, standardize_features=False)
    with pytest.raises(UsageError, match="Give --data.standardize_features True"):
        trainer.test(task, plain, ckpt_path=str(tmp_path / "a.ckpt"), verbose=False)


def test_features_are_scaled_for_the_tested_weights(tmp_path):
    graph = make_link_graph()
    first = dataclasses.replace(graph, x=graph.x * 100 + 5, fingerprint="")
    other = dataclasses.replace(make_link_graph(seed=1), name="other", x=graph.x * 300, fingerprint="")
    data, there = (LinkDataModule(edge_index=each, batch_size=64) for each in (first, other))
    task, trainer = fit("galit", data, 2)
    trainer.save_checkpoint(tmp_path / "first.ckpt")
    own = trainer.test(task, data, verbose=False)[0]
    second, _ = fit("galit", there, 2)
    loaded = graphzoo.load(tmp_path / "first.ckpt", data=first).task
    at_other = trainer.test(loaded, there, verbose=False)[0]
    assert trainer.test(task, there, verbose=False)[0] == at_other, "fitted or loaded"
    trained_there = trainer.test(second, there, verbose=False)[0]
    assert trained_there != at_other
    torch.testing.assert_close(there.x.mean(0), torch.zeros(there.x.shape[1]), atol=1e-5, rtol=0)
    trainer.test(second, data, verbose=False)
    assert trainer.test(task, data, verbose=False)[0] == own


def test_names_of_another_graph_that_differ_by_a_zero_give_a_warning(load, tmp_path, recwarn):
    model = load("knowformer")
    (tmp_path / "edges.csv").write_text("source,target\n1.0,2\n2.0,1\n3,4\n")
    model.predict("3", k=1, data=tmp_path / "edges.csv")
    assert any("2 pairs of nodes are the same numbers" in str(warning.message) for warning in recwarn)


def test_pairs_read_as_comments_give_a_warning(model, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("#1\t#2\n#3\t#4\n3\t40\n")
    with pytest.warns(GraphzooDataWarning, match="2 lines of two columns at the top read as comments"):
        assert model.score(pairs).equals(model.score([(3, 40)]))


@pytest.mark.parametrize("form", ["pairs", "table", "networkx", "edge_index", "sparse"])
def test_a_graph_in_memory_has_the_scores_of_its_file(load, tmp_path, form):
    """The forms are those that `graphzoo.fit` accepts for links."""
    links = [(i, (i * 7 + 3) % 30) for i in range(30) if i != (i * 7 + 3) % 30] + [(0, 29)]
    (tmp_path / "links.csv").write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in links))
    edges = torch.tensor(links).t()
    given = {
        "pairs": links,
        "table": pd.DataFrame(links, columns=["source", "target"]),
        "networkx": networkx.Graph(links),
        "edge_index": edges,
        "sparse": torch.sparse_coo_tensor(edges.flip(0), torch.ones(len(links)), (30, 30)),
    }[form]
    model = load("knowformer")
    scores = model.score([(0, 5), (3, 9)], data=tmp_path / "links.csv")
    pd.testing.assert_frame_equal(model.score([(0, 5), (3, 9)], data=given), scores, atol=1e-6, rtol=0)


def test_predictions_are_averaged_over_draws_like_evaluation(link_runs, monkeypatch):
    run = link_runs["knowformer"]
    model, found = graphzoo.load(run.path), {}
    for task in (run.task, model.task):
        monkeypatch.setattr(task.encoder, "noise_std", 40.0)
    for draws in (1, 3):
        for task in (run.task, model.task):
            monkeypatch.setattr(task, "num_draws", draws)
        pairs, expected = scores_of_test(run)
        found[draws] = torch.from_numpy(model.score(pairs.numpy())["score"].to_numpy()).double()
        torch.testing.assert_close(found[draws], expected, atol=1e-5, rtol=1e-4)
    assert (found[1] - found[3]).abs().max() > 1e-3, "noise matters"


def test_a_forked_process_uses_one_thread(model, in_forked_process):
    with pytest.warns(UserWarning, match="forked after a model was loaded"):
        model.predict([0], k=1)
    assert in_forked_process == [1]
