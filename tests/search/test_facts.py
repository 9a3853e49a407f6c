"""Facts of a graph, and the advice from a table of scores."""

from types import SimpleNamespace

import pytest
import torch
from helpers.link_graphs import make_link_graph

from graphzoo.datamodules import KGDataModule, LinkDataModule, NodeDataModule
from graphzoo.search import facts as search_facts
from graphzoo.search.facts import of_links, of_nodes, of_triples, sentence


def row(model, score, *, margin=0.01, seconds=10.0):
    return {"model": model, "score": score, "margin": margin, "seconds": seconds, "is_cut": False}


@pytest.mark.parametrize(
    ("rows", "words", "expected"),
    [
        ([row("sage", 0.9), row("galit", 0.8)], "neighbours say little",
         "Take sage: it leads galit by 0.100, more than chance (0.010). Neighbours say little. Graph "
         "transformers are not worth it here: the best one, galit, is 0.100 behind."),
        ([row("galit", 0.9, seconds=30.0), row("sage", 0.895), row("gcn", 0.893), row("mlp", 0.5)], "",
         "galit leads, but sage and gcn are within chance (0.010). sage is the fastest of them (10 s)."),
        ([row("sage", 0.9), row("galit", 0.88, margin=0.05)], "",
         "sage leads, but galit is within chance (0.050)."),
        ([row("galit", 0.9)], "", "Take galit."),
        ([row("sage", 0.2), row("mlp", 0.3)], "",
         "Take sage: it leads mlp by 0.100, more than chance (0.010)."),
    ],
)  # fmt: skip
def test_advice_names_the_best_model_and_those_within_chance(rows, words, expected):
    assert sentence(rows, words, ("galit", "nodeformer")) == expected


@pytest.mark.parametrize(
    ("same", "expected"),
    [(True, ("100 %", "say much")), (False, ("0 %", "differ, which says something as well"))],
)
def test_edges_inside_a_class_are_counted_without_test_labels(same, expected):
    count = 40
    y = torch.arange(count) % 2
    edges = torch.stack([torch.arange(count - 2), torch.arange(2, count)])
    if not same:
        edges[1] -= 1
    masks = {
        f"{part}_mask": torch.arange(count) % 4 == number for number, part in enumerate(("train", "val"))
    }
    masks["train_mask"] |= torch.arange(count) % 4 == 1
    masks["val_mask"] = torch.arange(count) % 4 == 2
    masks["test_mask"] = torch.arange(count) % 4 == 3
    data = {"x": torch.ones(count, 3), "edge_index": edges, "y": y, **masks}
    facts, words = {}, []
    for wrong in (False, True):
        if wrong:
            data = {**data, "y": torch.where(masks["test_mask"], 1 - y, y)}
        module = NodeDataModule.from_data(data)
        module.setup()
        found, text = of_nodes(module)
        facts[wrong] = dict(found)["edges inside a class"]
        words.append(text)
    assert (
        words[0].startswith(expected[0]) and words[0].endswith(expected[1]) and facts[True] == facts[False]
    ), "labels of the test split are not read"


@pytest.mark.parametrize(("same", "told"), [(11, "55 %"), (13, "65 %")])
def test_labels_say_much_from_a_fifth_above_chance_on(same, told):
    inside, between = torch.tensor([[0, 2], [1, 3]]), torch.tensor([[0, 1], [2, 3]])
    edges = torch.cat([inside.repeat(1, 10)[:, :same], between.repeat(1, 10)[:, : 20 - same]], dim=1)
    graph = SimpleNamespace(num_nodes=4, num_classes=2, x=torch.ones(4, 1), y=torch.tensor([0, 0, 1, 1]))
    graph.edge_index = edges
    split = SimpleNamespace(train=torch.tensor([0, 1]), valid=torch.tensor([2, 3]))
    facts, words = of_nodes(SimpleNamespace(graph=graph, split=split))
    assert facts == [
        ("nodes", "4"),
        ("edges a node", "5.0"),
        ("features", "1"),
        ("classes", "2"),
        ("largest class", "50 %"),
        ("edges inside a class", f"{told} (50 % by chance)"),
    ]
    assert words == (
        f"{told} of the edges join nodes of one class (50 % by chance): neighbours' labels say "
        + ("much" if same == 13 else "little")
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([(0, 2)], "100 % of the links join nodes with a common neighbour: their number says much"),
        (
            [(0, 2), (0, 1), (2, 3), (3, 4)],
            "25 % of the links join nodes with a common neighbour: their number says little",
        ),
        ([], ""),
    ],
)
def test_common_neighbours_are_those_of_training_links(asked, told):
    positive = torch.tensor(asked, dtype=torch.int64).reshape(-1, 2)
    graph = SimpleNamespace(num_nodes=5, x=None, train=torch.tensor([[0, 1], [1, 2]]))
    graph.valid = SimpleNamespace(positive=positive)
    assert of_links(SimpleNamespace(graph=graph))[1] == told


def test_answers_near_the_head_are_counted(monkeypatch):
    monkeypatch.setattr(search_facts, "_NEAR", 4)
    train = [(f"{group}{i}", "r", f"{group}{j}") for group in "ab" for i in range(4) for j in range(i)]
    module = KGDataModule.from_triples(
        train, valid=[("a0", "r", "a1"), ("a0", "r", "b1")], test=[("b0", "r", "b1")]
    )
    module.setup()
    assert of_triples(module)[1] == "50 % of the answers are among the 4 entities nearest to the head"


def test_links_and_triples_have_facts():
    links = LinkDataModule.from_edge_index(make_link_graph().train.t())
    links.setup()
    found, words = of_links(links)
    shared = dict(found)["validation links with a common neighbour"]
    assert words.startswith(f"{shared} of the links join nodes with a common neighbour")
    triples = KGDataModule("umls")
    triples.setup()
    assert dict(of_triples(triples)[0])["entities"] == "135"


def test_advice_names_stopped_models_and_gives_differences_in_points():
    rows = [row("sgc", 0.9) | {"is_cut": True}, row("gcn", 0.895), row("galit", 0.862) | {"is_cut": True}]
    assert sentence(rows, "", ("galit",), percent=True) == (
        "sgc leads, but gcn is within chance (1.0 points). Graph transformers are not worth it here: the "
        "best one, galit, is 3.8 points behind. sgc and galit were stopped before the training ended; more "
        "--minutes may change this."
    )
    assert "stopped" not in sentence([rows[1] | {"is_cut": False}, rows[0]], "", ("galit",))
