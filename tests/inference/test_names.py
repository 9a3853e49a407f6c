"""Unknown names get useful neighbours, quickly enough for a large graph."""

import pytest

from graphzoo.errors import UsageError
from graphzoo.inference.names import NodeNames, Vocabulary


def test_names_come_before_labels():
    entities = Vocabulary("entity", ["a", "b", "c"], {"a": "b", "b": "x", "c": "y"})
    assert entities.find("b") == 1
    assert entities.find("y") == 2
    assert entities.find("x") == 1
    assert entities.find_all(["c", "x", "a"]) == [2, 1, 0]
    assert entities.get("z") is None


def test_neighbours_among_many_names():
    names = [f"/m/{i:06x}" for i in range(50_000)] + ["Barack_Obama", "Barack_Obama_Sr.", "Michelle_Obama"]
    entities = Vocabulary("entity", names)
    with pytest.raises(UsageError, match="unknown entity 'barak obama'; nearest: 'Barack_Obama'"):
        entities.find("barak obama")
    assert all(name.startswith("/m/00") for name in entities.nearest("/m/00ff0g"))
    assert len(entities.nearest("/m/00ff0g")) == 3


def test_nothing_like_it():
    with pytest.raises(
        UsageError, match=r"unknown relation 'qqq'; none of 2 is like it \(they are 'likes', 'knows'"
    ):
        Vocabulary("relation", ["likes", "knows"]).find("qqq")


@pytest.mark.parametrize("header", ["node", "Name", "entity", "source", None])
def test_a_table_of_predictions_is_a_file_of_names(tmp_path, header):
    from graphzoo.inference.queries import read_names

    known = NodeNames(["a, b", "c", "source" if header is None else "d"], 3)
    plain, table = tmp_path / "names.txt", tmp_path / "labels.csv"
    plain.write_text(f"{header or 'source'}\nc\n")
    table.write_text(f'{header or "source"},label\n"a, b",x\nc,y\n')
    first = [] if header else ["source"]
    assert read_names(plain, known) == [*first, "c"]
    assert read_names(table, known) == [*first, "a, b", "c"]


def test_names_alone_may_hold_commas_in_a_csv_file_too(tmp_path):
    from graphzoo.inference.queries import read_names

    plain = tmp_path / "names.csv"
    plain.write_text("Doe, John\nDoe\n")
    assert read_names(plain, NodeNames(["Doe", "Doe, John"], 2)) == ["Doe, John", "Doe"]
