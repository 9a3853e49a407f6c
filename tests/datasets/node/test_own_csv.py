"""Tables of nodes and edges: accepted forms, and messages with file, line and value."""

import gzip
import re

import pytest
import torch

from graphzoo.datasets import DataError, node_graph_from_files
from graphzoo.datasets.node import own_csv
from graphzoo.errors import GraphzooDataWarning

NODES = "id,label,age,split,income\nann,yes,30,train,1.5\nbob,no,41,valid,-2\ncy,yes,52,test,1e3\ndee,,7,,0\n"
EDGES = "source,target\nann,bob\nbob,cy\ndee,ann\n"


@pytest.fixture
def tables(tmp_path):
    """`tables(nodes, edges)` writes a folder and returns it."""

    def write(nodes=NODES, edges=EDGES):
        folder = tmp_path / "shop"
        folder.mkdir(exist_ok=True)
        (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
        (folder / "edges.csv").write_text(edges, encoding="utf-8")
        return folder

    return write


def test_a_whole_graph(tables):
    graph = node_graph_from_files(tables())
    assert graph.name == "shop" and graph.node_names == ("ann", "bob", "cy", "dee")
    assert graph.x.tolist() == [[30, 1.5], [41, -2], [52, 1000], [7, 0]]
    assert graph.feature_names == ("age", "income")
    assert graph.class_names == ("no", "yes") and graph.y.tolist() == [1, 0, 1, -1]
    assert graph.edge_index.tolist() == [[0, 0, 1, 1, 2, 3], [1, 3, 0, 2, 1, 0]]
    split = graph.split()
    assert (split.name, split.train.tolist(), split.valid.tolist(), split.test.tolist()) == (
        "given",
        [0],
        [1],
        [2],
    )


def test_other_forms_of_the_same_tables(tables, tmp_path):
    graph = node_graph_from_files(folder := tables())
    files = [folder / "nodes.csv", folder / "edges.csv"]
    assert node_graph_from_files(files).fingerprint == graph.fingerprint
    packed = tmp_path / "packed"
    packed.mkdir()
    for file in files:
        (packed / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert node_graph_from_files(packed).fingerprint == graph.fingerprint
    variants = [
        (NODES, "target,weight,Source\nbob,1,ann\ncy,1,bob\nann,9,dee\n"),
        (NODES, "ann,bob\nbob,cy\ndee,ann\n"),
        (NODES.replace(",", ";"), EDGES.replace(",", ";")),
        (NODES.replace(",", "\t"), EDGES.replace(",", "|")),
        (
            NODES.replace("ann", '"ann"', 1).replace(",", "\t"),
            '"source";"target"\n' + EDGES[14:].replace(",", ";"),
        ),
        (NODES.replace("valid", "dev"), EDGES),
        ("\ufeff" + NODES.replace("\n", "\r\n"), EDGES.rstrip("\n")),
        (NODES.replace("ann", '"ann"', 1), EDGES.replace("ann", '"ann"')),
    ]
    for nodes, edges in variants:
        assert node_graph_from_files(tables(nodes, edges)).fingerprint == graph.fingerprint


def test_numbers_as_names_and_classes(tables):
    rows = "".join(f"{node},{node % 12},{node}.5\n" for node in range(24))
    graph = node_graph_from_files(tables("node,label,f\n" + rows, "source,target\n0,1\n23,5\n"))
    assert graph.node_names == ()
    # sorted as numbers: 2 before 10
    assert graph.class_names == tuple(str(number) for number in range(12))
    assert graph.y.tolist() == [node % 12 for node in range(24)]


def test_names_that_look_like_something_else(tables):
    graph = node_graph_from_files(
        tables('id,label,f\nNA,1.0,1\nnull,x,2\n"a,b",x,3\nü,1.0,4\n', "source,target\nNA,null\n")
    )
    assert graph.node_names == ("NA", "null", "a,b", "ü") and graph.class_names == ("1.0", "x")


def test_several_labels(tables):
    graph = node_graph_from_files(
        tables("id,label_p,label_q,f\na,1,0,3\nb,0,,3\nc,1,1.0,4\n", "source,target\na,b\n")
    )
    assert graph.class_names == ("p", "q") and graph.is_multi_label
    assert torch.equal(graph.y.nan_to_num(-1), torch.tensor([[1.0, 0], [0, -1], [1, 1]]))


def test_no_edges_and_no_labels(tables):
    graph = node_graph_from_files(tables(edges="source,target\n"))
    assert graph.num_edges == 0
    graph = node_graph_from_files(
        tables("id,f\nann,1\nbob,2\n", "source,target\nann,bob\n"), require_labels=False
    )
    assert graph.num_classes == 0 and graph.y.tolist() == [-1, -1]


def test_classes_of_a_trained_model(tables):
    graph = node_graph_from_files(tables(), class_names=("yes", "maybe", "no"))
    assert graph.y.tolist() == [0, 2, 0, -1] and graph.num_classes == 3
    with pytest.raises(DataError, match=r"nodes.csv, line 3: label 'no' is not one of yes, maybe"):
        node_graph_from_files(tables(), class_names=("yes", "maybe"))


def nodes_of(*rows, header="id,label,f"):
    return "\n".join([header, *rows]) + "\n"


@pytest.mark.fault("a table of nodes or edges has a wrong value", "refused with file, line, column and value")
@pytest.mark.parametrize(
    ("nodes", "edges", "problem"),
    [
        (
            NODES,
            "source,target\nann,bob\nann,bop\n",
            "edges.csv, line 3: node 'bop' is not in .*Did you mean: bob",
        ),
        (
            NODES,
            "ann,bob\nann,zzz\n",
            "edges.csv, line 2: node 'zzz' is not in .*Add it to that table or drop the edge",
        ),
        (
            NODES,
            "source,target\nann,bob\nann,y1\nx1,x2\nz1,bob\n",
            r"edges.csv, line 3: node 'y1' is not in .* \(3 lines have such nodes\)",
        ),
        (NODES, "source,target\nann,bob\n,bob\n", "edges.csv, line 3: the source is empty"),
        (NODES, "source,target\nann,bob\nann,bob,3\n", "edges.csv, line 3: expected 2 columns, got 3"),
        (NODES, "", "edges.csv, line 1: blank; the first line has to be source,target"),
        (NODES, "\n" + EDGES, "edges.csv, line 1: blank; the first line has to be source,target"),
        (
            NODES,
            "from,to\nann,bob\n",
            "edges.csv, line 1: expected the columns source and target, got from, to",
        ),
        (
            nodes_of("a,x,1,,1", "b,y,Köln,bus,nan", header="id,label,city,way,f"),
            EDGES,
            r"line 3: feature 'city' is 'Köln' \('way' also has words\).*\n.*of 0 and 1 for each word",
        ),
        (
            nodes_of("a,x,1", "b,y,2", header="id,class,f"),
            EDGES,
            "line 2: feature 'class' is 'x'.*\n.*call it label",
        ),
        (nodes_of("a,x,1", "b,y,two"), EDGES, "nodes.csv, line 3: feature 'f' is 'two'"),
        (nodes_of("a,x,1", "b,y,nan"), EDGES, "nodes.csv, line 3: feature 'f' is 'nan'"),
        (nodes_of("a,x,1", "b,y,inf"), EDGES, "nodes.csv, line 3: feature 'f' is 'inf'"),
        (nodes_of("a,x,1", "b,y,1e39"), EDGES, "nodes.csv, line 3: feature 'f' is '1e39'"),
        (nodes_of("a,x,1", "b,y,"), EDGES, "nodes.csv, line 3: feature 'f' is empty"),
        (nodes_of("a,x,1", "b,y,2", "a,y,3"), EDGES, "nodes.csv, line 4: node 'a' is also in line 2"),
        (nodes_of("a,x,1", ",y,2"), EDGES, "nodes.csv, line 3: no name in column 'id', or a blank line"),
        (nodes_of("a,x,1", "b,y"), EDGES, "nodes.csv, line 3: expected 3 columns, got 2"),
        (nodes_of("a,x,1", "", "b,y,2"), EDGES, "nodes.csv, line 3: no name in column 'id', or a blank line"),
        (
            nodes_of("b,x,1,0.5,3", header="a,x,1,0.5,3"),
            EDGES,
            "line 1: expected the names .* got 'a,x,1,0.5,3'",
        ),
        (nodes_of("a,x,1,", header="id,label,f,"), EDGES, "line 1: column 4 has no name; name it, or delete"),
        (nodes_of("a,x,1,,", header="id,label,f,,"), EDGES, "line 1: column 4 has no name"),
        (nodes_of("0,0,x,1", header=",Unnamed: 0,label,f"), EDGES, "column 2 is called 'Unnamed: 0'.*drop"),
        (
            nodes_of("a,x,1,", header="id,label,f"),
            EDGES,
            "line 2: expected 3 columns, got 4 .*\n  delete the",
        ),
        ("sep=,\n" + NODES, EDGES, "nodes.csv, line 1: 'sep=,' is a note for Excel, not a row; delete this"),
        (
            nodes_of("a,x,2020-01-31"),
            EDGES,
            "line 2: feature 'f' is '2020-01-31'.*\n  write dates as numbers",
        ),
        (nodes_of("a,x,31.01.2020"), EDGES, "line 2: feature 'f' is .*\n  write dates as numbers"),
        (nodes_of("a;x;1.234,5", header="id;label;f"), EDGES, "'1.234,5'.*\n .* decimal point, and without"),
        (nodes_of('a,x,"[0.5, 1]"'), EDGES, r"'\[0.5, 1\]', .*\n  make a column for each number of the list"),
        (
            nodes_of("b,y,2", header="a,x,1"),
            EDGES,
            "'x' is 'y'.*\n.*\n  if line 1 is a node, put a line with",
        ),
        (nodes_of("a,x,12 %"), EDGES, "'12 %'.*\n  write numbers .* without units"),
        (nodes_of('"a\nb",x,1'), EDGES, r"nodes.csv, line 2: 'a\\nb' has a line break; remove it"),
        (
            nodes_of("a,x,1", 'b,"y,2', "c,x,3", 'd,"y,4'),
            EDGES,
            r"nodes.csv, line 3: .*y,2\\nc,x,3\\nd,.* has a line break; remove it, and check the quotes",
        ),
        (
            nodes_of("a,1,x", 'b,2,"y', "c,3,x", "d,4,y", header="id,f,label"),
            EDGES,
            r"nodes.csv, line 3: 'y\\nc,3,x\\nd,4,y\\n' has a line break; remove it, and check the quotes",
        ),
        (
            nodes_of("a,x,1", "b,y,2"),
            'source,target,note\na,b,"u\nb,a,v\na,b,w"\n',
            r"edges.csv, line 2: 'u\\nb,a,v\\na,b,w' has a line break",
        ),
        (
            nodes_of("007,x,1", "8.0,y,2"),
            "source,target\n007,8.0\n7,8.0\n",
            "edges.csv, line 3: node '7' is not in .* There is '007': write it in the same way",
        ),
        (
            nodes_of("007,x,1", "8.0,y,2"),
            "source,target\n8,8.0\n",
            "edges.csv, line 2: node '8' is not in .* There is '8.0'",
        ),
        (
            nodes_of("b;x;0,5", header="id;label;f"),
            EDGES,
            "'f' is '0,5', but features .*\n.*write 0.5 with a",
        ),
        (nodes_of("b,0,1,1", header="a,0,1,1"), EDGES, "line 1: expected the names"),
        (
            nodes_of("0,1,x,5", "1,0,y,6", header=",id,label,f"),
            "source,target\n1,0\n",
            "line 1: the first column .* has no name, and there is a column 'id'\n.*index=False",
        ),
        (
            nodes_of("0,1,x,5", "1,0,y,6", header="Unnamed: 0,id,label,f"),
            "source,target\n1,0\n",
            r"is called 'Unnamed: 0', and there is a column 'id'\nRename .*drop\(columns='Unnamed: 0'\)",
        ),
        (nodes_of(), EDGES, "nodes.csv: no "),
        ("\n", EDGES, "nodes.csv, line 1: expected the names of the columns"),
        (nodes_of("a,x,1,2", header="id,label,f,f"), EDGES, "column 'f' occurs twice"),
        (
            nodes_of("a,x,1,2", header="id,label,f,Label"),
            EDGES,
            "line 1: the names of two columns differ only by case",
        ),
        (nodes_of("a,x", "b,y", header="id,label"), EDGES, "no column of features, only id, label"),
        (
            nodes_of("a,x,1,train", "b,y,2,later", header="id,label,f,split"),
            EDGES,
            "line 3: split is 'later'",
        ),
        (
            nodes_of("a,x,1,train", "b,,2,test", header="id,label,f,split"),
            EDGES,
            "line 3: a node of split test has no",
        ),
        (nodes_of("a,1,x,2", header="id,label_p,label,f"), EDGES, "both label .* and label_p "),
        (nodes_of("a,1,2", "b,7,2", header="id,label_p,f"), EDGES, "line 3: label_p is '7'"),
    ],
)
def test_mistakes_are_refused_with_file_line_and_value(tables, nodes, edges, problem):
    with pytest.raises(DataError, match=problem) as caught:
        node_graph_from_files(tables(nodes, edges))
    assert len(str(caught.value).splitlines()) <= 6


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (
            nodes_of("ann,,1", "bob,,2"),
            "no node has a label; fill y .*\n  To predict labels .*, use graphzoo predict",
        ),
        (
            nodes_of("ann,1,1", "bob,0,2", header="id,Target,f"),
            "column 'Target' is read as a feature; call it",
        ),
        (nodes_of("ann,x,1", "bob,x,2"), "every labelled node is of class 'x'"),
        (nodes_of("ann,x,1,train", "bob,y,2,train", header="id,label,f,split"), "split 0 has no valid nodes"),
    ],
)
def test_useless_labels_are_refused(tables, nodes, problem):
    folder = tables(nodes, "source,target\nann,bob\n")
    with pytest.raises(DataError, match=problem):
        node_graph_from_files(folder)
    assert node_graph_from_files(folder, require_labels=False).num_nodes == 2


def test_files_in_the_wrong_place(tables):
    folder = tables()
    (folder / "edges.csv").rename(folder / "links.csv")
    with pytest.raises(DataError, match=r"no edges.csv \(.*\); the folder has links.csv, nodes.csv"):
        node_graph_from_files(folder)
    (folder / "links.csv").rename(folder / "edges.csv")
    (folder / "edges.csv.gz").write_bytes(gzip.compress(EDGES.encode()))
    with pytest.raises(DataError, match=r"both edges.csv and edges.csv.gz"):
        node_graph_from_files(folder)
    (folder / "edges.csv").unlink()
    (folder / "edges.csv.gz").write_bytes(gzip.compress(EDGES.encode())[:20])
    with pytest.raises(DataError, match=r"edges.csv.gz"):
        node_graph_from_files(folder)
    (folder / "nodes.csv").write_bytes(NODES.encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        node_graph_from_files(folder)


@pytest.mark.fault(
    "a table of edges has more columns than source and target", "a warning names the columns that are ignored"
)
def test_other_columns_of_edges_are_named(tables, recwarn):
    graph = node_graph_from_files(tables(NODES, "target,weight,Source,since\nbob,1,ann,2\nann,9,dee,3\n"))
    assert graph.edge_index.size(1) == 4
    (said,) = [str(warning.message) for warning in recwarn]
    assert said.endswith("/shop/edges.csv: columns weight, since are ignored")
    assert "nodes.csv" not in said
    node_graph_from_files(tables())
    assert len(recwarn) == 1


@pytest.mark.fault(
    "a table of nodes has tens of thousands of columns", "the time to read it does not grow with their square"
)
def test_the_time_for_wide_tables_is_not_quadratic(tables, monkeypatch):
    compared = []

    class Name(str):
        __slots__ = ()

        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

        def strip(self, *_):
            return self

    def split(line, *_, **__):
        return [Name(part) for part in line.split(",")]

    monkeypatch.setattr(own_csv, "fields_of", split)
    wide = 500
    names = [*(f"f{i}" for i in range(wide)), *(f"label_{i}" for i in range(wide))]
    text = "\n".join([f"id,{','.join(names)}", *(f"n{row}" + ",1,0" * wide for row in range(3))])
    graph = node_graph_from_files(tables(text, "source,target\nn0,n1\n"), require_labels=False)
    assert graph.x.shape == (3, wide) and graph.y.shape == (3, wide)
    assert len(compared) < 20 * 2 * wide


def test_names_that_look_the_same_give_a_warning(tables, recwarn):
    node_graph_from_files(tables(NODES.replace("bob", "a\u200bnn"), "source,target\nann,cy\n"))
    (said,) = [str(warning.message) for warning in recwarn]
    assert r"'a\u200bnn'" in said and "1 pair of nodes looks the same" in said


def test_the_case_of_label_and_split_does_not_matter(tables):
    graph = node_graph_from_files(tables(NODES.replace("id,label,age,split", "Label,LABEL,Age,Split")))
    assert graph.class_names == ("no", "yes") and graph.feature_names == ("Age", "income")
    assert graph.split().name == "given"
    graph = node_graph_from_files(
        tables(nodes_of("ann,1,2", "bob,0,3", header="id,Label_Rich,f"), "ann,bob\n")
    )
    assert graph.class_names == ("Rich",)


def test_tables_with_other_extensions_are_found(tables):
    folder = tables(NODES.replace(",", "\t"), EDGES.replace(",", ";"))
    graph = node_graph_from_files(folder)
    (folder / "nodes.csv").rename(folder / "nodes.tsv")
    (folder / "edges.csv").rename(folder / "edges.txt")
    assert node_graph_from_files(folder).fingerprint == graph.fingerprint
    (folder / "nodes.tsv").rename(folder / "people.tsv")
    with pytest.raises(DataError, match=r"no nodes.csv .*people.tsv\nGive tables"):
        node_graph_from_files(folder)


@pytest.mark.parametrize("columns", ["0,1,2", "400.5,401,401.5", "401.5,401,400.5"])
def test_columns_may_have_numbers_as_names(tables, columns):
    graph = node_graph_from_files(
        tables(
            nodes_of("ann,x,1,2,3", "bob,y,1,2,4", header=f"id,label,{columns}"), "source,target\nann,bob\n"
        )
    )
    assert graph.feature_names == tuple(columns.split(","))


@pytest.mark.parametrize("word", ["NA", "?", "unknown", "-1"])
def test_labels_that_may_mean_unknown_give_a_warning(tables, word):
    folder = tables(NODES.replace("dee,,", f"dee,{word},"))
    with pytest.warns(GraphzooDataWarning, match=rf"label '{re.escape(word)}' is taken as a class"):
        node_graph_from_files(folder)


@pytest.mark.parametrize(("one", "other"), [("yes", "Yes"), ("1", "1.0"), ("-2", "-2.00")])
def test_classes_that_may_be_the_same_give_a_warning(tables, one, other):
    folder = tables(nodes_of(f"ann,{one},1", f"bob,{other},2", "cy,10,3"), "source,target\nann,bob\n")
    with pytest.warns(GraphzooDataWarning, match="labels .*, .* are taken as different classes") as caught:
        assert node_graph_from_files(folder).num_classes == 3
    assert repr(one) in str(caught[0].message) and repr(other) in str(caught[0].message)


def test_masks_in_a_table_give_a_warning(tables):
    folder = tables(nodes_of("ann,x,1,0", "bob,y,0,1", header="id,label,train_mask,Test_Mask"), "ann,bob\n")
    with pytest.warns(
        GraphzooDataWarning, match="train_mask, Test_Mask: read as features; give a split as a col"
    ):
        assert node_graph_from_files(folder).feature_names == ("train_mask", "Test_Mask")


def test_blanks_around_values_do_not_matter(tables):
    spaced = node_graph_from_files(tables(NODES.replace(",", " , "), EDGES.replace(",", ", ")))
    assert spaced.fingerprint == node_graph_from_files(tables()).fingerprint


def test_a_node_in_the_place_of_the_header_gives_a_warning(tables):
    folder = tables(nodes_of("bob,1", "cy,2", header="ann,0.5"), "source,target\nbob,cy\n")
    with pytest.warns(
        GraphzooDataWarning, match=r"read as names of columns, one of them '0.5'; is line 1 a node\?"
    ):
        node_graph_from_files(folder, require_labels=False)


def test_a_list_of_names_beside_the_table_is_ignored(tables):
    folder = tables()
    graph = node_graph_from_files(folder)
    (folder / "nodes.txt").write_text("ann\nbob\n")
    assert node_graph_from_files(folder).fingerprint == graph.fingerprint


def test_commas_in_a_name_of_a_column(tables):
    graph = node_graph_from_files(tables(NODES.replace(",", ";").replace("income", "income, net"), EDGES))
    assert graph.feature_names == ("age", "income, net")


def test_values_that_become_equal_give_a_warning(tables, recwarn):
    """Such as seconds since 1970, which float32 rounds to multiples of 128."""
    seconds = [1700000000, 1700000001, 1700000030, 1700000060]
    rows = [f"n{n},{'xy'[n % 2]},{s},{s - seconds[0]},{n}" for n, s in enumerate(seconds)]
    edges = "source,target\nn0,n1\n"
    folder = tables(nodes_of(*rows, header="id,label,time,age,f"), edges)
    node_graph_from_files(folder)
    assert "feature 'time': different values become equal" in str(recwarn.pop().message)
    # The remedy can be followed; and large values that stay different need none.
    rows = [f"n{n},{'xy'[n % 2]},{s - seconds[0]},{n}e30,{1 << 24}" for n, s in enumerate(seconds)]
    assert node_graph_from_files(tables(nodes_of(*rows, header="id,label,time,f,g"), edges)).x[1, 0] == 1
    (folder / "nodes.csv").write_text(nodes_of("n0,16777217", "n1,16777216", header="id,f"))
    assert not recwarn.list
    table = own_csv.read_features(folder / "nodes.csv")
    assert table.x.shape == (2, 1) and "nodes.csv: feature 'f': different" in table.notices[0]


def test_true_and_false_are_read_as_1_and_0(tables):
    """`pandas.get_dummies` makes such columns."""
    text = "id,label,red,f\nann,a,True,1\nbob,b,False,2\ncy,a,true,3\n"
    graph = node_graph_from_files(tables(text, "source,target\nann,bob\n"))
    assert graph.x.tolist() == [[1, 1], [0, 2], [1, 3]]
    with pytest.raises(DataError, match="feature 'red' is 'True', but features are numbers"):
        node_graph_from_files(tables(text.replace("False", "0"), "source,target\nann,bob\n"))


def test_measurements_as_labels_give_a_warning(tables):
    folder = tables(nodes_of("ann,0.25,1", "bob,3,2", "cy,0.75,3"), "source,target\nann,bob\n")
    with pytest.warns(
        GraphzooDataWarning, match=r"labels such as 0\.25 are taken as classes; there is no regression"
    ):
        node_graph_from_files(folder)
