"""The notebooks of the docs run, and their outputs look like the stored ones."""

import os
import re
import sys
from pathlib import Path

import pytest
from helpers.notebooks import read_notebook, run_cells, sources, with_outputs

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
VARYING = re.compile(r" *-?\d+\.\d* *|\b[0-9a-f]{12}\b|(?<=Model\()\w+")


def outputs(notebook):
    """For each code cell the kinds of its outputs, and the first line of its result.

    In a table this line names the columns. What may differ between machines is replaced by `#`: decimal
    numbers, fingerprints, and the encoder of a model, since the best one of a comparison depends on time.
    """
    found = []
    for cell in (cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        parts = [output.get("data", {output["output_type"]: ""}) for output in cell["outputs"]]
        first = [part["text/plain"][0] for part in parts if "text/plain" in part]
        shown = [" ".join(VARYING.sub("#", line).split()) for line in first]
        found.append((sorted(kind for part in parts for kind in part), shown))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_outputs_look_like_the_stored_ones(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = read_notebook(path)
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
