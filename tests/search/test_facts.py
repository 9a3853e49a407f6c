"""Facts of a graph, and the advice from a table of scores."""

import pytest
import torch
from helpers.link_graphs import make_link_graph

from graphzoo.datamodules import KGDataModule, LinkDataModule, NodeDataModule
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
