"""Run notebooks without Jupyter: all cells in order, with the output of the last expression of each."""

import ast
import contextlib
import io
import json
from pathlib import Path


def read_notebook(path):
    """The notebook's content.

    Args:
        path: An .ipynb file of format 4.
    """
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    return content


def sources(notebook):
    """The code of the cells in order."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cells(codes):
    """For each cell the printed text, and its last expression as MIME types and texts or None."""
    names = {"__name__": "__main__"}
    results = []
    for number, code in enumerate(codes, 1):
        body = ast.parse(code, filename=f"cell {number}").body
        last = body.pop().value if body and isinstance(body[-1], ast.Expr) else None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
            value = eval(compile(ast.Expression(last), f"cell {number}", "eval"), names) if last else None
        results.append((printed.getvalue(), None if value is None else shown(value)))
    return results


def shown(value):
    """A value as a notebook shows it: MIME types and texts."""
    data = {"text/plain": repr(value)}
    if hasattr(value, "_repr_html_") and (html := value._repr_html_()):
        data["text/html"] = html
    return data


def with_outputs(notebook, results):
    """The notebook with the outputs of its cells."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, (printed, data)) in enumerate(zip(cells, results, strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, []
        if printed:
            text = printed.splitlines(keepends=True)
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": text})
        if data is not None:
            lines = {kind: text.splitlines(keepends=True) for kind, text in data.items()}
            result = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
            cell["outputs"].append({**result, "data": lines})
    return notebook
