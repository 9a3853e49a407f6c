"""Path lengths, compared with networkx, and MRR by path length, compared with `graphzoo test`."""

import csv
import json
import sys
from pathlib import Path

import networkx
import pytest
import torch

import graphzoo
from benchmarks import path_lengths


@pytest.mark.parametrize("num_facts", [12, 40, 150])
def test_path_lengths_agree_with_networkx(num_facts, monkeypatch):
    monkeypatch.setattr(path_lengths, "_AT_ONCE", 7)
    generator = torch.Generator().manual_seed(num_facts)
    facts = torch.randint(0, 30, (num_facts, 3), generator=generator)
    ends = torch.cartesian_prod(torch.arange(30), torch.arange(30))
    graph = networkx.Graph(facts[:, [0, 2]].tolist())
    graph.add_nodes_from(range(30))
    lengths = dict(networkx.all_pairs_shortest_path_length(graph))
    expected = [lengths[head].get(tail, -1) for head, tail in ends.tolist()]
    assert path_lengths.path_lengths(facts, 30, ends).tolist() == expected and max(expected) > 1


@pytest.fixture
def lines(fit, workplace, monkeypatch):
    """Lines of the table for a run and all of its test triples."""
    fit("--run_dir=run")
    for name in ("FIGURES", "RESULTS"):
        monkeypatch.setattr(path_lengths, name, workplace)
    monkeypatch.setattr(path_lengths, "TABLE", workplace / "path_lengths.csv")
    monkeypatch.setattr(sys, "argv", ["path_lengths", "run", "--triples", "9999", "--dropped", "0.5,0.9"])
    path_lengths.main()
    path_lengths.main()  # replaces the lines of the first call
    assert (workplace / "path-lengths.png").is_file()
    with (workplace / "path_lengths.csv").open() as file:
        return {(line["panel"], line["x"]): line for line in csv.DictReader(file)}


def test_without_missing_facts_the_mrr_is_that_of_the_test(lines):
    expected = json.loads(Path("run/results.json").read_text())["metrics"]["test/mrr"]
    assert float(lines["missing", "0"]["mrr"]) == pytest.approx(expected, abs=6e-5)
    by_length = [line for (panel, _), line in lines.items() if panel == "length"]
    queries = [int(line["queries"]) for line in by_length]
    assert sum(queries) == int(lines["missing", "0"]["queries"])
    weighted = sum(float(line["mrr"]) * count for line, count in zip(by_length, queries, strict=True))
    assert weighted / sum(queries) == pytest.approx(expected, abs=1e-4)
    assert lines["missing", "0.5"]["mrr"] != lines["missing", "0"]["mrr"] != lines["missing", "0.9"]["mrr"]


def test_a_larger_share_hides_the_facts_of_a_smaller_one(fit, workplace, monkeypatch):
    fit("--run_dir=run")
    seen = []
    monkeypatch.setattr(
        path_lengths,
        "reciprocal_ranks",
        lambda model, facts, chosen: (
            seen.append(set(map(tuple, facts.tolist()))) or torch.ones(2 * len(chosen))
        ),
    )
    model = graphzoo.load("run")
    list(path_lengths.measure(model, 5, [0.25, 0.5]))
    assert seen[2] < seen[1] < seen[0]
    assert [len(facts) for facts in seen] == [
        round(share * len(model.graph.train)) for share in (1, 0.75, 0.5)
    ]
