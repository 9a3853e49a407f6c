"""`KnowledgeGraph`: ids of names, fingerprints, warnings with counts, the .npz file."""

import warnings
import zipfile

import numpy as np
import pytest
import torch

from graphzoo.datasets import DataError, GraphzooDataWarning, KnowledgeGraph, from_triples
from graphzoo.datasets.kg.build import triple_keys

TRAIN = [("b", "s", "a"), ("a", "r", "b"), ("c", "r", "a")]


def named(graph, split):
    triples = graph.split(split).tolist()
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples]


def test_ids_are_positions_in_sorted_names_and_triples_are_sorted():
    graph = from_triples(TRAIN, [("a", "s", "c")], [("c", "s", "b")])
    assert graph.entities == ("a", "b", "c")
    assert graph.relations == ("r", "s")
    assert graph.train.dtype == torch.int64
    assert graph.train.tolist() == sorted(graph.train.tolist())
    assert sorted(named(graph, "train")) == sorted(TRAIN)
    assert named(graph, "valid") == [("a", "s", "c")]
    assert graph.known_triples().size(0) == 5


def test_the_fingerprint_depends_on_content_and_not_on_line_order():
    one = from_triples(TRAIN, [("a", "s", "c")])
    other = from_triples(TRAIN[::-1], [("a", "s", "c")])
    assert one.fingerprint == other.fingerprint
    assert torch.equal(one.train, other.train)
    changed = [
        from_triples(TRAIN, None, [("a", "s", "c")]),
        from_triples(TRAIN[:2] + [("c", "s", "a")], [("a", "s", "c")]),
        from_triples([("b", "s", "a"), ("a", "r", "b"), ("d", "r", "a")], [("a", "s", "d")]),
    ]
    assert len({one.fingerprint, *(graph.fingerprint for graph in changed)}) == 4


def test_the_fingerprint_depends_on_the_limits_of_names():
    """("ab", "c") and ("a", "bc") must have different hashes."""
    shared = torch.zeros(0, 3, dtype=torch.int64)
    one = KnowledgeGraph("x", ("a", "b"), ("c",), shared, shared, shared)
    other = KnowledgeGraph("x", ("a",), ("b", "c"), shared, shared, shared)
    assert one.fingerprint != other.fingerprint


def test_clean_data_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_triples(TRAIN, [("a", "s", "c")])


def notices(*args, **kwargs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = from_triples(*args, **kwargs)
    assert all(warning.category is GraphzooDataWarning for warning in caught)
    return graph, [str(warning.message) for warning in caught]


def test_duplicates_are_dropped_and_counted():
    graph, lines = notices([*TRAIN, TRAIN[0], TRAIN[0], TRAIN[1]])
    assert graph.train.size(0) == 3
    assert lines == ["3 duplicate triples in train dropped (first: train, row 4)"]


def test_overlaps_are_kept_and_counted():
    graph, lines = notices(TRAIN, [("a", "s", "c"), TRAIN[0]], [TRAIN[1], TRAIN[0]])
    assert graph.valid.size(0) == 2 and graph.test.size(0) == 2
    assert len(lines) == 3
    assert lines[0].startswith("1 valid triple also in train, kept") and "valid, row 2" in lines[0]
    assert lines[1].startswith("2 test triples also in train, kept") and "test, row 1" in lines[1]
    assert lines[2].startswith("1 test triple also in valid, kept") and "test, row 2" in lines[2]


@pytest.mark.parametrize("order", [1, -1])
def test_the_first_of_several_lines_is_named_in_any_order(order):
    _, (line,) = notices(TRAIN, None, TRAIN[::order])
    assert line.endswith("(first: test, row 1)")
    unseen = [("z", "r", "a"), ("a", "r", "b2")][::order]
    _, (line,) = notices(TRAIN, None, unseen)
    assert line.endswith(f"(first: test, row 1, {'z' if order == 1 else 'b2'!r})")


def test_unseen_entities_are_in_the_vocabulary():
    graph, lines = notices(TRAIN, None, [("a", "r", "b2"), ("z", "r", "b2"), ("a", "r", "c")])
    assert graph.num_entities == 5
    (line,) = lines
    assert line.startswith("2 entities of test without a training triple, kept as isolated: 2 triples")
    assert "test, row 1, 'b2'" in line


def test_an_unknown_relation_is_refused_with_its_row_and_the_nearest():
    with pytest.raises(DataError, match=r"test, row 2: relation 'treat' .*treats"):
        from_triples([("a", "treats", "b")], None, [("a", "treats", "b"), ("b", "treat", "a")])
    with pytest.raises(DataError, match="training graph"):
        from_triples([("a", "q", "b")], relations=("r",))


def test_relations_can_be_given():
    graph = from_triples([("a", "s", "b")], relations=("r", "s"))
    assert graph.relations == ("r", "s")
    assert graph.train.tolist() == [[0, 1, 1]]


def test_more_names_than_64_bits_can_number_are_refused():
    none = np.zeros((0, 3), dtype=np.int64)
    with pytest.raises(DataError, match="1,073,741,824 entities with 4 relations are too many"):
        triple_keys(none, 2**30, 4)
    assert triple_keys(none, 2**30, 3).size == 0


def test_no_training_triples():
    with pytest.raises(DataError, match="no training triples"):
        from_triples([])


def test_unknown_split():
    with pytest.raises(ValueError, match="train, valid, test"):
        from_triples(TRAIN).split("dev")


def test_save_and_load(tmp_path):
    graph = from_triples(
        [("ä", "r/1", "b c"), *TRAIN],
        [("a", "s", "c")],
        name="own",
        entity_labels={"a": "Ähre"},
        relation_labels={"r/1": "reads"},
    )
    path = tmp_path / "deep" / "graph.npz"
    graph.save(path)
    loaded = KnowledgeGraph.load(path)
    assert loaded.name == "own"
    assert loaded.entities == graph.entities and loaded.relations == graph.relations
    for split in ("train", "valid", "test"):
        assert torch.equal(loaded.split(split), graph.split(split))
        assert loaded.split(split).dtype == torch.int64
    assert loaded.entity_labels == {"a": "Ähre"} and loaded.relation_labels == {"r/1": "reads"}
    assert loaded.fingerprint == graph.fingerprint
    assert [entry.name for entry in path.parent.iterdir()] == ["graph.npz"]


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "graph.npz"
    with pytest.raises(DataError, match="no such file"):
        KnowledgeGraph.load(path)
    from_triples(TRAIN).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a readable"):
        KnowledgeGraph.load(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="not a readable"):
        KnowledgeGraph.load(path)


def test_pickles_and_changed_content_are_refused(tmp_path):
    path = tmp_path / "graph.npz"
    from_triples(TRAIN).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "entities": np.array([object()], dtype=object)})
    with pytest.raises(DataError):
        KnowledgeGraph.load(path)
    np.savez(path, **{**arrays, "train": arrays["train"][:, ::-1]})
    with pytest.raises(DataError, match="fingerprint") as refused:
        KnowledgeGraph.load(path)
    assert str(refused.value).count(str(path)) == 1
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.npy", b"nonsense")
    with pytest.raises(DataError):
        KnowledgeGraph.load(path)


def test_without_removes_the_triples_of_other_graphs_by_name():
    train = [*TRAIN, ("b", "r", "x:y")]
    graph = from_triples(train, [("a", "s", "c"), ("b", "s", "c")], [("c", "s", "b"), ("x:y", "s", "a")])
    others = [
        from_triples([("c", "r", "a"), ("z", "r", "a"), ("a", "q", "b"), ("d", "s", "d")], [("c", "s", "b")]),
        from_triples([("b", "s", "c")]),
        from_triples([("new", "r", "b"), ("new", "s", "a"), ("a", "r", "new")]),
        from_triples([("x_y", "s", "a")]),
    ]
    rest = graph.without(others)
    assert rest.entities == graph.entities and rest.relations == graph.relations, "names must keep their ids"
    assert sorted(named(rest, "train")) == sorted(set(train) - {("c", "r", "a")})
    assert named(rest, "valid") == [("a", "s", "c")]
    assert named(rest, "test") == [], "test triples are compared with all splits, and x:y with x_y"
    assert rest.fingerprint != graph.fingerprint
    assert graph.without([]).fingerprint == graph.fingerprint
    other = from_triples([("a", "s", "new")])  # it is not the triple before (a, s, first entity)
    last = from_triples([("a", "r", "z"), ("a", "s", "a")])
    assert last.without([other]).fingerprint == last.fingerprint


def test_without_removes_triples_of_both_similar_names():
    facts = [("c:a", "r", "x"), ("c_a", "r", "x")]
    graph = from_triples([*facts, ("x", "r", "y")])
    assert named(graph.without([from_triples([*facts, ("x", "r", "z")])]), "train") == [("x", "r", "y")]
    assert named(graph.without([from_triples(facts[:1])]), "train") == [("x", "r", "y")]
