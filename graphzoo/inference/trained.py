"""What every trained model has, whatever it answers: its origin, its figures, its report, its export."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from html import escape
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from graphzoo.catalog.tasks import RANKING, inference_task
from graphzoo.errors import UsageError
from graphzoo.runs.results_file import is_tested, read_results
from graphzoo.system.files import write_text_atomically
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.paths import relative
from graphzoo.system.shown import visible

_FRAME_HEIGHT = 600
# Rows of a table that is handed on at a time.
_TABLE_ROWS = 100_000
T = TypeVar("T")


def table_parts(num_rows: int) -> list[slice]:
    """Rows that are handed on together; one part without rows if there are none."""
    return [slice(start, start + _TABLE_ROWS) for start in range(0, max(1, num_rows), _TABLE_ROWS)]


class Metrics(dict[str, float]):
    """Figures by name, such as "test/mrr"; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        return table_html("", [(name, f"{value:.4f}") for name, value in self.items()])


class Page:
    """A report that has been written, which a notebook shows.

    Args:
        path: The file.
        html: Its text.
    """

    def __init__(self, path: Path, html: str) -> None:
        self.path, self.html = path, html

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r})"

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def _repr_html_(self) -> str:
        # a page of its own inside the notebook, whose styles it must not change
        frame = f'style="width:100%;height:{_FRAME_HEIGHT}px;border:0"'
        return f'<iframe title="report" sandbox="allow-popups" {frame} srcdoc="{escape(self.html)}"></iframe>'


class TrainedModel:
    """A task with its weights that knows the run it comes from; `graphzoo.load` says which.

    Attributes:
        task: The task with its weights.
        checkpoint: File of the weights; None for a model that was not loaded.
        run_dir: The run directory, or the folder of an exported model; None for a file outside of one.
    """

    task: Any
    checkpoint: Path | None = None
    run_dir: Path | None = None
    _written: Mapping[str, Any] = MappingProxyType({})  # epoch and global_step of its checkpoint
    _last: tuple[Any, Any] = (None, None)  # of another graph than its own: what it is known by, what was made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.task.encoder).__name__}, {self.graph!r})"

    @property
    def graph(self) -> Any:
        """The graph that the model answers on."""
        raise NotImplementedError

    def is_tested_by(self, results: Mapping[str, Any]) -> bool:
        """Whether the figures of a results.json are of the weights that were loaded."""
        return is_tested(results, self._written)

    @property
    def metrics(self) -> Metrics:
        """Test figures of the weights as they were loaded, "test/mrr" and the like; empty if not tested.

        Raises:
            UsageError: if results.json is damaged.
        """
        path = self._results_file()
        if path is None:
            return Metrics()
        try:
            exported = path.name == "config.json"
            results = read_json(path).get("results", {}) if exported else read_results(path)
            evaluated = exported or self.is_tested_by(results)
            figures = {str(name): float(value) for name, value in results.get("metrics", {}).items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise_if_not_the_file(error, path)
            raise UsageError(f"{path} is damaged ({error})\nTest the run again: graphzoo test") from error
        return Metrics(figures if evaluated else {})

    def report(self, path: str | PathLike[str] | None = None, *, models: bool = True) -> Page:
        """Write the report of the run, one HTML file: results, curves, what the test showed.

        Args:
            path: The file, which is replaced if it is there; None: report.html in the run directory.
            models: Whether pictures of the model are drawn, which takes longer.

        Returns:
            The page; a notebook shows it.

        Raises:
            UsageError: for a model that comes from no run directory, and a path that cannot be written.
        """
        run = self.run_dir
        if run is None or not (run / "config.yaml").is_file():
            raise UsageError(
                "a report is made of a run directory, and this model was loaded from "
                f"{self.checkpoint or 'none'}\nLoad the run: graphzoo.load(RUN)"
            )
        # Named, not imported: the report asks models in its turn, and lies above them.
        report = import_module("graphzoo.report")
        groups = report.group_records(report.find_records([run]))
        html = report.to_html(report.build_report(groups, report.Options(models)))
        target = run / "report.html" if path is None else Path(path)
        if target.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"{target}: a page ends in .html; give {target}.html")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(target, html)
        except OSError as error:
            raise UsageError(f"cannot write {target}: {error.strerror}; give another path") from error
        return Page(target, html)

    def save(self, folder: str | PathLike[str], *, to: str = "safetensors", licence: str = "") -> Path:
        """Write the model into a new folder to share, as `graphzoo export` does.

        Weights that were changed since it was loaded are written as they are now, without the scores of the
        run, which are not theirs.

        Args:
            folder: Must not exist yet, or be empty.
            to: "safetensors", for `graphzoo.load`; "torch.export" or "onnx", a program without graphzoo.
            licence: Of the weights, for the model card.

        Returns:
            The folder.

        Raises:
            UsageError: if something lies there, or the model was not loaded from a file.
        """
        if self.checkpoint is None:
            raise UsageError("the model was not loaded from a file; train it with graphzoo.fit or load a run")
        from graphzoo.inference.export import export_run

        return export_run(self.checkpoint, folder, to=to, licence=licence, weights=self.task.state_dict())

    def __getstate__(self) -> dict[str, Any]:
        """A copy keeps nothing of another graph: its key may be the place of the original's."""
        return {**vars(self), "_last": (None, None)}

    def _kept(self, key: Any, make: Callable[[], T]) -> T:
        """What was made of a graph, kept until another one is asked about.

        Asking the same graph again must not encode it again; a file may hold another one by now.
        """
        last = self._last  # read once: another thread may ask about another graph meanwhile
        if last[0] != key:
            self._last = last = (key, make())
        made: T = last[1]
        return made

    def _results_file(self) -> Path | None:
        if self.run_dir is None:
            return None
        paths = [self.run_dir / name for name in ("results.json", "config.json")]
        return next((path for path in paths if path.is_file()), None)

    def _repr_html_(self) -> str:
        encoder, info = self.task.encoder, inference_task(self)
        count = sum(parameter.numel() for parameter in self.task.parameters())
        rows = [
            ("model", f"{type(encoder).__name__}, {count:,} parameters"),
            ("task", info.title),
            ("data", repr(self.graph)),
        ]
        try:
            figures: Mapping[str, float] = self.metrics
        except UsageError:
            figures = {}  # what is damaged is told where the figures are asked for
        names = {f"test/{name}": title for name, title in {**RANKING, **info.columns}.items()}
        rows += [
            (f"test {names[name]}", f"{100 * value:.2f}" if names[name].endswith("%") else f"{value:.4f}")
            for name, value in figures.items()
            if name in names
        ]
        if self.run_dir is not None:
            rows.append(("run", str(relative(self.run_dir))))
        return table_html(type(self).__name__, rows)


def table_html(caption: str, rows: list[tuple[str, str]]) -> str:
    """Names and values as a table for a notebook; nothing in them is taken for HTML."""
    head = f"<caption><b>{escape(visible(caption))}</b></caption>" if caption else ""
    body = "".join(
        f'<tr><th style="text-align:left">{escape(visible(name))}</th>'
        f'<td style="text-align:left">{escape(visible(value))}</td></tr>'
        for name, value in rows
    )
    return f"<table>{head}<tbody>{body}</tbody></table>"
