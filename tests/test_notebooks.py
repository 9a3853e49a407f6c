"""The notebooks of the docs run, and their stored outputs are of the right kinds."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.notebooks import read_notebook, run_cells, sources, with_outputs

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def outputs(notebook):
    """Kinds of output of each code cell, without their texts."""
    return [
        sorted(kind for output in cell["outputs"] for kind in output.get("data", {output["output_type"]: ""}))
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_outputs_of_the_stored_kinds(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = read_notebook(path)
    if find_spec("nbclient") and find_spec("nbformat") and find_spec("ipykernel"):
        import nbformat
        from nbclient import NotebookClient

        book = nbformat.read(path, as_version=4)
        NotebookClient(book, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
        return
    found = with_outputs(read_notebook(path), run_cells(sources(kept)))
    assert outputs(found) == outputs(kept)
    assert all(cell["id"] for cell in kept["cells"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_contains_no_local_path(path):
    text = path.read_text(encoding="utf-8")
    for place in (os.path.expanduser("~"), "/tmp/", "/home/", sys.prefix, str(FOLDER.parents[1])):
        assert place not in text, place
    assert len(text) < 40_000


def test_a_cell_that_fails_fails_the_notebook():
    with pytest.raises(ZeroDivisionError):
        run_cells(["a = 1", "a / 0"])
    shown = [("1\n", None), ("", {"text/plain": "2"}), ("", None)]
    assert run_cells(["a = 1\nprint(a)", "a + 1", "b = a"]) == shown
