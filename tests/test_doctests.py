"""The examples in docstrings print what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

import graphzoo

PACKAGE = Path(graphzoo.__file__).parent
MODULES = sorted(
    ".".join(("graphzoo", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    names = vars(module) | {"torch": importlib.import_module("torch")}
    finder = doctest.DocTestFinder()
    examples = [test for test in finder.find(module, name, globs=names) if test.examples]
    assert examples
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in examples:
        assert runner.run(test).failed == 0, test.name
