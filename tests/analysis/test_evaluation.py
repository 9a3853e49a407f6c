"""Tables of an evaluation, compared with their definitions and scikit-learn, and their files."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from graphzoo.analysis import (
    Evaluation,
    Table,
    estimate_tables,
    link_tables,
    node_tables,
    sample_nodes,
    triple_tables,
)
from graphzoo.analysis.nodes import project
from graphzoo.analysis.triples import categories
from graphzoo.catalog.tasks import TASKS
from graphzoo.errors import UsageError
from graphzoo.metrics import link_figures, summarize_ranks
from graphzoo.metrics.summary import group_table
from graphzoo.runs.tables import print_table

ENTITIES = tuple(f"entity {number}" for number in range(30))
RELATIONS = ("all", "NA", "likes")


@pytest.fixture(scope="module")
def ranked_triples():
    """Ranks of both directions of 40 triples, some of them tied, and the triples."""
    generator = torch.Generator().manual_seed(3)
    heads, relations, tails = (torch.randint(0, n, (40,), generator=generator) for n in (30, 3, 30))
    triples = torch.stack([heads, relations, tails], dim=1)
    best = torch.randint(1, 25, (80,), generator=generator)
    worst = best + torch.randint(0, 3, (80,), generator=generator)
    return (best, worst, torch.arange(80)), triples


def by_name(tables):
    return {table.name: table for table in tables}


def test_figures_of_a_relation_come_from_its_own_ranks(ranked_triples):
    (best, worst, index), triples = ranked_triples
    found = by_name(triple_tables((best, worst, index), triples, triples, ENTITIES, RELATIONS))["relations"]
    assert (found.kind, found.x, found.y) == ("bars", "relation", ("mrr",))
    assert list(found.data.relation.unique()) == list(RELATIONS)  # one relation is named "all"
    for row in found.data.itertuples():
        number = RELATIONS.index(row.relation)
        chosen = triples[index % 40, 1] == number
        if row.direction != "both":
            chosen &= (index >= 40) == (row.direction == "head")
        figures = summarize_ranks(best[chosen], worst[chosen])
        assert (row.triples, row.mrr) == (int(chosen.sum()), figures["mrr"])
        assert found.data.loc[row.Index, "hits@10"] == figures["hits@10"]
    assert found.data[found.data.direction != "both"].triples.sum() == 80


def test_categories_follow_the_mean_number_of_answers():
    #         1-1         1-N (two tails)      N-1 (three heads)                N-N
    facts = [(0, 0, 1), (0, 1, 2), (0, 1, 3), (1, 2, 0), (2, 2, 0), (3, 2, 0)]
    facts += [(a, 3, b) for a in (0, 1) for b in (2, 3)]
    facts = torch.tensor([*facts, facts[0]])  # a fact known twice counts once
    assert categories(facts, 5) == ["1-1", "1-N", "N-1", "N-N", ""]
    boundary = torch.tensor([[0, 0, 1], [0, 0, 2], [3, 0, 4]])
    assert categories(boundary, 1) == ["1-N"], "from a mean of 1.5 on it is N, as in Bordes et al. (2013)"
    assert categories(boundary.flip(1), 1) == ["N-1"]


def test_rank_bins_agree_with_hits(ranked_triples):
    (best, worst, index), triples = ranked_triples
    found = by_name(triple_tables((best, worst, index), triples, triples, ENTITIES, RELATIONS))["ranks"].data
    assert found["head"].sum() == found["tail"].sum() == 40
    for k in (1, 3, 10):
        share = found.loc[found["to"] <= k, ["head", "tail"]].to_numpy().sum() / 80
        assert share == pytest.approx(summarize_ranks(best, worst)[f"hits@{k}"], abs=1e-12)
    assert (found["from"].to_numpy()[1:] == found["to"].to_numpy()[:-1]).all()


def test_worst_and_best_triples_have_names_and_labels(ranked_triples):
    (best, worst, index), triples = ranked_triples
    labels, of_relations = {"entity 1": "the first"}, {"NA": "is near to"}
    texts = {"labels": labels, "relation_labels": of_relations}
    tables = by_name(triple_tables((best, worst, index), triples, triples, ENTITIES, RELATIONS, **texts))
    rows = tables["relations"].data
    assert rows["relation_label"].tolist() == [of_relations.get(name, "") for name in rows["relation"]]
    assert tables["relations"].shown()["relation"].unique().tolist() == ["all", "is near to", "likes"]
    ranks = ((best + worst) / 2).tolist()
    assert tables["worst"].data["rank"].tolist() == sorted(ranks, reverse=True)[:20]
    assert tables["best"].data["rank"].tolist() == sorted(ranks)[:20]
    for name in ("worst", "best"):
        for row in tables[name].data.itertuples():
            ids = [ENTITIES.index(row.head), RELATIONS.index(row.relation), ENTITIES.index(row.tail)]
            of_triple = (triples == torch.tensor(ids)).all(1).nonzero().squeeze(1)
            places = of_triple + (40 if row.direction == "head" else 0)
            assert row.rank in [ranks[place] for place in places.tolist()]
            assert row.head_label == labels.get(row.head, "")
            assert row.relation_label == of_relations.get(row.relation, "")
    nothing = torch.empty(0, dtype=torch.int64)
    assert triple_tables((nothing, nothing, nothing), triples, triples, ENTITIES, RELATIONS) == ()


def test_labels_replace_names_and_a_shared_label_keeps_the_name():
    data = {"head": ["Q1", "Q2", "Q3", "moon", "Q1"], "head_label": ["Earth", "moon", "moon", "", "Earth"]}
    table = Table.of("worst", "Worst", "table", {**data, "rank": range(5)})
    shown = table.shown()
    assert list(shown) == ["head", "rank"]
    assert shown["head"].tolist() == ["Earth", "moon (Q2)", "moon (Q3)", "moon", "Earth"]
    assert table.data["head"].tolist() == data["head"] and "head_label" in table.data


def test_classes_and_confusion_agree_with_scikit_learn():
    generator = torch.Generator().manual_seed(1)
    target = torch.randint(0, 4, (200,), generator=generator)
    logits = torch.randn(200, 5, generator=generator)  # no node belongs to the last class
    logits[:, 2] = -9.0  # no node is predicted to be of the third
    names = ["a", "b", "nan", "d", "e"]
    tables = by_name(node_tables(logits, target, names))
    assert set(tables) == {"classes", "confusion"}
    predicted = logits.argmax(1).numpy()
    expected = precision_recall_fscore_support(target.numpy(), predicted, labels=range(5), zero_division=0)
    found = tables["classes"].data
    for column, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert found[column].to_numpy() == pytest.approx(values, abs=1e-12)
    cells = tables["confusion"].data.pivot(index="true", columns="predicted", values="nodes")
    matrix = confusion_matrix(target.numpy(), predicted, labels=range(5))
    assert (cells.loc[names, names].to_numpy() == matrix).all()


def test_embedding_is_the_plane_of_two_principal_components():
    generator = torch.Generator().manual_seed(2)
    states = torch.randn(60, 7, generator=generator) * torch.arange(1, 8)
    expected = PCA(n_components=2, svd_solver="full").fit_transform(states.double().numpy())
    found = project(states).numpy()
    assert np.abs(found) == pytest.approx(np.abs(expected), abs=1e-9)
    assert project(torch.ones(3, 4)).abs().sum() == 0  # all nodes in one place
    assert project(torch.arange(3.0)[:, None])[:, 1].tolist() == [0, 0, 0]  # no second component
    before = torch.get_rng_state()
    sample = sample_nodes(5000)
    assert torch.equal(torch.get_rng_state(), before) and torch.equal(sample, sample_nodes(5000))
    assert len(sample.unique()) == 2000 and int(sample.max()) < 5000
    assert sample_nodes(3).tolist() == [0, 1, 2]


def test_embedding_shows_the_sampled_nodes():
    logits, target = torch.eye(4)[[0, 1, 1, 3]], torch.tensor([0, 1, 2, 3])
    sample = torch.tensor([1, 2])
    tables = node_tables(
        logits,
        target,
        "abcd",
        nodes=["no", "one", "two", "three"],
        states=torch.tensor([[0.0, 1.0], [2.0, 1.0]]),
        sample=sample,
    )
    shown = by_name(tables)["embedding"].data
    assert shown[["node", "class", "predicted"]].to_numpy().tolist() == [["one", "b", "b"], ["two", "c", "b"]]
    assert sorted(shown.x) == [-1.0, 1.0] and shown.y.tolist() == [0.0, 0.0]


def test_worst_and_best_nodes_are_ordered_by_the_probability_of_their_class():
    logits = torch.tensor([[0.0, 0.0], [3.0, 0.0], [1.0, 0.0], [0.0, 4.0]])
    names = ["half", "wrong", "right", "surest"]
    tables = by_name(node_tables(logits, torch.tensor([0, 1, 0, 1]), ["x", "y"], nodes=names))
    worst, best = tables["worst"].data, tables["best"].data
    assert worst.node.tolist() == ["wrong", "half", "right", "surest"] == best.node.tolist()[::-1]
    assert worst[["class", "predicted"]].to_numpy().tolist()[0] == ["y", "x"]
    expected = [1 / (1 + math.exp(3)), 0.5, 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-4))]
    assert worst.probability.tolist() == pytest.approx(expected)
    logits = torch.zeros(30, 2)
    many = by_name(node_tables(logits, torch.zeros(30, dtype=torch.int64), ["x", "y"], nodes=range(30)))
    assert many["worst"].data.node.tolist() == list(range(20)), "ties keep their order"


def test_yes_no_labels_have_an_auroc_or_nan():
    target = torch.tensor([[1.0, 0.0], [0.0, math.nan], [1.0, 0.0]])
    (found,) = node_tables(torch.tensor([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0]]), target, ["x", "y"])
    assert found.name == "classes" and found.y == ("auroc",)
    assert found.data.support.tolist() == [2, 0]
    assert found.data.auroc[0] == 1.0 and math.isnan(found.data.auroc[1])
    assert node_tables(torch.empty(0, 2), torch.empty(0, dtype=torch.int64), ["x", "y"]) == ()


@pytest.mark.parametrize("own", [False, True])
def test_link_tables_agree_with_the_figures(own):
    generator = torch.Generator().manual_seed(4)
    positive = torch.randint(0, 9, (50,), generator=generator).double()
    negative = torch.randint(0, 9, (50, 120) if own else (120,), generator=generator).double() - 2
    positive[3] = math.nan  # limited batches leave pairs without a score
    negative[..., 7] = math.nan
    links = torch.stack([torch.arange(50), torch.arange(50) + 100], 1)
    tables = by_name(link_tables(positive, negative, links, [f"n{number}" for number in range(200)]))
    seen = ~positive.isnan()
    worst, best = tables["worst"].data, tables["best"].data
    for row in [*worst.itertuples(), *best.itertuples()]:
        number = int(row.source[1:])
        rivals = negative[number] if own else negative
        above, level = int((rivals > row.score).sum()), int((rivals == row.score).sum())
        assert (row.target, row.score) == (f"n{number + 100}", float(positive[number]))
        assert row.rank == 1 + above + (level / 2 if own else level)
    assert len(worst) == len(best) == 20 and "n3" not in {*worst.source, *best.source}
    assert worst["rank"].is_monotonic_decreasing and best["rank"].is_monotonic_increasing
    assert worst["rank"][0] > worst["rank"][19] >= best["rank"][19] > best["rank"][0]
    assert "worst" not in by_name(link_tables(positive, negative))
    figures = link_figures(positive[seen], negative[seen] if own else negative, (1, 3, 10, 20, 50, 100))
    curve = tables["hits"].data.set_index("k").hits
    assert {f"hits@{k}": curve[k] for k in (1, 3, 10, 20, 50, 100)} == pytest.approx(
        {name: float(value) for name, value in figures.items() if name.startswith("hits")}
    )
    bins = tables["scores"].data
    judged = negative[seen] if own else negative
    assert bins.positives.sum() == 49 and bins.negatives.sum() == int((~judged.isnan()).sum())
    below = int((judged < bins["to"][9]).sum())
    assert bins.negatives[:10].sum() == below > 0
    assert link_tables(positive * math.nan, negative) == ()


@pytest.mark.parametrize(
    ("positive", "negative"),
    [(0.0, 0.0), (1.0, 1.0 + 2.3e-16), (1e17, 1e17), (1.7e308, -1.7e308)],
    ids=["equal", "neighbouring", "equal and large", "far apart"],
)
def test_unusual_scores_have_a_histogram(positive, negative):
    double = {"dtype": torch.float64}
    scores = torch.full((3,), positive, **double), torch.full((4,), negative, **double)
    bins = by_name(link_tables(*scores))["scores"].data
    assert (bins.positives.sum(), bins.negatives.sum()) == (3, 4)


def test_estimates_pair_prediction_and_target():
    predicted = torch.tensor([0.5, math.nan, 2.0, 3.0])
    (found,) = estimate_tables(predicted, torch.tensor([1.0, 1.0, 2.0, 4.0]), num_positives=2)
    assert found.data.to_numpy().tolist() == [
        [1.0, 0.5, "link"],
        [2.0, 2.0, "no link"],
        [4.0, 3.0, "no link"],
    ]


# Files

NASTY = ["NA", "", 'a,"b"', "line\nbreak", "return\rhere", "ünïcode", " space ", "1.5", "null", "tab\t"]


def evaluation():
    rows = pd.DataFrame(
        {
            "name": NASTY,
            "number": range(10),
            "share": [0.1 + 0.2, math.nan, 1e-300, *range(7)],
            "right": [True, False] * 5,
        }
    )
    tables = (
        Table("rows", "Some rows", "bars", rows, x="name", y=("share",)),
        Table("none", "No row", "table", pd.DataFrame({"a": pd.Series([], dtype="int64")})),
    )
    return Evaluation("test", {"test/mrr": 0.1 + 0.2, "test/auroc": math.nan}, tables)


def test_a_loaded_evaluation_equals_the_saved_one(tmp_path):
    kept = evaluation()
    kept.save(tmp_path / "evaluation" / "test")
    found = Evaluation.load(tmp_path / "evaluation" / "test")
    assert found.split == "test" and found.figures["test/mrr"] == 0.1 + 0.2
    assert math.isnan(found.figures["test/auroc"])
    for mine, theirs in zip(kept.tables, found.tables, strict=True):
        assert (mine.name, mine.title, mine.kind, mine.x, mine.y) == (
            theirs.name, theirs.title, theirs.kind, theirs.x, theirs.y,
        )  # fmt: skip
        for column in mine.data:
            assert theirs.data[column].isna().tolist() == mine.data[column].isna().tolist()
            known = ~mine.data[column].isna()
            assert theirs.data[column][known].tolist() == mine.data[column][known].tolist()
    assert found.table("rows").label == "" and found.table("other") is None


@pytest.mark.parametrize("file", ["index.json", "rows.csv"])
@pytest.mark.parametrize("harm", ["truncate", "change", "remove"])
def test_damaged_files_are_named(tmp_path, file, harm):
    folder = tmp_path / "test"
    evaluation().save(folder)
    path = folder / file
    text = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(text[: len(text) // 2] if harm == "truncate" else text.replace(b"a", b"\xff"))
    with pytest.raises(UsageError) as error:
        Evaluation.load(folder)
    assert file in str(error.value) and len(str(error.value).splitlines()) <= 6


def test_a_changed_digit_is_detected(tmp_path):
    evaluation().save(tmp_path / "test")
    path = tmp_path / "test" / "rows.csv"
    path.write_bytes(path.read_bytes().replace(b"2", b"3", 1))
    with pytest.raises(UsageError, match="rows.csv is damaged .*sha256"):
        Evaluation.load(tmp_path / "test")


def test_undamaged_tables_are_loaded_beside_a_damaged_one(tmp_path):
    evaluation().save(tmp_path / "test")
    (tmp_path / "test" / "rows.csv").unlink()
    damaged = []
    found = Evaluation.load(tmp_path / "test", damaged=damaged)
    assert [table.name for table in found.tables] == [
        table.name for table in evaluation().tables if table.name != "rows"
    ]
    assert found.tables and len(damaged) == 1 and "rows.csv is damaged" in damaged[0]


def test_an_index_cannot_name_files_outside_its_folder(tmp_path):
    evaluation().save(tmp_path / "test")
    path = tmp_path / "test" / "index.json"
    content = json.loads(path.read_text())
    content["tables"][0]["name"] = "../../secret"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match="not a name of a table"):
        Evaluation.load(tmp_path / "test")


def test_a_failed_save_keeps_the_old_evaluation(tmp_path, monkeypatch):
    folder = tmp_path / "test"
    evaluation().save(folder)
    monkeypatch.setattr(pd.DataFrame, "to_csv", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        Evaluation("test", {}, evaluation().tables).save(folder)
    monkeypatch.undo()
    assert Evaluation.load(folder).figures["test/mrr"] == 0.1 + 0.2
    Evaluation("test", {"test/mrr": 1.0}).save(folder)
    assert Evaluation.load(folder).figures == {"test/mrr": 1.0}
    assert [path.name for path in tmp_path.iterdir()] == ["test"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(UsageError, match="not an evaluation"):
        evaluation().save(tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_a_failed_rename_keeps_the_old_evaluation(tmp_path, monkeypatch):
    folder = tmp_path / "test"
    evaluation().save(folder)
    rename = Path.rename

    def refuse(path, target):
        if path.name.endswith(".part"):
            raise OSError("no space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="no space"):
        Evaluation("test", {"test/mrr": 1.0}).save(folder)
    assert Evaluation.load(folder).figures["test/mrr"] == 0.1 + 0.2
    assert [path.name for path in tmp_path.iterdir()] == ["test"]


def test_a_relation_named_all_is_not_printed_as_the_total(ranked_triples, capsys):
    (best, worst, index), triples = ranked_triples
    rows = group_table(best, worst, index, triples, RELATIONS, ties="realistic", hits=(1, 10))
    assert sum(row["relation"] == "all" for row in rows) == 6
    print_table("test", {"test/mrr": 0.5, "test/mr": 9.0}, rows, "test", TASKS["kg-completion"])
    printed = capsys.readouterr().out
    for row in rows[1:3]:
        (line,) = (line for line in printed.splitlines() if f" {row['direction']} " in line)
        assert f"{row['mrr']:.4f}" in line


def test_tables_refuse_wrong_definitions():
    rows = pd.DataFrame({"a": [1]})
    with pytest.raises(ValueError, match="column b"):
        Table("rows", "", "bars", rows, x="b")
    with pytest.raises(ValueError, match="kind"):
        Table("rows", "", "pie", rows)
    with pytest.raises(ValueError, match="name"):
        Table("Rows/x", "", "bars", rows)
