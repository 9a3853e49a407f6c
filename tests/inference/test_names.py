"""Names of entities and nodes: lookup, suggestions, and files of names and queries."""

import numpy as np
import pandas as pd
import pytest
import torch

from graphzoo.errors import GraphzooDataWarning, UsageError
from graphzoo.inference.names import NodeNames, Vocabulary


def test_names_come_before_labels():
    entities = Vocabulary("entity", ["a", "b", "c"], {"a": "b", "b": "x", "c": "y"})
    assert entities.find("b") == 1
    assert entities.find("y") == 2
    assert entities.find("x") == 1
    assert entities.find_all(["c", "x", "a"]) == [2, 1, 0]
    assert entities.get("z") is None


def test_a_label_of_several_names_is_none_of_them():
    entities = Vocabulary("entity", ["a", "b", "c"], {"a": "x", "b": "x", "c": ""})
    assert entities.get("x") is None and [entities.shown(i) for i in range(3)] == ["x", "x", "c"]
    with pytest.raises(UsageError, match=r"entity 'x': 2 names have this label \('a', 'b'\); give the name"):
        entities.find("x")


def test_an_unknown_name_is_told_with_its_first_line(tmp_path):
    from graphzoo.inference.queries import encode_facts, read_facts

    path = tmp_path / "facts.tsv"
    path.write_text("new\tlikes\ta\na\tlikes\tnew\n")
    entities, relations = Vocabulary("entity", ["a"]), Vocabulary("relation", ["likes"])
    with pytest.raises(UsageError, match=r"one name is unknown, .*\n  line 1: entity 'new'"):
        encode_facts(read_facts(path, entities, relations), entities, relations)


def test_similar_names_are_found_among_many():
    names = [f"/m/{i:06x}" for i in range(50_000)] + ["Barack_Obama", "Barack_Obama_Sr.", "Michelle_Obama"]
    entities = Vocabulary("entity", names)
    with pytest.raises(UsageError, match="unknown entity 'barak obama'; nearest: 'Barack_Obama'"):
        entities.find("barak obama")
    assert all(name.startswith("/m/00") for name in entities.nearest("/m/00ff0g"))
    assert len(entities.nearest("/m/00ff0g")) == 3


def test_without_a_similar_name_examples_are_given():
    with pytest.raises(
        UsageError,
        match=r"unknown relation 'qqq'; none of the 2 names is similar \(examples: 'likes', 'knows'",
    ):
        Vocabulary("relation", ["likes", "knows"]).find("qqq")


def test_a_first_line_of_other_words_may_be_a_header(tmp_path):
    """As in `nodes.csv`, whose first column may have any name."""
    from graphzoo.inference.queries import read_names

    path, known = tmp_path / "some.csv", NodeNames(["a", "b"], 2)
    for lines, says_so in (("customer,age\na,1\nb,2\n", True), ("aa\nbb\n", False), ("aa\n", False)):
        path.write_text(lines)
        with pytest.raises(UsageError) as refused:
            read_names(path, known)
        assert ("if the first line is a header, call the column node" in str(refused.value)) == says_so
    numbers = NodeNames((), 9)
    for lines, names in ((",customer\n0,a\n1,b\n", known), (",node\n3,4\n5,6\n", numbers)):
        path.write_text(lines)
        for skips in (False, True):  # nodes of the numbers of the index may exist
            with pytest.raises(UsageError, match=r"the first column has no name, .*drop it: to_csv\("):
                read_names(path, names, skips=skips)
    for lines, line in ((",c\n", 1), ("a,c\n,c\n", 2)):
        path.write_text(lines)
        with pytest.raises(UsageError, match=f"\n  line {line} has no name in its first column"):
            read_names(path, known)


@pytest.mark.parametrize("header", ["node", "Name", "entity", "source", None])
def test_a_table_of_predictions_is_read_as_names(tmp_path, header):
    from graphzoo.inference.queries import read_names

    known = NodeNames(["a, b", "c", "source" if header is None else "d"], 3)
    plain, table = tmp_path / "names.txt", tmp_path / "labels.csv"
    plain.write_text(f"{header or 'source'}\nc\n")
    table.write_text(f'{header or "source"},label\n"a, b",x\nc,y\n')
    first = [] if header else ["source"]
    assert read_names(plain, known) == [*first, "c"]
    assert read_names(table, known) == [*first, "a, b", "c"]


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_header_may_name_another_column_than_the_first(tmp_path, separator):
    """Else ages that are names of nodes would be read, and with `skips` the others left out."""
    from graphzoo.inference.queries import read_names

    path, known = (
        tmp_path / ("table.csv" if separator == "," else "table.tsv"),
        NodeNames(["1", "31", "c"], 3),
    )
    path.write_text("age,Node\n31,1\n45, c \n".replace(",", separator))
    for skips in (False, True):
        assert read_names(path, known, skips=skips) == ["1", "c"]
    assert read_names(path, NodeNames(["age", "31", "45"], 3)) == ["age", "31", "45"]  # known names
    path.write_text("age,node\n31,1\n45\n".replace(",", separator))
    with pytest.raises(UsageError, match="line 3: no name in column 'node'; write it, or drop the line"):
        read_names(path, known)


def test_a_csv_file_of_names_may_have_commas_in_names(tmp_path):
    from graphzoo.inference.queries import read_names

    plain = tmp_path / "names.csv"
    plain.write_text("Doe, John\nDoe\n")
    assert read_names(plain, NodeNames(["Doe", "Doe, John"], 2)) == ["Doe, John", "Doe"]
    tabs = tmp_path / "names.txt"
    tabs.write_text("Doe\t1\n")
    assert read_names(tabs, NodeNames(["Doe", "Doe,1"], 2)) == ["Doe"]


def test_a_header_of_letters_is_recognised_unless_they_are_names(tmp_path):
    from graphzoo.inference.queries import read_facts

    path = tmp_path / "facts.tsv"
    path.write_text("t\th\tr\nb\ta\tlikes\n")
    relations = Vocabulary("relation", ["likes"])
    facts = read_facts(path, Vocabulary("entity", ["a", "b"]), relations)
    assert (facts.head[0], facts.relation[0], facts.tail[0], len(facts)) == ("a", "likes", "b", 1)
    assert facts.where(0).endswith("line 2")
    assert len(read_facts(path, Vocabulary("entity", ["a", "b", "t"]), relations)) == 2
    path.write_text("h\tr\tt\n")  # not a file without facts
    assert len(read_facts(path, Vocabulary("entity", ["a", "b"]), relations)) == 1


@pytest.mark.parametrize("header", ["h\tr\tt", "Source\tType\tTarget", "subject\tpredicate"])
def test_queries_may_have_the_headers_of_triples(tmp_path, header):
    from graphzoo.inference.queries import read_queries

    path = tmp_path / "queries.tsv"
    path.write_text(f"{header}\na\tlikes" + "\t?" * (header.count("\t") - 1) + "\n")
    queries = read_queries(path)
    assert (queries.entity, queries.relation, queries.asks_tail, queries.line) == (
        ["a"],
        ["likes"],
        [True],
        [2],
    )


def test_further_columns_of_queries_are_ignored_as_those_of_triples(tmp_path):
    from graphzoo.inference.queries import read_queries

    path = tmp_path / "queries.csv"
    path.write_text(",relation,head,tail,asked\n0,likes,ann,?,today\n1,likes,?,bob,\n")  # as pandas writes it
    with pytest.warns(GraphzooDataWarning, match="columns one without a name, asked are ignored"):
        queries = read_queries(path)
    assert (queries.entity, queries.asks_tail, queries.line) == (["ann", "bob"], [True, False], [2, 3])


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("kopf\tkante\tziel\na\tlikes\ta\n", "if the first line is a header, name the columns head, "),
        ("node\trel\tnode\na\tlikes\ta\n", "if the first line is a header, name the columns head, "),
        ("a\tlikes\tb\na\tlikes\ta\n", None),
        ("kopf\tkante\tziel\n", None),
        ("a\tlikes\t?\n", "to ask for an entity, use predict, on the command line --queries"),
    ],
)
def test_hints_at_facts_with_unknown_names(tmp_path, content, hint):
    from graphzoo.inference.queries import encode_facts, read_facts

    path = tmp_path / "facts.tsv"
    path.write_text(content)
    entities, relations = Vocabulary("entity", ["a"]), Vocabulary("relation", ["likes"])
    with pytest.raises(UsageError) as refused:
        encode_facts(read_facts(path, entities, relations), entities, relations)
    last = str(refused.value).splitlines()[-1]
    assert last.startswith(f"  {hint or 'line 1: entity'}")


def test_comments_above_queries_are_left_out_as_above_facts(tmp_path):
    from graphzoo.inference.queries import read_queries

    path = tmp_path / "queries.tsv"
    path.write_bytes(b"\xef\xbb\xbf# asked\r\n%of ann\r\nhead\trelation\r\n#ann\tlikes\r\n")
    queries = read_queries(path)
    assert (queries.entity, queries.relation, queries.line) == (["#ann"], ["likes"], [4])
    path.write_text("# made 2024\tby ann\n# head\trelation\nann\tlikes\n")
    assert read_queries(path).entity == ["ann"]
    path.write_text("# relation\ttail\nlikes\tann\n")
    assert read_queries(path).asks_tail == [False]
    path.write_text("h\tr\n")  # "h r t" would be a header
    assert read_queries(path).entity == ["h"]
    path.write_text("#ann\tlikes\n")
    assert read_queries(path).entity == ["#ann"]
    path.write_text("ann\tlikes\n# asked\n")
    with pytest.raises(UsageError, match="line 2: expected 2 or 3 columns"):
        read_queries(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ann\tlikes\n".encode("utf-16"), "encoded as UTF-16; save it as UTF-8"),
        (b"ann\tlikes\rbob\tlikes\r", "line 1: has a carriage return without a line feed"),
    ],
)
def test_queries_in_another_encoding_are_refused_as_facts_are(tmp_path, content, message):
    from graphzoo.inference.queries import read_facts, read_queries

    path = tmp_path / "queries.tsv"
    path.write_bytes(content)
    for read in (read_queries, lambda path: read_facts(path, None, None)):
        with pytest.raises(UsageError, match=message):
            read(path)


def test_names_in_queries_may_begin_with_a_space(tmp_path):
    from graphzoo.inference.queries import encode_queries, read_queries

    path = tmp_path / "queries.csv"
    path.write_text("ann, mother_of, ?\n ann ,likes,?\n")
    entities = Vocabulary("entity", ["ann", "bob"])
    queries = encode_queries(read_queries(path), entities, Vocabulary("relation", [" mother_of", "likes"]))
    assert queries.entity.tolist() == [0, 0] and queries.relation.tolist() == [0, 1]


def test_a_list_of_names_keeps_spaces_of_known_names(tmp_path):
    from graphzoo.inference.queries import read_names

    known, path = Vocabulary("entity", [" lead", "end ", "lead", "plain"]), tmp_path / "names.txt"
    path.write_text(" lead\nlead\nend \n plain \n")
    assert read_names(path, known) == [" lead", "lead", "end ", "plain"]
    assert read_names(path) == ["lead", "lead", "end", "plain"]


def test_numbers_of_nodes_have_one_spelling():
    names = NodeNames((), 9)
    assert names.find([7, "3", np.int64(2)]).tolist() == [7, 3, 2]
    for text in ("007", "\N{ARABIC-INDIC DIGIT THREE}", "7.0", "-1", "9", "", "1" * 5000):
        with pytest.raises(UsageError, match=r"nodes have the numbers 0 to 8"):
            names.find(text)


def test_whole_floats_of_pandas_stand_for_names_that_are_numbers():
    column = pd.Series([1, None, 2]).dropna()
    assert column.dtype == float
    assert NodeNames((), 9).find(column).tolist() == [1, 2]
    assert NodeNames(("1", "2"), 2).find(column).tolist() == [0, 1]
    assert NodeNames(("1.0", "2", "1"), 3).find(column).tolist() == [0, 1], "a name as it is comes first"
    assert Vocabulary("entity", ["1", "2"]).find_all(column.tolist()) == [0, 1]
    for one in (2.0, np.float64(2), torch.tensor(2.0)):
        assert NodeNames((), 9).find(one).tolist() == [2]
        assert NodeNames(("1", "2"), 2).find(one).tolist() == [1]
    for names in (NodeNames((), 9), NodeNames(("1", "2"), 2)):
        with pytest.raises(UsageError, match=r"unknown node '?12'?[:;]"):
            names.find(12.0)
    with pytest.raises(UsageError, match=r"unknown entity \"\['1'\]\""):
        Vocabulary("entity", ["1", "2"]).find_all([["1"]])
    with pytest.raises(UsageError, match=r"entity '3'; nearest|entity '3'; none of the 2 names is similar"):
        Vocabulary("entity", ["1", "2"]).find(3.0)
    for name in (1.5, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=f"unknown node {name}|unknown node '{name}'"):
            NodeNames((), 9).find([name])
        with pytest.raises(UsageError, match=f"unknown entity '{name}'"):
            Vocabulary("entity", ["1", "2"]).find(name)


@pytest.mark.parametrize("first", ["id", "Node_ID", "name"])
@pytest.mark.parametrize("mark", [",", ";"])
def test_a_table_of_nodes_is_read_as_names(tmp_path, first, mark):
    from graphzoo.inference.names import NodeNames
    from graphzoo.inference.queries import read_names

    table = tmp_path / "nodes.csv"
    table.write_text(f"{first}{mark}x{mark}y\na b{mark}1{mark}2\nc{mark}1,5{mark}2\n")
    assert read_names(table, NodeNames(["a b", "c"], 2)) == ["a b", "c"]
