"""Unknown names get useful neighbours, quickly enough for a large graph."""

import pytest

from graphzoo.errors import UsageError
from graphzoo.inference.names import Vocabulary


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
