"""Facts of a graph that explain which model does well on it, from training and validation data only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphzoo.catalog.classes import load_class
from graphzoo.heuristics import adjacency_matrix, common_neighbors

Fact = tuple[str, str]
"""Name and value of a fact, for a table."""
_ASKED, _NEAR = 200, 300  # number of validation triples, and of entities in a neighbourhood


def load_data(settings: Mapping[str, Any]) -> Any:
    """Make the data module that the settings of a run name, and load its training data."""
    chosen = settings["data"]
    datamodule = load_class(chosen["class_path"], "the data preset")(**chosen.get("init_args", {}))
    datamodule.prepare_data()
    datamodule.setup("fit")
    return datamodule


def fingerprints(datamodule: Any) -> list[str]:
    """The fingerprints of the data and of the split."""
    return [datamodule.fingerprint, datamodule.describe_split()["fingerprint"]]


def of_nodes(datamodule: Any) -> tuple[list[Fact], str]:
    """Facts of a graph for node classification, and a description in words; "" if they say nothing."""
    graph = datamodule.graph
    count, edges = graph.num_nodes, graph.edge_index.shape[1]
    facts = [("nodes", f"{count:,}"), ("edges a node", f"{edges / count:.1f}"),
             ("features", f"{graph.x.shape[1]:,}"), ("classes", f"{graph.num_classes}")]  # fmt: skip
    if graph.y.dim() == 2:
        return facts, ""
    known = torch.full((count,), -1)
    for part in ("train", "valid"):  # test labels must not influence the choice
        nodes = getattr(datamodule.split, part)
        known[nodes] = graph.y[nodes]
    ends = known[graph.edge_index]
    ends = ends[:, (ends >= 0).all(0)]
    shares = torch.bincount(known[known >= 0]).double()
    largest, by_chance = float(shares.max() / shares.sum()), float((shares / shares.sum()).square().sum())
    facts.append(("largest class", f"{100 * largest:.0f} %"))
    if not ends.shape[1]:
        return facts, ""
    same = float((ends[0] == ends[1]).double().mean())
    facts.append(("edges inside a class", f"{100 * same:.0f} % ({100 * by_chance:.0f} % by chance)"))
    text = f"{100 * same:.0f} % of the edges join nodes of one class ({100 * by_chance:.0f} % by chance)"
    if same < 0.6 * by_chance:
        return facts, f"{text}: neighbours mostly differ, which says something as well"
    informative = same > by_chance + 0.2 * (1 - by_chance)
    return facts, f"{text}: neighbours' labels say {'much' if informative else 'little'}"


def of_links(datamodule: Any) -> tuple[list[Fact], str]:
    """Facts of a graph for link prediction, and a description in words; "" if they say nothing."""
    graph = datamodule.graph
    facts = [("nodes", f"{graph.num_nodes:,}"), ("training links", f"{len(graph.train):,}"),
             ("links a node", f"{2 * len(graph.train) / graph.num_nodes:.1f}"),
             ("features", f"{graph.x.shape[1]:,}" if graph.x is not None else "none")]  # fmt: skip
    asked = graph.valid.positive[:1000]
    if not len(asked):
        return facts, ""
    shared = (common_neighbors(adjacency_matrix(graph.train.t(), graph.num_nodes), asked) > 0).mean()
    facts.append(("validation links with a common neighbour", f"{100 * shared:.0f} %"))
    text = f"{100 * shared:.0f} % of the links join nodes with a common neighbour: their number says "
    return facts, text + ("little" if shared < 0.3 else "much")


def of_triples(datamodule: Any) -> tuple[list[Fact], str]:
    """Facts of a knowledge graph, and a description in words; "" if they say nothing."""
    from graphzoo.sampling import NeighbourhoodSampler

    graph = datamodule.knowledge_graph
    facts = [("entities", f"{graph.num_entities:,}"), ("relations", f"{graph.num_relations:,}"),
             ("facts", f"{len(graph.train):,}"),
             ("facts an entity", f"{len(graph.train) / graph.num_entities:.1f}")]  # fmt: skip
    asked = graph.valid[:_ASKED]
    if not len(asked) or graph.num_entities <= _NEAR:
        return facts, ""
    sampler = NeighbourhoodSampler(datamodule.graph("train"), _NEAR)
    _, levels = sampler.with_levels(asked[:, 0], asked[:, 1])
    inside = float((levels.gather(1, asked[:, 2:]) == 0).double().mean())
    facts.append((f"answers among the {_NEAR} entities near the head", f"{100 * inside:.0f} %"))
    return facts, f"{100 * inside:.0f} % of the answers are among the {_NEAR} entities nearest to the head"


def sentence(
    rows: Sequence[dict[str, Any]], description: str, transformers: Sequence[str], *, percent: bool = False
) -> str:
    """Advice in words: which model leads, by how much, whether that is more than chance, and why.

    Args:
        rows: Models with a score, the best first: `model`, `score`, `margin` (one standard deviation or error
            of the score), `seconds`, and `is_cut`, whether it was stopped before its training ended.
        description: Description of the graph; may be "".
        transformers: Names of the models that are graph transformers.
        percent: Whether scores are shown in per cent.
    """

    def shown(difference: float) -> str:
        return f"{100 * difference:.1f} points" if percent else f"{difference:.3f}"

    first, *others = rows
    said = [f"Take {first['model']}."]
    if others:
        margin = max(first["margin"], others[0]["margin"])
        lead = abs(first["score"] - others[0]["score"])
        if lead > margin:
            ahead = f"it leads {others[0]['model']} by {shown(lead)}, more than chance ({shown(margin)})"
            said = [f"Take {first['model']}: {ahead}."]
        else:
            tied = [row for row in others if abs(first["score"] - row["score"]) <= margin]
            names = [row["model"] for row in tied]
            listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
            are = "is" if len(names) == 1 else "are"
            said = [f"{first['model']} leads, but {listed} {are} within chance ({shown(margin)})."]
            fast = min([first, *tied], key=lambda row: row["seconds"])
            if fast is not first:
                said.append(f"{fast['model']} is the fastest of them ({fast['seconds']:.0f} s).")
    if description:
        said.append(description[0].upper() + description[1:] + ".")
    best = next((row for row in rows if row["model"].partition(",")[0] in transformers), None)
    if best is not None and best is not first:
        behind = abs(first["score"] - best["score"])
        if behind > max(first["margin"], best["margin"]):
            behind_by = f"the best one, {best['model']}, is {shown(behind)} behind"
            said.append(f"Graph transformers are not worth it here: {behind_by}.")
    judged = [first] if best is None or best is first else [first, best]
    if cut := [row["model"] for row in judged if row["is_cut"]]:
        were = f"{' and '.join(cut)} {'was' if len(cut) == 1 else 'were'}"
        said.append(f"{were} stopped before the training ended; more --minutes may change this.")
    return " ".join(said)
