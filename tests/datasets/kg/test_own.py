"""Own knowledge graphs in folders and files."""

import gzip
import logging
import re
import warnings

import numpy as np
import pytest

from graphzoo.datamodules import KGDataModule
from graphzoo.datasets import DataError, GraphzooDataWarning, from_files, from_triples, split_triples
from graphzoo.datasets.files import cache

TRAIN = [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a")]
VALID = [("a", "s", "c")]
TEST = [("b", "r", "a")]


def chain(size):
    """A toy graph: each of `size` entities is linked to the next three by one of two relations."""
    return [(f"e{i}", f"r{step % 2}", f"e{(i + step) % size}") for i in range(size) for step in (1, 2, 3)]


def test_folders_in_every_format(write, tmp_path):
    write("one/train.txt", TRAIN), write("one/valid.txt", VALID), write("one/test.txt", TEST)
    write("two/train.tsv.gz", gzip.compress(b"".join("\t".join(row).encode() + b"\n" for row in TRAIN)))
    write("two/valid.csv", b"relation,head,tail\ns,a,c\n")
    write("two/test.tsv", TEST)
    one, none = from_files(tmp_path / "one")
    two, _ = from_files(str(tmp_path / "two"))
    assert none is None
    assert one.name == "one" and one.split_name == "given"
    assert one.fingerprint == two.fingerprint
    files = [tmp_path / "one" / f"{split}.txt" for split in ("train", "valid", "test")]
    assert from_files(files)[0].fingerprint == one.fingerprint


def test_two_folders_are_an_inductive_pair(write, tmp_path):
    write("g/train.txt", TRAIN), write("g/valid.txt", VALID), write("g/test.txt", TEST)
    write("h/train.txt", [("x", "s", "y")]), write("h/test.txt", [("y", "s", "x")])
    graph, inference = from_files([tmp_path / "g", tmp_path / "h"])
    assert inference.relations == graph.relations == ("r", "s")
    assert inference.entities == ("x", "y")
    assert inference.train.tolist() == [[0, 1, 1]] and inference.test.tolist() == [[1, 1, 0]]
    assert inference.valid.shape == (0, 3)


def test_drawn_parts_and_inverse_relations_of_an_inductive_pair(write, tmp_path):
    """No test is drawn from the first graph, and the second is not trained on."""
    both_ways = [row for i in range(12) for row in ((f"a{i}", "r", f"b{i}"), (f"b{i}", "s", f"a{i}"))]
    write("g/train.txt", chain(20)), write("h/train.txt", [(h, f"r{r == 's':d}", t) for h, r, t in both_ways])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph, _ = from_files([tmp_path / "g", tmp_path / "h"])
    assert [len(graph.split(split)) for split in ("train", "valid", "test")] == [57, 3, 0]
    write("g/train.txt", both_ways)
    with pytest.warns(GraphzooDataWarning, match="are inverse to each other"):
        from_files(tmp_path / "g")


def test_columns_that_are_ignored_are_named_if_a_split_is_drawn(write):
    lines = "".join(",".join((*row, "1")) + "\n" for row in chain(20))
    path = write("t.csv", ("head,relation,tail,weight\n" + lines).encode())
    with pytest.warns(GraphzooDataWarning, match="column weight is ignored"):
        from_files(path)


def test_inductive_graph_with_an_unknown_relation(write, tmp_path):
    write("g/train.txt", chain(20))
    path = write("h/train.txt", [("x", "r1", "y"), ("x", "r7", "y")])
    with pytest.raises(DataError) as caught:
        from_files([tmp_path / "g", tmp_path / "h"])
    assert f"{path}, line 2: relation 'r7'" in str(caught.value)


@pytest.mark.fault(
    "a test triple has a relation without training triples", "refused with file, line and relation"
)
def test_unknown_relation_at_test_time_names_file_and_line(write, tmp_path):
    write("train.txt", TRAIN), write("valid.txt", VALID)
    path = write("test.txt", [TEST[0], ("a", "t", "b")])
    with pytest.raises(DataError) as caught:
        from_files(tmp_path)
    assert str(caught.value).startswith(f"{path}, line 2: relation 't' does not occur in train")


def test_warnings_name_file_and_line(write, tmp_path):
    train = write("train.txt", [*TRAIN, TRAIN[1]])
    write("valid.txt", VALID), write("test.txt", TEST)
    with pytest.warns(GraphzooDataWarning, match="1 duplicate triple in train dropped") as caught:
        from_files(tmp_path)
    assert f"{train}, line 4" in str(caught[0].message)


def test_lines_count_from_two_after_a_header(write, tmp_path):
    write("train.csv", b"head,relation,tail\na,r,b\n"), write("valid.csv", b"a,r,b\n")
    test = write("test.csv", b"head,relation,tail\nb,r,a\nb,q,a\n")
    with pytest.raises(DataError) as caught:
        from_files(tmp_path)
    assert f"{test}, line 3" in str(caught.value)


def test_missing_splits_are_drawn_deterministically(write, tmp_path, caplog):
    rows = chain(40)
    write("a/train.txt", rows), write("b/train.txt", rows[::-1])
    with caplog.at_level(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("error")
        one, _ = from_files(tmp_path / "a")
        other, _ = from_files(tmp_path / "b")
        seeded, _ = from_files(tmp_path / "a", split_seed=1)
        from_files(tmp_path / "a")
    assert one.fingerprint == other.fingerprint != seeded.fingerprint
    assert [one.split(split).size(0) for split in ("train", "valid", "test")] == [108, 6, 6]
    assert one.split_name == "random valid+test seed 0"
    assert one.fingerprint[:12] in caplog.text
    assert caplog.text.count("split drawn") == 3, "one message for each split, however often it is loaded"
    triples = {tuple(row) for row in one.known_triples().tolist()}
    assert len(triples) == len(rows)
    # every name has a training triple
    assert one.train[:, [0, 2]].unique().numel() == one.num_entities
    assert one.train[:, 1].unique().numel() == one.num_relations


def test_draws_of_small_graphs_stay_as_recorded():
    # models and results of earlier versions depend on them
    recorded = [split_triples(chain(40), split_seed=seed).fingerprint[:16] for seed in (0, 1)]
    assert recorded == ["cac272fa12322831", "036bd73296d6462c"]


def test_a_drawn_split_has_at_most_ten_thousand_triples(write, tmp_path, caplog):
    numbers = np.arange(210_000)
    write(
        "train.txt",
        [(f"e{one}", "r", f"e{other}") for one, other in zip(numbers % 997, numbers // 997, strict=True)],
    )
    graph, _ = from_files(tmp_path)
    assert [len(graph.split(split)) for split in ("train", "valid", "test")] == [190_000, 10_000, 10_000]
    assert "train 190,000, valid 10,000, test 10,000" in caplog.text


def test_only_the_missing_split_is_drawn(write, tmp_path):
    write("train.txt", chain(40)), write("test.txt", [("e0", "r0", "e9")])
    graph, _ = from_files(tmp_path)
    assert [graph.split(split).size(0) for split in ("train", "valid", "test")] == [114, 6, 1]
    assert graph.split_name == "random valid seed 0"


def test_duplicates_do_not_change_the_draw(write, tmp_path):
    rows = chain(40)
    write("a/train.txt", rows), write("b/train.txt", [*rows, rows[3], rows[3]])
    one, _ = from_files(tmp_path / "a")
    with pytest.warns(GraphzooDataWarning, match="2 duplicate triples dropped before the split"):
        other, _ = from_files(tmp_path / "b")
    assert one.fingerprint == other.fingerprint


def test_single_file(write):
    graph, _ = from_files(write("facts.tsv", chain(40)))
    assert graph.name == "facts"
    assert graph.test.size(0) == 6


def test_too_few_triples_to_split_and_what_to_do_about_it(write, tmp_path):
    write("train.txt", TRAIN)
    with pytest.raises(
        DataError, match="too few .*; also put valid.txt and test.txt beside it, and give the"
    ):
        from_files(tmp_path)
    paths = [write("facts.tsv", TRAIN), write("asked.tsv", VALID)]
    remedy = re.escape(f'give three files: --data.path "[{paths[0]},{paths[1]},test.tsv]"')
    with pytest.raises(DataError, match=f"too few triples .3. to draw test: .*; {remedy}"):
        from_files(paths)
    assert len(from_files([*paths, write("test.tsv", TEST)])[0].test) == 1


def test_what_a_first_line_like_a_header_leads_to_names_the_header(write, tmp_path):
    write("train.txt", TRAIN), write("test.txt", TEST)
    write("valid.txt", [("Kopf", "Kante", "Ziel"), *VALID])
    with pytest.raises(DataError) as caught:
        from_files(tmp_path)
    error, notice = str(caught.value).split("\n")
    assert "'Kante' does not occur in train" in error
    assert "valid.txt, line 1 looks like a header" in notice


def test_columns_in_another_order_than_in_train(write, tmp_path):
    write("train.txt", TRAIN), write("test.txt", TEST)
    write("valid.txt", [(head, tail, relation) for head, relation, tail in VALID])
    with pytest.raises(
        DataError, match="line 1: relation 'c' .* It is an entity: the columns must be head, "
    ):
        from_files(tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_every_relation_keeps_a_training_triple(write, tmp_path, seed):
    common = [(head, "common", tail) for head in "ab" for tail in "ab"]
    write("train.txt", [*common, *(("a", f"rare{i}", "b") for i in range(30))])
    graph, _ = from_files(tmp_path, split_seed=seed)
    assert [len(graph.split(split)) for split in ("train", "valid", "test")] == [32, 1, 1]
    assert set(graph.train[:, 1].tolist()) == set(range(31))


def test_a_third_of_the_triples_that_may_be_drawn_stays_for_training():
    """The first triple of a seed's order has both names, or only one."""
    rows = [(head, "r", tail) for head in "ab" for tail in "ab"]
    graph = split_triples(rows, split_seed=0)
    assert [len(graph.split(split)) for split in ("train", "valid", "test")] == [2, 1, 1]
    with pytest.raises(DataError, match="too few triples"):  # two may be drawn
        split_triples(rows, split_seed=1)


@pytest.mark.fault("a path does not exist, or holds no triples", "refused with the files that were expected")
def test_wrong_paths_are_refused(write, tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        from_files(tmp_path / "none")
    with pytest.raises(DataError, match="no train.txt"):
        from_files(tmp_path)
    path = write("train.txt", TRAIN)
    with pytest.raises(DataError, match="one to three files"):
        from_files([path] * 4)
    with pytest.raises(DataError, match="one to three files"):
        from_files([path, tmp_path])
    with pytest.raises(DataError, match="none"):
        from_files([])
    write("train.tsv", TRAIN)
    with pytest.raises(DataError, match="both train.txt and train.tsv"):
        from_files(tmp_path)


def test_two_files_that_may_be_the_same_split_are_refused(write, tmp_path):
    for name, triples in (("train", TRAIN), ("val", VALID), ("dev", VALID), ("test", TEST)):
        write(f"{name}.txt", triples)
    with pytest.raises(DataError, match="has both val.txt and dev.txt; keep one of them"):
        from_files(tmp_path)


def test_files_of_labels(write, tmp_path):
    write("train.txt", TRAIN), write("valid.txt", VALID), write("test.txt", TEST)
    write("entity2text.txt", [("a", "first letter")])
    assert from_files(tmp_path)[0].entity_labels == {"a": "first letter"}


def test_a_file_of_labels_that_fits_no_name_gives_a_warning(write, tmp_path):
    """The columns may be the other way round, or the names be those of other data."""
    write("train.txt", TRAIN), write("valid.txt", VALID), write("test.txt", TEST)
    path = write("entity2text.txt", [("first letter", "a"), ("second letter", "b")])
    other = write("relation2text.txt", [("X1", "near"), ("r", "far")])
    with pytest.warns(GraphzooDataWarning) as told:
        from_files(tmp_path)
    (notice,) = [str(warning.message) for warning in told if "none of its names" in str(warning.message)]
    assert notice.startswith(f"{path}: none of its names is a known entity (first: 'first letter', ")
    other.write_text("X1\tnear\n")
    with pytest.warns(GraphzooDataWarning, match="relation2text.txt: none of its names is a known relation"):
        from_files(tmp_path)


def test_skipped_lines_of_labels_give_a_warning(write, tmp_path):
    write("train.txt", TRAIN), write("valid.txt", VALID), write("test.txt", TEST)
    path = write("entity2text.txt", b"a,first letter\n\nb\tsecond \nb\tother\nb\tsecond \r\n")
    with pytest.warns(GraphzooDataWarning) as told:
        graph, _ = from_files(tmp_path)
    assert graph.entity_labels == {"b": "second"}
    lines = {str(warning.message) for warning in told if "entity2text" in str(warning.message)}
    assert lines == {
        f"{path}: 1 line without a tab between name and text, skipped (first: line 1)",
        f"{path}: 1 line with a second text of a name, skipped: the first text counts (first: line 4)",
    }
    path.write_bytes("a\tZürich\n".encode("latin-1"))
    with pytest.raises(DataError, match="entity2text.txt, line 1: not UTF-8"):
        from_files(tmp_path)


def test_names_in_quotation_marks_give_a_warning_in_files_with_tabs(write, tmp_path):
    quoted = [tuple(f'"{name}"' for name in triple) for triple in [("head", "relation", "tail"), *TRAIN]]
    for split in ("train", "valid", "test"):
        write(f"{split}.tsv", quoted)
    with pytest.warns(GraphzooDataWarning, match="line 1: quotation marks are part of the names") as told:
        from_files(tmp_path)
    assert (
        len({str(warning.message) for warning in told if "quotation marks are" in str(warning.message)}) == 3
    )


def test_a_renamed_file_of_labels_is_noticed_if_triples_are_cached(write, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_MIN_BYTES", 0)
    write("train.txt", TRAIN), write("valid.txt", VALID), write("test.txt", TEST)
    path = write("entity2text.txt", [("r", "near")])
    assert from_files(tmp_path)[0].entity_labels == {"r": "near"}
    path.rename(tmp_path / "relation2text.txt")
    graph, _ = from_files(tmp_path)
    assert not graph.entity_labels and graph.relation_labels == {"r": "near"}


@pytest.mark.parametrize("header", ["drug,interaction,protein", "n.name,interaction,type(m)"])
def test_a_first_line_that_looks_like_a_header_gives_a_warning(write, tmp_path, header):
    for split in ("train", "valid", "test"):
        write(f"{split}.csv", f"{header}\na,r,b\nb,r,c\nc,r,a\n".encode())
    with pytest.warns(GraphzooDataWarning) as told:
        graph, _ = from_files(tmp_path)
    lines = [str(warning.message) for warning in told if "header" in str(warning.message)]
    assert len(lines) == 3 and "train.csv, line 1 looks like a header and was read as a fact" in lines[0]
    assert "interaction" in graph.relations


@pytest.mark.parametrize("first", ["a,r,d", "d,s,b", "7,s,9"])
def test_a_first_line_whose_names_occur_again_or_are_not_words_is_a_fact(write, tmp_path, first, recwarn):
    for split in ("train", "valid", "test"):
        lines = first if split == "train" else "a,r,b"
        write(f"{split}.csv", f"{lines}\na,r,b\nb,r,c\nc,r,a\n".encode())
    from_files(tmp_path)
    assert not any("header" in str(warning.message) for warning in recwarn)


def test_h_r_t_is_a_header_unless_the_graph_has_such_names(write):
    path = write("facts.csv", b"h,r,t\n" + b"".join(b"e%d,s,e%d\n" % (n, n + 1) for n in range(40)))
    graph, _ = from_files(path)
    assert graph.relations == ("s",) and graph.num_entities == 41 and "h" not in graph.entities
    path = write("facts.csv", b"h,r,t\n" + b"".join(b"e%d,r,e%d\n" % (n, n + 1) for n in range(40)))
    assert {"h", "t"} <= set(from_files(path)[0].entities)


def test_too_few_triples_in_memory_are_refused_with_the_arguments_to_give():
    with pytest.raises(DataError, match=r"also give valid= and test="):
        KGDataModule(triples=[("a", "r", "b"), ("b", "r", "c")])


def test_a_column_that_a_header_names_twice_is_refused(write):
    rows = [("head", "relation", "tail", "tail"), *((h, r, "x", t) for h, r, t in chain(40))]
    with pytest.raises(DataError, match="facts.tsv, line 1: column 'tail' occurs twice; rename one"):
        from_files(write("facts.tsv", rows))


def test_h_r_t_is_a_header_in_any_order(write):
    rows = [(c, a, b) for a, b, c in chain(20)]
    graph, _ = from_files(write("train.txt", [("t", "h", "r"), *rows]))
    assert (
        "h" not in graph.entities
        and graph.relations == from_files(write("b/train.txt", chain(20)))[0].relations
    )


@pytest.mark.parametrize(("name", "header"), [("facts.csv", "s,p,o"), ("facts.tsv", "?s\t?p\t?o")])
def test_the_header_of_sparql_results_is_no_fact(write, name, header):
    separator = "," if "," in header else "\t"
    lines = [separator.join((f"e{n}", "next", f"e{n + 1}")) for n in range(40)]
    graph, _ = from_files(write(name, "\n".join([header, *lines, ""]).encode()))
    assert graph.relations == ("next",) and graph.num_entities == 41


def test_names_given_as_bytes_are_decoded():
    """NumPy and h5py have such names."""
    rows = [["a", "r", "b"], ["b", "r", "c"], ["c", "r", "ü"]]
    for triples in (np.char.encode(np.array(rows)), [tuple(name.encode() for name in row) for row in rows]):
        graph = from_triples(triples)
        assert graph.entities == from_triples(rows).entities and graph.relations == ("r",)


def test_test_facts_of_a_second_graph_that_are_training_facts_give_a_warning(write, tmp_path, recwarn):
    """This happens with two snapshots of one graph, whose entities have the same names."""
    write("g/train.txt", TRAIN), write("g/valid.txt", VALID), write("g/test.txt", TEST)
    write("h/train.txt", TRAIN[1:]), write("h/test.txt", [TRAIN[0], TEST[0]])
    from_files([tmp_path / "g", tmp_path / "h"])
    said = [str(warning.message) for warning in recwarn]
    assert any("h: 1 of 2 test triples are training triples of g: scores are" in each for each in said), said
