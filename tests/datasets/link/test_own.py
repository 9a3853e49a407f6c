"""Own links in files: accepted forms, mistakes with file, line and remedy, warnings with counts."""

import gzip
import itertools
import warnings

import numpy as np
import pytest
import torch
from helpers.link_graphs import make_link_graph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphzoo.datamodules import LinkDataModule
from graphzoo.datasets import DataError, GraphzooDataWarning, link_graph_from_edges, link_graph_from_files
from graphzoo.datasets.link import own
from graphzoo.datasets.link.edge_list import read_edge_list
from graphzoo.datasets.link.pairs import in_keys, pair_keys
from graphzoo.errors import UsageError

RING = [(f"n{i}", f"n{(i + 1) % 40}") for i in range(40)]


@pytest.fixture
def quiet():
    """Turn warnings into errors, for input that must give none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def text(rows, separator="\t", header=""):
    return (header + "".join(separator.join(row) + "\n" for row in rows)).encode()


def named(graph, pairs):
    names = graph.node_names or tuple(map(str, range(graph.num_nodes)))
    return [(names[u], names[v]) for u, v in pairs.tolist()]


def all_links(graph):
    links = torch.cat([graph.positive(split) for split in ("train", "valid", "test")])
    return {frozenset(pair) for pair in named(graph, links)}


FORMS = {
    "edges.tsv": text(RING),
    "edges.txt": text(RING),
    "edges.csv": text(RING, ","),
    "semicolons.csv": text(RING, ";"),
    "bars.txt": text(RING, "|"),
    "blanks.txt": text([(f" {u}", f" {v} ") for u, v in RING], " "),
    "header.tsv": text([(v, u) for u, v in RING], header="Target\tSource\n"),
    "header.csv": text([("x", *pair) for pair in RING], ",", header="kind,source,target\n"),
    "weights.csv": text([(*pair, "0.5") for pair in RING], ","),
    "comments.txt": text(RING, header="# a list\n% of links\n"),
    "bars.csv": text(RING, "|"),
    "windows.csv": b"\xef\xbb\xbf" + text(RING, ",").replace(b"\n", b"\r\n"),
    "quoted.csv": text([(f'"{u}"', v) for u, v in RING], ","),
    "no-last-line-end.tsv": text(RING)[:-1],
    "edges.tsv.gz": gzip.compress(text(RING)),
    "packed-without-the-name.txt": gzip.compress(text(RING)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_file(write, form, recwarn):
    path = write(form, FORMS[form])
    graph = link_graph_from_files(path)
    assert graph.num_nodes == 40 and graph.protocol == "random" and graph.metric == "mrr"
    assert all_links(graph) == {frozenset(pair) for pair in RING}
    assert graph.name == form.split(".")[0] and graph.x is None and not graph.is_directed
    assert [len(graph.positive(split)) for split in ("train", "valid", "test")] == [34, 2, 4]
    expected = {
        "header.csv": ["column kind is ignored"],
        "weights.csv": ["columns 1 and 2 are read as source and target, 1 further column ignored"],
    }
    assert [str(warning.message).split(": ")[-1] for warning in recwarn] == expected.get(form, [])


def test_node_names_that_are_numbers_are_sorted_by_value(write, quiet):
    rows = [(str(u), str(v)) for u, v in itertools.pairwise([*range(8, 12), *range(100, 120)])]
    graph = link_graph_from_files(write("edges.tsv", rows))
    assert graph.node_names == tuple(map(str, [*range(8, 12), *range(100, 120)]))
    rows = [(str(u), str(v)) for u, v in itertools.pairwise(range(24))]
    assert link_graph_from_files(write("edges.tsv", rows)).node_names == ()
    # a leading zero is part of a name
    with pytest.warns(GraphzooDataWarning, match=r"1 pair of nodes is the same number.* '7' and '007'"):
        graph = link_graph_from_files(write("edges.tsv", [*rows, ("007", "3")]))
    assert graph.num_nodes == 25 and graph.node_names[0] == "0" and "007" in graph.node_names


def test_the_split_depends_on_its_index_and_not_on_the_order_of_lines(write, quiet):
    graph = link_graph_from_files(write("a/edges.tsv", RING))
    turned = link_graph_from_files(write("b/edges.tsv", [pair[::-1] for pair in RING[::-1]]))
    other = link_graph_from_files(write("a/edges.tsv", RING), split_index=1)
    assert graph.fingerprint == turned.fingerprint
    assert not torch.equal(graph.test.positive, other.test.positive)


def write_parts(write, folder="parts", **parts):
    rows = {
        "train": [pair for pair in RING[:30]],
        "valid": RING[30:34],
        "test": RING[34:38],
        **parts,
    }
    for part, content in rows.items():
        if content is not None:
            path = write(f"{folder}/{part if '.' in part else part + '.tsv'}", content)
    return path.parent


def test_given_parts(write, recwarn):
    folder = write_parts(write, test=[pair[::-1] for pair in RING[34:38]])
    graph = link_graph_from_files(folder)
    assert graph.protocol == "given" and graph.name == "parts"
    for split, low, high in (("train", 0, 30), ("valid", 30, 34), ("test", 34, 38)):
        found = {frozenset(pair) for pair in named(graph, graph.positive(split))}
        assert found == {frozenset(pair) for pair in RING[low:high]}
    known = pair_keys(
        torch.cat([graph.positive(split) for split in ("train", "valid", "test")]), 39, is_directed=False
    )
    drawn = pair_keys(torch.cat([graph.valid.negative, graph.test.negative]), 39, is_directed=False)
    assert len(graph.valid.negative) == len(graph.test.negative) == 4
    assert not bool(in_keys(drawn, known.sort().values).any()) and len(drawn.unique()) == 8
    # links and negatives have the same order of nodes
    for part in (graph.valid.positive, graph.valid.negative, graph.test.positive, graph.test.negative):
        assert bool((part[:, 0] < part[:, 1]).all())
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == 2 and all("without a training link, kept as isolated" in line for line in said)
    assert "valid.tsv: 4 nodes" in said[0] and "isolated: 4 links (" in said[0]
    listed = link_graph_from_files([folder / f"{split}.tsv" for split in ("train", "valid", "test")])
    assert listed.fingerprint == graph.fingerprint and listed.name == "train"


def test_negatives_of_directed_parts_have_both_directions(write, quiet):
    """Three nodes have six pairs: the two that are no links are drawn, and both are reversed links."""
    parts = {"train": [("a", "b"), ("b", "c")], "valid": [("c", "a")], "test": [("a", "c")]}
    graph = link_graph_from_files(write_parts(write, **parts), directed=True)
    drawn = named(graph, torch.cat([graph.valid.negative, graph.test.negative]))
    assert sorted(drawn) == [("b", "a"), ("c", "b")]


def test_given_negatives(write, recwarn):
    folder = write_parts(write, valid_neg=[("n9", "n0"), ("n5", "n1")], test_neg=[("n8", "n2")])
    graph = link_graph_from_files(folder)
    assert named(graph, graph.valid.negative) == [("n9", "n0"), ("n5", "n1")]
    assert named(graph, graph.test.negative) == [("n8", "n2")]
    # in the order and direction of the file, like the negatives
    assert named(graph, graph.valid.positive) == RING[30:34]


def test_dropped_links_are_counted_in_warnings(write):
    folder = write_parts(
        write,
        train=[*RING[:34], ("n1", "n0"), ("n0", "n1"), ("n3", "n3"), RING[36][::-1]],
        valid=[RING[33], RING[35], RING[37]],
        test=[RING[36], RING[37], ("n4", "n4")],
    )
    with pytest.warns(GraphzooDataWarning) as caught:
        graph = link_graph_from_files(folder)
    said = "\n".join(str(warning.message) for warning in caught)
    for part in (
        "train.tsv: 2 repeated links dropped (both directions are one link)",
        "train.tsv: 1 self-link dropped (first: line 37)",
        "test.tsv: 1 self-link dropped (first: line 3)",
        "train.tsv: 1 link also in test dropped: evaluated links must not be trained on",
        "train.tsv: 1 link also in valid dropped",
        "valid.tsv: 1 link also in test dropped: a link is in one part",
    ):
        assert part in said
    assert [len(graph.positive(split)) for split in ("train", "valid", "test")] == [33, 2, 2]
    assert {warning.filename for warning in caught} == {__file__}


def test_names_that_look_the_same_give_a_warning(write, recwarn):
    link_graph_from_files(write("edges.tsv", [*RING, ("n1\u200b", "n3")]))
    assert any(r"'n1\u200b'" in str(warning.message) for warning in recwarn)


@pytest.mark.parametrize(
    "header",
    [
        "u,v",
        "user_id,item_id",
        "id_1,id_2",
        '"from node","to node"',
        "n.name,m.name",
        "elementId(n),elementId(m)",
    ],
)
def test_a_first_line_that_looks_like_a_header_gives_a_warning(write, recwarn, header):
    graph = link_graph_from_files(write("edges.csv", text(RING, ",", header=header + "\n")))
    (said,) = [str(warning.message) for warning in recwarn]
    assert "edges.csv, line 1 looks like a header and was read as a link" in said
    assert "name the columns source, target" in said and graph.num_nodes == 42


@pytest.mark.parametrize(("header", "separator"), [("# target\tsource\n", "\t"), ("#Target Source\n", " ")])
def test_a_header_in_a_comment_gives_the_order(write, quiet, header, separator):
    above = "# by hand\n" + header
    links = read_edge_list(write("edges.txt", text(RING, separator, header=above)))
    assert [*zip(links.target, links.source, strict=True)] == RING and links.where(0).endswith("line 3")


def test_a_header_in_a_comment_names_the_columns(write, recwarn):
    rows = [("0.5", *pair) for pair in RING]
    graph = link_graph_from_files(write("edges.csv", text(rows, ",", "#weight,source,target\n")))
    assert all_links(graph) == {frozenset(pair) for pair in RING}
    assert [str(warning.message).split(": ")[-1] for warning in recwarn] == ["column weight is ignored"]


def test_a_sentence_above_links_is_no_header(write, quiet):
    for sentence in ('# edges from "a to b, c"\n', "% from source to target\n", "# target, source\n"):
        links = read_edge_list(write("edges.txt", text(RING, header=sentence)))
        assert [*zip(links.source, links.target, strict=True)] == RING


def test_names_with_a_dot_are_no_header(write, quiet):
    for first in (("n.name", "m.size"), ("main.py", "utils.py")):
        link_graph_from_files(write(f"{first[0]}.csv", text([first, *RING], ",")))


def test_a_first_line_of_known_nodes_is_no_header(write, quiet):
    names = ["ann", "bob", "cy", "dee", "eve", "fay"]
    pairs = [(u, v) for i, u in enumerate(names) for v in names[i + 1 :]]
    folder = write_parts(write, train=pairs[1:7], valid=[pairs[0], pairs[-1]], test=pairs[8:9])
    link_graph_from_files(folder)
    header = [("source", "target"), ("xx", "yy"), *RING]
    link_graph_from_files(write("edges.csv", text(header, ",")))


def test_quotes_in_names_give_a_warning(write, recwarn):
    graph = link_graph_from_files(write("edges.tsv", text([(f'"{u}"', f'"{v}"') for u, v in RING])))
    (said,) = [str(warning.message) for warning in recwarn]
    assert "edges.tsv: quotes are read as part of the names" in said
    assert '"n1"' in graph.node_names


def test_quotes_that_belong_to_a_name_of_a_csv_file_give_no_warning(write, quiet):
    rows = [(f'"""{u}"""', f'"{v}, {v}"') for u, v in RING]
    graph = link_graph_from_files(write("edges.csv", text(rows, ",", "source,target\n")))
    assert '"n1"' in graph.node_names and "n1, n1" in graph.node_names


def test_a_column_that_a_header_names_twice_is_refused(write):
    path = write("edges.csv", text([(u, "x", v) for u, v in RING], ",", "source,target,target\n"))
    with pytest.raises(DataError, match="edges.csv, line 1: column 'target' occurs twice; rename one"):
        link_graph_from_files(path)


def test_columns_that_are_ignored_are_named(write, recwarn):
    rows = text([(*pair, "1", "") for pair in RING], ",", header="source,target,weight,\n")
    link_graph_from_files(write("edges.csv", rows))
    (said,) = [str(warning.message) for warning in recwarn]
    assert said.endswith("edges.csv: columns weight, one without a name are ignored")


def test_names_in_bytes_are_decoded(tmp_path):
    edges = np.array([[i, (i + 1) % 40] for i in range(40)]).T
    np.savez(tmp_path / "links.npz", edge_index=edges, node_names=[f"n{i}".encode() for i in range(40)])
    assert link_graph_from_files(tmp_path / "links.npz").node_names[:2] == ("n0", "n1")


def test_ignored_weights_of_an_npz_file_give_a_warning(tmp_path, recwarn):
    edges = np.array([[i, (i + 1) % 40] for i in range(40)]).T
    np.savez(tmp_path / "links.npz", edge_index=edges, edge_weight=np.ones(40))
    link_graph_from_files(tmp_path / "links.npz")
    (said,) = [str(warning.message) for warning in recwarn]
    assert said.endswith("links.npz: edge_weight ignored: weights and types of edges are not used")


def test_an_ignored_split_in_an_npz_file_gives_a_warning(tmp_path, recwarn):
    """The names are those of PyG's RandomLinkSplit."""
    edges = np.array([[i, (i + 1) % 40] for i in range(40)]).T
    np.savez(
        tmp_path / "links.npz",
        edge_index=edges,
        val_edge_index=edges[:, :4],
        edge_label=np.ones(4),
        y=np.zeros(40),
        train_mask=np.ones(40, bool),
        n_id=np.arange(40),
        year=np.zeros(40),
    )
    link_graph_from_files(tmp_path / "links.npz")
    split, rest = [str(warning.message) for warning in recwarn]
    assert "links.npz: edge_label, val_edge_index ignored, because the split is drawn" in split
    assert rest.endswith("links.npz: year ignored")


def test_integers_and_equal_floats_as_names_give_a_warning(write, recwarn):
    """pandas writes integers as floats if their column had missing values."""
    rows = [(f"{i}.0", str((i + 1) % 40)) for i in range(40)]
    graph = link_graph_from_files(write("edges.csv", text(rows, ",", header="source,target\n")))
    assert graph.num_nodes == 80
    (said,) = [str(warning.message) for warning in recwarn]
    assert "40 pairs of nodes are the same numbers, kept apart (first: '0' and '0.0')" in said


def test_names_with_dots_without_an_integer_twin_give_no_warning(write, quiet):
    names = [*(f"{i}.0" for i in range(20)), "v1.0", "v1", "a", "a.0"]
    link_graph_from_files(write("edges.csv", text(list(itertools.pairwise(names)), ",")))


def test_tables_that_are_not_read_give_a_warning(tmp_path, recwarn):
    for folder, extra in (
        ("a", "Nodes.csv"),
        ("b", "edges_neg.tsv"),
        ("c", "weather.csv"),
        ("d", "notes.txt"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "edges.csv").write_bytes(text(RING, ","))
        (tmp_path / folder / extra).write_text("id,age\nn1,2\n")
    for folder in "abcd":
        link_graph_from_files(tmp_path / folder)
        link_graph_from_files(tmp_path / folder)  # no second warning
    said = [str(warning.message) for warning in recwarn]
    assert [one.split(": ")[1] for one in said] == [
        "Nodes.csv not read; did you mean nodes?",
        "edges_neg.tsv not read; did you mean edges?",
        "weather.csv not read; features are read from nodes.csv",
    ]
    nodes = "".join(f"n{i},{i}\n" for i in range(40))
    (tmp_path / "c" / "nodes.csv").write_text("id,age\n" + nodes)
    link_graph_from_files(tmp_path / "c")
    assert len(recwarn) == 3, "no warning, since nodes.csv exists and no name looks misspelt"


def test_directed(write, quiet):
    rows = [*RING, *[pair[::-1] for pair in RING[:5]]]
    graph = link_graph_from_files(write("edges.tsv", rows), directed=True)
    links = torch.cat([graph.positive(split) for split in ("train", "valid", "test")])
    assert graph.is_directed and sorted(named(graph, links)) == sorted(rows)
    with pytest.warns(GraphzooDataWarning, match="5 repeated links dropped"):
        undirected = link_graph_from_files(write("edges.tsv", rows))
    assert not undirected.is_directed and all_links(undirected) == {frozenset(pair) for pair in RING}


def test_features(write, recwarn):
    nodes = text([(name, str(i), "bakery", "0.5") for i, (name, _) in enumerate(RING)], ",")
    write("shops/nodes.csv", b"name,size,label,share\n" + nodes + b"lone,7,,1\n")
    graph = link_graph_from_files(write("shops/edges.tsv", RING).parent)
    assert graph.node_names == (*(name for name, _ in RING), "lone")
    assert graph.x.tolist()[-1] == [7, 1] and graph.x.shape == (41, 2)
    assert [str(warning.message).split(": ")[-1] for warning in recwarn] == [
        "column label left out, not features"
    ]
    write("shops/nodes.csv", text([(name,) for name, _ in RING], header="name\n"))
    assert link_graph_from_files(write("shops/edges.tsv", RING).parent).x is None


@pytest.mark.parametrize(
    "above",
    [
        b":START_ID(Person),:END_ID(Person)\n",
        b"%%MatrixMarket matrix coordinate pattern symmetric\n% by hand\n40 40 40\n",
        b"%%matrixmarket matrix coordinate pattern symmetric\n% by hand\n\n40 40 40\n",
    ],
)
def test_what_other_programs_write_above_links_is_no_link(write, above):
    delimiter = "," if b"," in above else " "
    found = link_graph_from_files(write("one/edges.txt", above + text(RING, delimiter)))
    expected = link_graph_from_files(write("two/edges.txt", text(RING, delimiter)))
    assert found.node_names == expected.node_names and torch.equal(found.train, expected.train)


@pytest.mark.fault("a list of links has a wrong line", "refused with file, line and value")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "edges.tsv: no links; write one link per line"),
        (b"# only this\n", "edges.tsv: no links"),
        (
            b"%%MatrixMarket matrix coordinate pattern general\n%\n40 30 2\n1 1\n40 30\n",
            "edges.tsv, line 3: a matrix of 40 rows and 30 columns; .*\nIf so, write 40 40 2 in this line; ",
        ),
        (b"%%MatrixMarket matrix array real general\n40 1\n1\n0\n", "edges.tsv, line 3: expected two nodes"),
        (b"%%MatrixMarket matrix coordinate pattern general\n", "edges.tsv: no links"),
        (b"a\tb\nb\tc\n\nc\td\n", "edges.tsv, line 3: a node without a name; name it or drop the line"),
        (
            b"a\tb\nb\tc\td\n",
            r"edges.tsv, line 2: expected 2 columns, got 3 \('b\\tc\\td'\)\n  delete the fu",
        ),
        (
            b"a,b\n# d\nb,c\n",
            "line 2: expected 2 columns, got 1 .*\n  delete the line if it is a comment; else fill in",
        ),
        (b"a;b\nb;c;\n", "line 2: expected 2 columns, got 3 .*\n .* line 1; if a value has ';', enclose"),
        (b"sep=;\r\na;b\r\nb;c\r\n", "edges.tsv, line 1: 'sep=;' is a note for Excel, not a row; delete"),
        ("a,b\n".encode("utf-16-le"), "edges.tsv: encoded as UTF-16; save it as UTF-8"),
        (b"# note\na\tb\nb\n", "edges.tsv, line 3: expected 2 columns, got 1"),
        (
            b"source\ttarget\na\tb\nb\n",
            "edges.tsv, line 3: expected 2 columns, got 1.*\n  fill in the missing",
        ),
        (b"ab\n", "edges.tsv, line 1: expected two nodes, got 'ab'; separate them by a tab"),
        (b"a\tb\n\tc\n", "edges.tsv, line 2: a node without a name; name it or drop the line$"),
        (b",von,nach\n0,a,b\n", "line 1: a node without a name; .*; if it is a header, name the columns"),
        (
            b'source,target\na,b\nc,"d\ne"\n',
            r"edges.tsv, line 3: 'd\\ne' has a line break; remove it",
        ),
        (
            b'source,target,note\nn1,n2,ok\nn3,n4,"open\nn5,n6,ok\n',
            r"edges.tsv, line 3: 'open\\nn5,n6,ok\\n' has a line break; remove it, and check the quotes",
        ),
        (
            b'source,target,note\na,b,"12in\nb,c,y\nc,d,y\nd,e,8in"\ne,f,z\n',
            r"edges.tsv, line 2: '12in\\nb,c,y\\nc,d,y\\nd,e,8in' ",
        ),
        (b'a,b,x\nb,c,"y\nc,d",z\ne,f\n', r"edges.tsv, line 2: 'b,c,\"y\\nc,d\",z' has a line break"),
        (b'"a\nb",c\n', 'edges.tsv, line 1: the quote of "a is not closed in this line'),
        (b"a\tb\nc\t \n", "edges.tsv, line 2: a node without a name"),
        (b"a\tb\n\xff\tc\n", "edges.tsv, line 2: not UTF-8"),
        (b"a\tb\rc\td\n", "edges.tsv, line 1: has a carriage return without a line feed"),
        (b"source\ttarget\n", "edges.tsv: no"),
        (
            b":END_ID(Movie),:START_ID(User)\n1,7\n2,1\n",
            "edges.tsv, line 3: '1' is an id of User and an id of Movie; ids of User and of Movie are "
            "separate\nWrite the ids as User1 and Movie1, and the header without groups: :START_ID, :END_ID",
        ),
        (b"a\ta\n", "edges.tsv: no links; add some"),
        (
            b"a\tb\nb\tc\n",
            "2 links are too few to set aside 5 % for validation and 10 % for test; split them",
        ),
        (b"\n\na\tb\n", "line 1 is blank"),
        (b"PAR1\tx\n", "2 links are too few|1 link"),
        (b"PAR1\x15\x04", "edges.tsv: a Parquet file, which cannot be read; write it as .csv"),
        (b"PK\x03\x04\x00", "edges.tsv: a zip archive, as .xlsx, .pt and .npz are, which cannot be read"),
    ],
)
@pytest.mark.filterwarnings("ignore::graphzoo.datasets.GraphzooDataWarning")
def test_wrong_files_are_refused(write, content, message):
    with pytest.raises(DataError, match=message) as caught:
        link_graph_from_files(write("edges.tsv", content))
    assert len(str(caught.value).splitlines()) <= 6


@pytest.mark.fault("given splits and negatives of links contradict each other", "refused with file and line")
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"valid": None}, "no valid file"),
        ({"train": None}, "no train file"),
        ({"edges": RING}, "both edges.tsv and train.tsv; keep either"),
        ({"valid_neg": [("n0", "n9")]}, "valid_neg without test_neg; give both, or neither"),
        (
            {"valid_neg": [("n0", "n9"), ("n3", "n2")], "test_neg": [("n0", "n8")]},
            "valid_neg.tsv, line 2: the negative 'n3', 'n2' is a link",
        ),
        (
            {"valid_neg": [("n0", "n9")], "test_neg": [("n0", "n8"), ("n7", "n7")]},
            "test_neg.tsv, line 2: the negative 'n7', 'n7' is a link, or pairs a node with itself",
        ),
        ({"train": RING[30:38]}, "every link is also in"),
        ({"train.csv": b"a,b\n"}, "both train.tsv and train.csv; keep one of them"),
        (
            {"nodes.csv": text([(u, "1") for u, _ in RING if u != "n4"], ",", "name,size\n")},
            r"train.tsv, line 5: node 'n4' is not in .*nodes.csv \(1 such nodes\). Did you mean: n",
        ),
        (
            {"nodes.csv": text([(u, "big") for u, _ in RING], ",", "name,size\n")},
            "nodes.csv, line 2: feature 'size' is 'big'",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::graphzoo.datasets.GraphzooDataWarning")
def test_wrong_folders_are_refused(write, parts, message):
    with pytest.raises(DataError, match=message) as caught:
        link_graph_from_files(write_parts(write, **parts))
    assert len(str(caught.value).splitlines()) <= 6


def test_wrong_paths_are_refused(write, tmp_path):
    with pytest.raises(DataError, match="nowhere: no such file or folder; give a file of links"):
        link_graph_from_files(tmp_path / "nowhere")
    with pytest.raises(DataError, match="or a list of train, valid and test"):
        link_graph_from_files([write("a.tsv", RING), write("b.tsv", RING)])
    write("empty/readme.md", b"")
    with pytest.raises(DataError, match="the folder has readme.md"):
        link_graph_from_files(tmp_path / "empty")
    with pytest.raises(ValueError, match="at least 0, got -1"):
        link_graph_from_files(write("edges.tsv", RING), split_index=-1)


def test_a_large_file_is_parsed_once(write, own_cache, monkeypatch):
    rows = [(f"node-{u:012}", f"node-{(u * 7 + 1) % 40_000:012}") for u in range(40_000)]
    path = write("edges.tsv", [*rows, rows[0]])
    with pytest.warns(GraphzooDataWarning) as first:
        graph = link_graph_from_files(path)
    assert list((own_cache / "parsed").glob("*.npz"))
    monkeypatch.setattr(own, "_parse", lambda *arguments: pytest.fail("parsed again"))
    with pytest.warns(GraphzooDataWarning) as second:
        assert link_graph_from_files(path).fingerprint == graph.fingerprint
    assert [str(w.message) for w in first] == [str(w.message) for w in second]
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache.parent))
    with pytest.warns(GraphzooDataWarning):
        assert link_graph_from_files(path, split_index=1).fingerprint != graph.fingerprint


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from("tve")), min_size=3, max_size=60
    ),
    st.booleans(),
    st.integers(0, 3),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.filterwarnings("ignore::graphzoo.datasets.GraphzooDataWarning")
def test_evaluated_links_are_not_among_the_edges_of_any_files(write, rows, directed, index):
    parts = {
        part: [(f"v{u}", f"v{v}") for u, v, kind in rows if kind == part[0]] for part in ("train", "valid")
    }
    parts["test"] = [(f"v{u}", f"v{v}") for u, v, kind in rows if kind == "e"]
    try:
        graph = link_graph_from_files(
            write_parts(write, "drawn", **parts), directed=directed, split_index=index
        )
    except DataError as error:
        reasons = ("no links", "every link is also in", "pairs without a link are needed")
        assert any(reason in str(error) for reason in reasons)
        return
    n = graph.num_nodes
    judged = torch.cat([graph.valid.positive, graph.test.positive])
    for split in ("train", "valid", "test"):
        seen = pair_keys(graph.edge_index(split).t(), n, is_directed=directed).sort().values
        assert not bool(in_keys(pair_keys(judged, n, is_directed=directed), seen).any())
    links = torch.cat([graph.train, judged])
    keys = pair_keys(links, n, is_directed=directed)
    assert keys.unique().numel() == keys.numel()
    for split in (graph.valid, graph.test):
        negative = pair_keys(split.negative, n, is_directed=directed)
        assert not bool(in_keys(negative, keys.sort().values).any())
        assert not bool((split.negative[:, 0] == split.negative[:, 1]).any())


def test_a_drawn_split_is_logged_once(tmp_path, caplog):
    path = tmp_path / "told.tsv"
    path.write_text("".join(f"{node}\t{node + 1}\n" for node in range(60)))
    for index in (0, 0, 1):
        link_graph_from_files(path, split_index=index)
    told = [record.getMessage() for record in caplog.records]
    assert [line[:35] for line in told] == [f"told: random split {n} of the links: "[:35] for n in (0, 1)]


@pytest.mark.parametrize("line", ["p 0 p 1", "ann smith bob"])
def test_names_with_blanks_and_no_other_separator_are_refused(write, line):
    with pytest.raises(
        DataError, match=r"line 1: .* columns separated by spaces, but a link has two nodes\n.* tabs"
    ):
        link_graph_from_files(write("pipe.txt", f"{line}\n".encode() * 30))


@pytest.mark.parametrize("behind", [" 0.5", " {'weight': 2}"])
def test_weights_and_attributes_after_numbered_nodes_are_ignored(write, behind):
    rows = [(str(u), f"{v}{behind}") for u, v in itertools.pairwise(range(30))]
    with pytest.warns(GraphzooDataWarning, match="ignored"):
        assert link_graph_from_files(write("weighted.txt", text(rows, " "))).num_nodes == 30


def test_marks_within_the_names_of_a_csv_file_do_not_separate(write, quiet):
    rows = [(f"sp|P{i}|A", f"sp|P{i + 1}|A") for i in range(40)]
    names = {frozenset(pair) for pair in rows}
    assert all_links(link_graph_from_files(write("uniprot.csv", text(rows, ",")))) == names
    assert all_links(link_graph_from_files(write("uniprot2.csv", text(rows, ";")))) == names
    quoted = [('"a;b;c"', '"d"'), *RING]
    for name in ("quoted.csv", "quoted.txt"):
        graph = link_graph_from_files(write(name, text(quoted, ",")))
        assert all_links(graph) == {frozenset(("a;b;c", "d")), *map(frozenset, RING)}


@pytest.mark.parametrize("mark", [",", ";", "|"])
def test_a_mark_in_both_of_two_words_is_ambiguous(write, mark):
    rows = [(f"Smith{mark}J{i}", f"Doe{mark}A{i}") for i in range(40)]
    with pytest.raises(DataError, match="edges.txt, line 1: .* may be two nodes separated by a blank, or"):
        link_graph_from_files(write("edges.txt", text(rows, " ")))
    # Both remedies can be followed.
    tabs = link_graph_from_files(write("tabs.txt", text(rows)))
    assert all_links(tabs) == {frozenset(pair) for pair in rows}
    with pytest.warns(GraphzooDataWarning, match="1 further column ignored"):
        columns = link_graph_from_files(write("edges.csv", text(rows, " ")))
    assert frozenset(("Smith", "J0 Doe")) in all_links(columns)


def test_the_attributes_that_networkx_writes_are_one_column(write, recwarn):
    """Their commas do not separate the nodes, and the links may have different ones."""
    others = [", 'time': 7", "", ", 'note': 'of a, b'"]
    rows = [(u, f"{v} {{'weight': 1.5{other}}}") for (u, v), other in zip(RING, others * 14, strict=False)]
    graph = link_graph_from_files(write("networkx.txt", text(rows, " ")))
    assert all_links(graph) == {frozenset(pair) for pair in RING}
    (said,) = [str(warning.message).split(": ")[-1] for warning in recwarn]
    assert said == "columns 1 and 2 are read as source and target, 1 further column ignored"


def test_features_in_memory_are_checked():
    edges = torch.tensor([[*range(30)], [*range(1, 31)]])
    x = torch.ones(31, 2)
    for features in (x.double(), x.bool(), x.clone().requires_grad_(), x.to_sparse()):
        found = link_graph_from_edges(edges, features).x
        assert found.dtype == torch.float32 and not found.requires_grad
        assert torch.equal(found.to_dense() if found.layout != torch.strided else found, x)
    x[3, 1] = torch.nan
    with pytest.raises(DataError, match=r"x\[3, 1\] is nan; replace missing values"):
        link_graph_from_edges(edges, x)


def test_features_that_become_equal_give_a_warning(write, tmp_path):
    values = 1_700_000_000 + np.arange(40)
    edges = np.array([range(40), [*range(1, 40), 0]])
    with pytest.warns(GraphzooDataWarning, match="feature '0': different values become equal"):
        link_graph_from_edges(torch.from_numpy(edges), torch.from_numpy(values[:, None]))
    np.savez(tmp_path / "arrays.npz", edge_index=edges, x=values[:, None])
    with pytest.warns(GraphzooDataWarning, match="arrays.npz: feature '0': different values become equal"):
        link_graph_from_files(tmp_path / "arrays.npz")
    rows = [(f"n{i}", str(value)) for i, value in enumerate(values)]
    folder = write_parts(write, train=None, valid=None, test=None, edges=RING)
    (folder / "nodes.csv").write_bytes(text(rows, ",", "name,time\n"))
    with pytest.warns(GraphzooDataWarning, match="nodes.csv: feature 'time': different values become equal"):
        link_graph_from_files(folder)


@pytest.mark.parametrize("name", ["val", "validation", "dev"])
def test_other_names_of_the_validation_file(write, name):
    negatives = {"valid_neg": [("n0", "n9")], "test_neg": [("n0", "n8")]}
    graph = link_graph_from_files(write_parts(write, "parts", **negatives))
    folder = write_parts(write, "other", valid=None, **{name: RING[30:34]}, **negatives)
    (folder / "valid_neg.tsv").rename(folder / "val_neg.tsv")
    other = link_graph_from_files(folder)
    assert other.fingerprint == graph.fingerprint and other.valid.has_own_negatives is False
    write_parts(write, "other", train=None, test=None, valid=RING[30:32])  # the usual name is preferred
    assert len(link_graph_from_files(folder).valid.positive) == 2


def test_links_that_look_like_comments_give_a_warning(write, recwarn):
    rows = [(f"#{u}", f"#{v}") for u, v in RING[:3]] + RING
    link_graph_from_files(write("edges.tsv", b"# FromNodeId\tToNodeId\n%%MatrixMarket\n" + text(rows)))
    (said,) = [str(warning.message) for warning in recwarn]
    assert (
        "edges.tsv: 3 lines of two columns at the top read as comments" in said and "begin the file" in said
    )
    recwarn.clear()
    headed = link_graph_from_files(write("headed.tsv", text(rows, header="source\ttarget\n")))
    assert "#n1" in headed.node_names and not recwarn.list


@pytest.mark.parametrize("stored", [False, True])
def test_a_saved_undirected_graph_cannot_be_read_as_directed(tmp_path, stored):
    graph = make_link_graph()
    graph.save(tmp_path / "mine.npz")
    with pytest.raises(UsageError, match="were split as undirected links"):
        if stored:
            link_graph_from_files(str(tmp_path / "mine.npz"), directed=True)
        else:
            LinkDataModule(edge_index=graph, directed=True)
    back = link_graph_from_files(str(tmp_path / "mine.npz"))
    assert not back.is_directed and back.fingerprint == graph.fingerprint
