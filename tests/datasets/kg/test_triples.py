"""Triples from text files and tables: accepted forms, and the message for each kind of damage."""

import bz2
import gzip
import lzma
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import HeteroData

from graphzoo.datasets import DataError, GraphzooDataWarning, read_triples
from graphzoo.datasets.files.text import lookalikes
from graphzoo.datasets.kg.build import from_triples
from graphzoo.datasets.kg.triples import parse_triples, query_columns, triples_from_table

ROWS = [("a", "r", "b"), ("NA", "null", "1.0"), ("ä b", "r", '"q"'), ("a", "r", "b")]


def rows(columns):
    return [(columns.head[i], columns.relation[i], columns.tail[i]) for i in range(len(columns))]


def test_names_are_not_changed(write):
    assert rows(read_triples(write("t.txt", ROWS))) == ROWS


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [b"", b"\n", b"\n\n"])
def test_line_ends_and_byte_order_mark(write, end, mark, last):
    text = mark + end.join("\t".join(row).encode() for row in ROWS) + last.replace(b"\n", end)
    assert rows(read_triples(write("t.tsv", text))) == ROWS


def test_gzip_is_recognised_by_its_content(write):
    text = "".join("\t".join(row) + "\n" for row in ROWS).encode()
    assert rows(read_triples(write("t.txt.gz", gzip.compress(text)))) == ROWS
    assert rows(read_triples(write("t.txt", gzip.compress(text)))) == ROWS


def test_triples_of_a_file_make_a_graph_whose_messages_name_the_lines(write):
    graph = from_triples(read_triples(write("t.txt", ROWS[:3])))
    assert graph.train.tolist() == from_triples(ROWS[:3]).train.tolist()
    with pytest.raises(DataError, match=r"t\.txt, line 2: relation 'null' does not occur"):
        from_triples(read_triples(write("t.txt", ROWS)), relations=("r",))


def test_csv_with_quotes_and_header_in_any_order(write):
    text = b'tail,head,relation\n"b, c",a,r\n"say ""hi""",x,s\n'
    columns = read_triples(write("t.csv", text))
    assert rows(columns) == [("a", "r", "b, c"), ("x", "s", 'say "hi"')]
    assert columns.where(0).endswith("line 2")
    assert rows(read_triples(write("t.csv.gz", gzip.compress(text)))) == rows(columns)


def test_a_csv_reads_alike_with_quotes_and_without(write):
    text = "# note\nrelation,head,tail,year\nr, a,b ,1\n r,#b,NA,2\nr,\u00e9 \U0001f600,-7,\n"
    plain, quoted = (read_triples(write("t.csv", t.encode())) for t in (text, text.replace("NA", '"NA"')))
    assert rows(plain) == [(" a", "r", "b "), ("#b", " r", "NA"), ("\u00e9 \U0001f600", "r", "-7")]
    assert rows(quoted) == rows(plain)
    assert (plain.first_line, plain.notices) == (quoted.first_line, quoted.notices)
    long = "x" * 200_000  # more than a field of Python's csv may have
    assert rows(read_triples(write("t.csv", f"{long},r,b\n".encode()))) == [(long, "r", "b")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Smith, John;likes;Meier, Ann", ["Smith, John", "likes", "Meier, Ann"]),
        ("P1;P2;P3;P4,r,b", ["P1;P2;P3;P4", "r", "b"]),
        ("a;b;c,r,d\nb,r,c", ["a;b;c", "r", "d"]),
        ('"Q1","r","a; b; c; d"', ["Q1", "r", "a; b; c; d"]),
        ("a,b;r;c\nb;r;c", ["a,b", "r", "c"]),
        ("%a;b;c;d,r,x\n%b,r,c", ["%a;b;c;d", "r", "x"]),
        ("a;b;c, r, d\na;b;c;e, r, d", ["a;b;c", " r", " d"]),
        ("#a;r;b\n#c;r;d", ["#a", "r", "b"]),
        (f"{'a' * 2_000}, x;r;b, c\n" * 40, [f"{'a' * 2_000}, x", "r", "b, c"]),
    ],
)
def test_the_delimiter_of_a_csv_fits_all_its_first_lines(text, expected):
    assert rows(parse_triples(text.encode(), "t.csv", is_csv=True))[0] == tuple(expected)


def test_semicolons_separate_a_csv_as_commas_do(write):
    lines = b"# by hand, in May\nTail;relation;head;note\n"
    plain = read_triples(write("a.csv", lines + b"b, c;r;a;x\nd;s, t;a;\n"))
    quoted = read_triples(write("b.csv", lines + b'"b, c";r;a;x\nd;"s, t";a;";"\n'))
    assert rows(plain) == rows(quoted) == [("a", "r", "b, c"), ("a", "s, t", "d")]
    assert plain.first_line == quoted.first_line == 3
    assert rows(read_triples(write("c.csv", b"a;b,r,c\n"))) == [("a;b", "r", "c")]


def test_a_tsv_header_is_dropped_but_single_letters_are_data(write):
    assert rows(read_triples(write("a.tsv", b"Subject\tPredicate\tObject\nx\tr\ty\n"))) == [("x", "r", "y")]
    assert rows(read_triples(write("b.tsv", b"h\tr\tt\n"))) == [("h", "r", "t")]


@pytest.mark.parametrize(
    "text", [b"?subject\t?predicate\t?object\nx\tr\ty\n", b"?object\t?Subject\t?g\t?predicate\ny\tx\tg\tr\n"]
)
def test_a_header_of_sparql_is_dropped(write, text):
    columns = read_triples(write("t.tsv", text))
    assert rows(columns) == [("x", "r", "y")] and columns.where(0).endswith("line 2")


@pytest.mark.parametrize(
    "text", [b":START_ID,:TYPE,:END_ID\nx,r,y\n", b":START_ID(A),since:int,:END_ID(B),:TYPE\nx,2000,y,r\n"]
)
def test_a_header_of_neo4j_is_dropped(write, text):
    columns = read_triples(write("t.csv", text))
    assert rows(columns) == [("x", "r", "y")] and columns.where(0).endswith("line 2")


def test_a_header_of_sparql_above_queries():
    assert query_columns(["?subject", "?predicate"]) == ["head", "relation"]
    assert query_columns([":START_ID(A)", ":TYPE", ":END_ID(B)"]) == ["head", "relation", "tail"]
    assert query_columns(["", "head", "relation"]) == ["", "head", "relation"]
    assert query_columns(["head", "relation", "x"]) is None


GOOD = b"a\tr\tb\n"
DAMAGE = {
    "two columns": ("t.txt", GOOD + b"a\tr\n", ["line 2", "3 columns", "got 2 columns", r"'a\tr'"]),
    "four columns": ("t.txt", GOOD + GOOD + b"a\tr\tb\tc\n", ["line 3", "got 4 columns"]),
    "several": ("t.txt", GOOD + b"a\nb\n", ["line 2", "(2 wrong lines)"]),
    "blank line": ("t.txt", GOOD + b"\n" + GOOD, ["line 2", "a blank line"]),
    "blanks": ("t.txt", b"a r b\n", ["line 1", "got 1 column", "spaces by tabs"]),
    "commas": ("t.txt", b"a,r,b\n", ["line 1", ".csv"]),
    "two blank lines": ("t.txt", GOOD + b"\n\n" + GOOD, ["a blank line (2 wrong lines); remove it"]),
    "semicolons": ("t.txt", b"a;r;b\n", ["line 1", "name a semicolon-separated file .csv"]),
    "semicolons, then commas": ("t.csv", b"a;r;b\na,r,c\n", ["line 2", "by semicolons, got 1", "the same"]),
    "commas, then semicolons": ("t.csv", b"a,r,b\na;r;c\n", ["line 2", "by commas, got 1", "the same"]),
    "tabs for commas": ("t.csv", GOOD, ["line 1", "name a tab-separated file .tsv"]),
    "n-triples": ("t.txt", b"<a> <r> <b> .\n", ["N-Triples", "head<TAB>relation<TAB>tail"]),
    "n-triples below a header": ("t.tsv", b"?s\t?p\t?o\n<a>\t<r>\t<b> .\n", ["line 2", "N-Triples", "<TAB>"]),
    "n-triples without a blank": ("t.tsv", b"<a>\t<r>\t<b>.\n", ["line 1", "N-Triples"]),
    "n-triples with tabs": ("t.tsv", b"# dump\n<a>\t<r>\t<b> .\n", ["line 2", "N-Triples", "<TAB>"]),
    "json": ("t.txt", b'{"head": "a", "relation": "r", "tail": "b"}\n', ["JSON is not read", "<TAB>"]),
    "late comment": ("t.txt", GOOD + b"# more\n", ["line 2", "only at the top of a file"]),
    "a column without a name": (
        "t.csv",
        b"head,relation,tail\na,r,b,x\nc,r,d,y\n",
        ["drop the other columns"],
    ),
    "the same in quotes": ("t.csv", b'head,relation,tail\n"a",r,b,x\nc,r,d,y\n', ["drop the other columns"]),
    "numbers": ("t.txt", b"1\n2\n3\n", ["(3 wrong lines); separate the columns by tabs"]),
    "further columns": (
        "t.txt",
        b"a\tr\tb\t0.5\n",
        ["got 4 columns", "name all columns"],
    ),
    "a field less than the header": ("t.csv", b"head,relation,tail,year\na,r,b\n", ["expected 4 columns"]),
    "only a comment": ("t.csv", b"# facts, by hand\n", ["no triple"]),
    "empty": ("t.txt", b"", ["empty"]),
    "only blanks": ("t.txt", b" \n\n", ["empty"]),
    "header only": ("t.csv", b"head,relation,tail\n", ["no triple"]),
    "empty head": ("t.txt", GOOD + b"\tr\tb\n", ["line 2", "the head is empty; name it or drop the line"]),
    "blank tail": ("t.txt", GOOD + GOOD + b"a\tr\t \n", ["line 3", "the tail is empty"]),
    "latin-1": ("t.txt", GOOD + b"caf\xe9\tr\tb\n", ["line 2", "not UTF-8", "0xe9", "offset 9"]),
    "latin-1 after mark": ("t.txt", b"\xef\xbb\xbf" + GOOD + b"caf\xe9\tr\tb\n", ["line 2", "offset 12"]),
    "utf-16": ("t.txt", "a\tr\tb\n".encode("utf-16"), ["UTF-16", "UTF-8"]),
    "lone return": ("t.txt", b"a\tr\tb\rc\td\te\n", ["line 1", "carriage return"]),
    "return in a name": ("t.txt", GOOD + b"a\tr\tb\rc\n", ["line 2", "carriage return"]),
    "two columns below comments": ("t.txt", b"# by\n#hand\n" + GOOD + b"a\tr\n", ["line 4", "got 2 columns"]),
    "csv columns": ("t.csv", b"a,r,b\na,r\n", ["line 2", "commas", "got 2 columns"]),
    "csv quote": ("t.csv", b'a,r,b\n"a,r,b\n', ["t.csv, line", "quotes"]),
    "csv tab": ("t.csv", b'a,r,b\n"a\tb",r,c\n', ["line 2", "tab"]),
    "csv line break": (
        "t.csv",
        b'# by\na,r,b\n"a\nb",r,c\n',
        ["line 3", r"'a\nb' has a line break; remove it"],
    ),
    "csv line break in a note": (
        "t.csv",
        b'head,relation,tail,note\na,r,b,c\na,r,b,"one\ntwo"\n',
        ["line 3", r"'one\ntwo' has a line break; remove it, or the column note, which is not used"],
    ),
    "groups of Neo4j": (
        "t.csv",
        b":START_ID(User),:END_ID(Movie),:TYPE\n7,1,likes\n1,2,likes\n",
        ["line 3", "'1' is an id of User and an id of Movie", "Write the ids as User1 and Movie1"],
    ),
    "groups of Neo4j, and quotes": (
        "t.csv",
        b':START_ID(User),:END_ID(Movie),:TYPE\n1,1,"likes"\n',
        ["line 2", "ids of User and of Movie are separate"],
    ),
    "comma in a name": ("t.csv", b"a,r,b\nSmith, John,r,b\n", ["line 2", "put a name with commas in quotes"]),
    "comma in a name, and quotes": (
        "t.csv",
        b'head;relation;tail\n"a";r;b\nSmith; John;r;b\n',
        ["line 3", "put a name with semicolons in quotes"],
    ),
    "xml": (
        "t.rdf",
        b'<?xml version="1.0"?>\n<rdf:RDF>\n</rdf:RDF>\n',
        ["XML and HTML are not read", "<TAB>"],
    ),
    "turtle of sparql": ("t.ttl", b"PREFIX ex: <http://ex.org/>\nex:a ex:r ex:b .\n", ["line 1", "Turtle"]),
    "count": ("t.txt", b"1\na\tr\tb\n", ["line 1", "drop the line if it is a count"]),
    "bomb": ("t.txt.gz", gzip.compress(bytes(1 << 27)), ["unpack to", "fill the memory"]),
    "not gzip": ("t.txt.gz", GOOD, ["not gzip"]),
    "nothing for gzip": ("t.txt.gz", b"", ["t.txt.gz: empty"]),
    "page for gzip": ("t.txt.gz", b"<html>no</html>", ["HTML"]),
    "truncated gzip": ("t.txt.gz", gzip.compress(GOOD * 999)[:-9], ["truncated or corrupt gzip"]),
    "flipped gzip": (
        "t.txt.gz",
        (lambda data: data[:20] + bytes([data[20] ^ 255]) + data[21:])(gzip.compress(GOOD * 999)),
        ["truncated or corrupt gzip"],
    ),
}


FAULTS = {
    "two columns": (
        "a line of triples has too few or too many columns",
        "refused with file, line and content",
    ),
    "latin-1": ("a file of triples is not UTF-8", "refused with file, line, byte and offset"),
    "utf-16": ("a file of triples is UTF-16", "refused; the message says to save it as UTF-8"),
    "lone return": ("lines end with a carriage return only", "refused with file and line"),
    "csv quote": ("a quote in a CSV file is never closed", "refused with file and line"),
    "truncated gzip": ("a gzip file is truncated or changed", "refused with its size"),
    "page for gzip": ("a web page was saved in place of a gzip file", "refused; the message says so"),
    "bomb": ("a small gzip file unpacks to gigabytes", "refused while it is unpacked, with both sizes"),
    "empty": ("a file of triples is empty", "refused with what was expected"),
}
CASES = [
    pytest.param(case, marks=pytest.mark.fault(*FAULTS[case])) if case in FAULTS else case for case in DAMAGE
]


@pytest.mark.parametrize("case", CASES)
def test_damage_is_refused_with_file_and_line(write, case):
    name, content, expected = DAMAGE[case]
    path = write(name, content)
    with pytest.raises(DataError) as caught:
        read_triples(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    for part in expected:
        assert part in message
    assert len(message.splitlines()) <= 6


def test_a_column_without_a_name_is_not_named_in_a_remedy():
    with pytest.raises(DataError, match="has a line break; remove it$"):
        parse_triples(b'head,relation,tail,\na,r,b,"x\ny"\n', "t.csv", is_csv=True)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_triples(tmp_path / "none.txt")


def test_every_kind_of_table_gives_the_same():
    frame = pd.DataFrame(ROWS, columns=["head", "relation", "tail"])
    expected = rows(triples_from_table(ROWS))
    assert expected == ROWS
    assert rows(triples_from_table(frame)) == expected
    wide = triples_from_table(frame[["tail", "head", "relation"]].assign(weight=1.0, split="train"))
    assert rows(wide) == expected and wide.notices == ("triples: columns weight, split are ignored",)
    assert rows(triples_from_table(np.array(ROWS))) == expected
    assert rows(triples_from_table(iter(ROWS))) == expected
    assert rows(triples_from_table(dict.fromkeys(ROWS).keys())) == list(dict.fromkeys(ROWS))
    assert rows(triples_from_table(set())) == []
    assert rows(triples_from_table([(1, "r", 2)])) == [("1", "r", "2")]


@pytest.mark.parametrize(
    "names",
    [
        ("relation", "from_node", "to_node"),
        ("entity1", "entity2", "relation"),
        ("target", "relation", "src"),
    ],
)
def test_known_names_of_some_columns_decide_their_meaning(names):
    """The other columns take the remaining places in their order."""
    ends = [name for name in names if name not in ("relation", "target")]
    parts = {"relation": "r", "target": "b"} | dict(zip(ends, "ab", strict=False))
    table = triples_from_table(pd.DataFrame([[parts[name] for name in names]], columns=names))
    assert rows(table) == [("a", "r", "b")]
    assert "read as head, relation, tail" in table.notices[0]


def test_a_known_name_of_an_end_alone_does_not_change_the_order():
    """For instance, `source` may name the paper that a fact is from."""
    for names in (["gene", "disease", "source"], ["id", "from", "value"]):
        assert rows(triples_from_table(pd.DataFrame([["a", "r", "b"]], columns=names))) == [("a", "r", "b")]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([("a", "r")], "row 1: expected"),
        ([("a", "r", "b"), ("a", None, "b")], "row 2: the relation is missing"),
        ([("a", "r", float("nan"))], "row 1: the tail is missing"),
        (pd.DataFrame({"x": ["a"], "y": ["b"]}), "columns head, relation, tail"),
        ([("a", "r", "")], "row 1: the tail is empty"),
        (
            ("ann", "has", "bob"),
            "row 1: expected .*, got 'ann'\nGive a list of triples, even",
        ),
        (7, "expected triples .head, relation, tail., got int"),
        (HeteroData(), "expected triples .head, relation, tail., got HeteroData"),
        (set(ROWS), "the order of a set differs between processes\nGive sorted"),
        ([{"a", "r", "b"}], "row 1: expected .*, got {.*\nGive a list"),
        ([{"head": "a", "relation": "r", "tail": "b"}], "row 1: expected .*, got {'head'"),
        ([("a", "r", "b"), None], "row 2: expected .*, got None"),
        (torch.eye(3).to_sparse(), "expected triples .head, relation, tail., got Tensor"),
        (np.arange(3), "row 1: expected .*, got 0\nGive a list"),
    ],
)
def test_wrong_tables_are_refused(table, message):
    with pytest.raises(DataError, match=message):
        triples_from_table(table)


def test_an_error_of_the_users_generator_is_raised_unchanged():
    with pytest.raises(TypeError, match="unsupported operand"):
        triples_from_table(("a", "r", None + part) for part in "b")


@pytest.mark.fault(
    "a byte order mark inside a file of names", "refused with its line, so that it makes no second entity"
)
def test_a_byte_order_mark_inside_a_file_is_refused(write):
    part = b"\xef\xbb\xbfa\tr\tb\n"  # two files of some editors, joined
    with pytest.raises(DataError, match="line 2: has a byte order mark"):
        read_triples(write("t.txt", part + part))
    with pytest.raises(DataError, match="line 1: has a byte order mark"):
        read_triples(write("t.csv", b"a,r,b\xef\xbb\xbf\n"))


@pytest.mark.fault("names that differ only in invisible characters", "a warning shows both with escapes")
def test_names_that_look_the_same_give_a_warning(recwarn):
    from_triples(
        [("ab", "r", "c"), ("a\u200bb", "r", "c"), ("caf\u00e9", "r", "cafe\u0301 "), ("x", "r", "y")]
    )
    (said,) = [str(warning.message) for warning in recwarn]
    assert "2 pairs of entities look the same" in said and r"'a\u200bb'" in said
    from_triples([("\u0646\u0627\u0645", "r", "\u00e9"), ("e", "\u00df", "\u00c9")])
    assert len(recwarn) == 1


HEADERS = ("source,relation,target", "From,Relation,To", "head,rel,tail", "# head,relation,tail")


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_usual_headers_are_recognised(write, header, name):
    text = f"{header}\na,r,b\n".replace(",", "," if name == "t.csv" else "\t")
    columns = read_triples(write(name, text.encode()))
    assert rows(columns) == [("a", "r", "b")] and columns.where(0).endswith("line 2")


def test_other_columns_are_ignored_and_named(write):
    for name, mark in (("t.csv", ","), ("t.tsv", "\t")):
        lines = (("head", "weight", "relation", "tail"), ("a", "0.5", "r", "b"))
        columns = read_triples(write(name, "".join(mark.join(line) + "\n" for line in lines).encode()))
        assert rows(columns) == [("a", "r", "b")]
        assert columns.notices == (f"{columns.source}: column weight is ignored",)


def test_comments_at_the_top_are_skipped_but_a_name_may_begin_with_a_hash(write):
    for name, mark in (("t.csv", ","), ("t.tsv", "\t")):
        text = "# who, what, whom\n#by hand\n#a,r,b\nb,r,a\n".replace(",", mark)
        columns = read_triples(write(name, text.encode()))
        assert rows(columns) == [("#a", "r", "b"), ("b", "r", "a")] and columns.where(0).endswith("line 3")
        assert [notice.partition(": ")[2] for notice in columns.notices] == [
            "1 line of three columns at the top read as comments, because of '#' or '%'"
        ]


def test_only_differing_characters_are_escaped_in_names_that_look_the_same():
    assert "'Köln' and 'K\\u200böln'" in lookalikes(["Köln", "K\u200böln"], "entities")[0]
    assert "'plain' and 'plain '" in lookalikes(["plain ", "plain"], "entities")[0]
    assert "'plain' and ' plain'" in lookalikes([" plain", "plain"], "entities")[0]
    assert "'caf\\xe9' and 'cafe\\u0301'" in lookalikes(["caf\u00e9", "cafe\u0301"], "entities")[0]


def test_a_missing_value_of_pandas_is_refused_too():
    table = pd.DataFrame(
        {"head": pd.array(["a", None], dtype="string"), "relation": ["r", "r"], "tail": ["b", "c"]}
    )
    with pytest.raises(DataError, match="row 2: the head is missing"):
        triples_from_table(table)


def test_whole_floats_of_a_table_are_read_as_integers():
    """pandas converts a column of integers with a missing value to floats."""
    table = pd.DataFrame({"head": [1.0, 2.0], "relation": [0, 0], "tail": [2, 3]})
    columns = triples_from_table(table)
    assert [list(part) for part in (columns.head, columns.tail)] == [["1", "2"], ["2", "3"]]
    half = triples_from_table(table.assign(head=[1.0, 2.5]))
    assert list(half.head) == ["1.0", "2.5"]


def test_an_entity_that_is_head_and_tail_has_one_name():
    columns = triples_from_table([(1.0, "r", 2.0), (2.0, "r", "x")])
    assert list(columns.head) == ["1.0", "2.0"] and list(columns.tail) == ["2.0", "x"]


@pytest.mark.parametrize(
    "header",
    [
        ("tail", "head", "rel"),
        ("t", "h", "r"),
        ("target", "source", "type"),
        ("Object", "subject", "relation"),
        ("to", "from", "kind"),
    ],
)
def test_columns_of_a_frame_are_read_by_their_names(header):
    columns = triples_from_table(pd.DataFrame([("b", "a", "r")], columns=header))
    assert (columns.head[0], columns.relation[0], columns.tail[0]) == ("a", "r", "b")
    assert not columns.notices


def test_unknown_column_names_give_a_notice():
    columns = triples_from_table(pd.DataFrame([("a", "r", "b")], columns=["x", "y", "z"]), "kg")
    assert columns.notices == ("kg: columns x, y, z are read as head, relation, tail",)
    assert not triples_from_table(pd.DataFrame([("a", "r", "b")])).notices


def test_numbers_in_the_place_of_relations_give_a_notice_or_are_refused():
    rows = [("a", "b", 1), ("b", "c", 2)]
    columns = triples_from_table(pd.DataFrame(rows, columns=["source", "target", "weight"]), "kg")
    assert columns.notices == ("kg: numbers of column 'weight' are read as relations",)
    frame = pd.DataFrame(rows, columns=["source", "target", "weight"]).astype({"weight": float})
    with pytest.raises(DataError, match=r"'weight' has numbers with decimals, .*\n.*LinkDataModule"):
        triples_from_table(frame, "kg")


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
@pytest.mark.parametrize("content", [b"PAR1\x15\x04", b"PK\x03\x04\x14"])
def test_parquet_and_zip_files_are_refused(name, content):
    with pytest.raises(DataError, match="write it as .csv, or give a DataFrame"):
        parse_triples(content, name, is_csv=name.endswith("csv"))


@pytest.mark.fault(
    "a file is packed in a way that is not read (bzip2, xz, zstd, tar)",
    "refused; the message names the format and the remedy",
)
@pytest.mark.parametrize(
    ("content", "packer"),
    [
        (bz2.compress(GOOD), "bzip2"),
        (lzma.compress(GOOD), "xz"),
        (b"\x28\xb5\x2f\xfd\x04\x00" + GOOD, "zstd"),
        (gzip.compress(GOOD), "gzip twice, or its name does not end in .gz"),
        (b"a.tsv" + bytes(252) + b"ustar\x00", "tar"),
    ],
    ids=["bzip2", "xz", "zstd", "gzip", "tar"],  # gzip's bytes hold the time
)
def test_packed_files_are_named(content, packer):
    with pytest.raises(
        DataError, match=f"t.tsv: packed with {packer}; unpack it, or pack the text with gzip"
    ):
        parse_triples(content, "t.tsv", is_csv=False)
    parse_triples(b"BZhang\tknows\tb\n", "t.tsv", is_csv=False)
    parse_triples(b"a" * 257 + b"ustaritz\tknows\tb\n", "t.tsv", is_csv=False)


def test_columns_in_another_order_give_a_notice():
    pairs = [(f"e{i}", f"e{(i + 1) % 30}") for i in range(30)]
    with pytest.warns(
        GraphzooDataWarning, match="30 of 30 relations are also entities: the columns must be head"
    ):
        from_triples([(h, t, "near") for h, t in pairs] + [(t, h, "far") for h, t in pairs])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_triples([(h, "near", t) for h, t in pairs])


def test_tensors_of_one_number_are_names():
    graph = from_triples([*torch.tensor([[0, 0, 1], [1, 0, 12]])])
    assert graph.entities == ("0", "1", "12") and graph.relations == ("0",)
    graph = from_triples(zip(np.array([2, 3]), ["r", "r"], np.array([3.0, 4.0]), strict=True))
    assert graph.entities == ("2", "3", "4")
