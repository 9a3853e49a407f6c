"""Folders of tests mirror the package, and test files share code through helpers only."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "graphzoo"


def test_every_folder_of_tests_is_a_folder_of_the_package():
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strange = {str(folder) for folder in folders if not (PACKAGE / folder / "__init__.py").exists()}
    assert strange == {"bench"}  # tests of the repository's benchmarks


def test_no_test_file_imports_another():
    """pytest imports them by path: whether one finds another by name depends on where pytest starts."""
    taken = re.compile(r"^\s*(?:from|import) (?:tests\.|conftest\b|(?:\w+\.)*test_\w+)", re.MULTILINE)
    found = {path.name for path in TESTS.rglob("*.py") if taken.search(path.read_text(encoding="utf-8"))}
    assert not found, "what they share belongs to tests/helpers"
