"""docs/reliability.md lists the faults that tests show, and no others."""

from pathlib import Path

import pytest
from fault_table import BEGIN, END, PAGE, ROOT, page_with, rows_of, table


def test_the_page_lists_the_faults_of_the_tests(request):
    """Needs the marks of all tests, so it is skipped if only some are collected."""
    session = request.session
    here = {Path(item.path) for item in session.items}
    options = request.config.option
    # Tests left out by `-k` or another `-m` would be missing rows.
    whole = {*(ROOT / "tests").rglob("test_*.py")} <= here and not options.keyword
    if not whole or _asked_marks(request.config):
        pytest.skip("a part of the tests: python -m tests.fault_table --check collects them all")
    text = PAGE.read_text(encoding="utf-8")
    assert page_with(rows_of(session.items), text) == text, "run: python -m tests.fault_table"


def _asked_marks(config):
    """Whether `-m` is given, other than the default `not network`."""
    return config.option.markexpr not in ("", "not network")


class Item:
    """Stand-in for a collected test, with the attributes that the table needs."""

    def __init__(self, nodeid, *marks, line=0):
        self.nodeid = nodeid
        self.location = (nodeid.partition("::")[0], line, nodeid)
        self.marks = marks

    def iter_markers(self, name):
        return iter([getattr(pytest.mark, name)(*texts).mark for texts in self.marks])


def test_rows_are_ordered_by_file_and_one_fault_is_one_row():
    items = [
        Item("tests/tasks/test_b.py::test_c", ("killed", "resumed")),
        # A long test is collected before the ones above it in the file.
        Item("tests/cli/test_a.py::test_b[z]", ("cut short", "refused"), line=8),
        Item("tests/cli/test_a.py::test_b[a]", ("too long", "refused"), line=8),
        Item("tests/cli/test_a.py::test_a[x]", ("no file", "named"), line=4),
        Item("tests/cli/test_a.py::test_a[y]", ("no file", "named"), line=4),
        Item("tests/cli/test_a.py::test_d"),
    ]
    rows = rows_of(items)
    assert rows == [
        ("no file", "named", "tests/cli/test_a.py::test_a"),
        ("too long", "refused", "tests/cli/test_a.py::test_b[a]"),
        ("cut short", "refused", "tests/cli/test_a.py::test_b[z]"),
        ("killed", "resumed", "tests/tasks/test_b.py::test_c"),
    ]
    written = page_with(rows, f"# Page\n{BEGIN}\nold\n{END}\nafter\n")
    assert written == f"# Page\n{BEGIN}\n{table(rows)}\n{END}\nafter\n"
    assert "4 faults." in written and "- **killed**: resumed" in written
    assert rows_of(items[::-1]) == rows, "the order of collection does not matter"


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ([("no file", "named"), ("no file", "named")], "named already by test_0"),
        ([("no file", "named"), ("no file", "guessed")], "named already by test_0"),
        ([("no file",)], "two texts"),
        ([("a | b", "c")], "two texts"),
        ([("a\nb", "c")], "two texts"),
    ],
)
def test_wrong_marks_are_refused(marks, message):
    with pytest.raises(ValueError, match=message):
        rows_of([Item(f"test_{index}", texts) for index, texts in enumerate(marks)])


def test_a_page_without_its_comments_is_refused():
    with pytest.raises(ValueError, match="lost its marks"):
        page_with([], "# Page\n")
