"""The base class of trained models: metrics, report and export."""

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
# Most rows of one table of `predict_batches`.
_TABLE_ROWS = 100_000
T = TypeVar("T")


def table_parts(num_rows: int) -> list[slice]:
    """The ranges of rows of successive tables; without rows, one empty range."""
    return [slice(start, start + _TABLE_ROWS) for start in range(0, max(1, num_rows), _TABLE_ROWS)]


class Metrics(dict[str, float]):
    """Values by name, such as "test/mrr"; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        return table_html("", [(name, f"{value:.4f}") for name, value in self.items()])


class Page:
    """A report that was written to a file; a notebook shows it.

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
        # an iframe, so that the styles of the page do not affect the notebook
        frame = f'style="width:100%;height:{_FRAME_HEIGHT}px;border:0"'
        return f'<iframe title="report" sandbox="allow-popups" {frame} srcdoc="{escape(self.html)}"></iframe>'


class TrainedModel:
    """A trained task and the run that it comes from; `graphzoo.load` returns a subclass.

    Attributes:
        task: The task with its weights.
        checkpoint: File of the weights; None for a model that was not loaded from one.
        run_dir: The run directory, or the folder of an exported model; None for any other file.
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
        """The graph that the model predicts on."""
        raise NotImplementedError

    def is_tested_by(self, results: Mapping[str, Any]) -> bool:
        """Whether the metrics in a results.json belong to the loaded weights."""
        return is_tested(results, self._written)

    @property
    def metrics(self) -> Metrics:
        """Test metrics of the weights as loaded, such as "test/mrr"; empty if these were not tested.

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
        """Write the report of the run as one HTML file: results, curves and findings of the test.

        Args:
            path: The file, which is replaced if it exists; None for report.html in the run directory.
            models: Whether to draw pictures of the model, which takes longer.

        Returns:
            The page; a notebook shows it.

        Raises:
            UsageError: if the model does not come from a run directory, or the path cannot be written.
        """
        run = self.run_dir
        if run is None or not (run / "config.yaml").is_file():
            raise UsageError(
                "a report needs a run directory, and this model comes from "
                f"{self.checkpoint or 'no file'}\nLoad the run: graphzoo.load(RUN)"
            )
        # Imported by name: graphzoo.report imports this package, and not the other way round.
        report = import_module("graphzoo.report")
        groups = report.group_records(report.find_records([run]))
        html = report.to_html(report.build_report(groups, report.Options(models)))
        target = run / "report.html" if path is None else Path(path)
        if target.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"{target}: the name of a report must end in .html; give {target}.html")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(target, html)
        except OSError as error:
            raise UsageError(f"cannot write {target}: {error.strerror}; give another path") from error
        return Page(target, html)

    def save(self, folder: str | PathLike[str], *, to: str = "safetensors", licence: str = "") -> Path:
        """Write the model to a new folder that can be shared, as `graphzoo export` does.

        If the weights were changed after loading, their present values are written, without the run's scores.

        Args:
            folder: A folder that does not exist yet or is empty.
            to: "safetensors" for `graphzoo.load`; "torch.export" or "onnx" for a program that does not need
                graphzoo.
            licence: Licence of the weights, for the model card.

        Returns:
            The folder.

        Raises:
            UsageError: if the folder has content, or the model was not loaded from a file.
        """
        if self.checkpoint is None:
            raise UsageError("the model was not loaded from a file; train it with graphzoo.fit or load a run")
        from graphzoo.inference.export import export_run

        return export_run(self.checkpoint, folder, to=to, licence=licence, weights=self.task.state_dict())

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the kept graph: its key may hold an address that is not valid for a copy."""
        return {**vars(self), "_last": (None, None)}

    def _kept(self, key: Any, make: Callable[[], T]) -> T:
        """The result of `make`, kept until the next call with another key.

        So the same graph is not encoded twice. The key has to identify its content: a file may change.
        """
        last = self._last  # read once: another thread may replace it meanwhile
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
            figures = {}  # `metrics` itself reports a damaged file
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
    """Names and values as an HTML table for a notebook; their text is escaped."""
    head = f"<caption><b>{escape(visible(caption))}</b></caption>" if caption else ""
    body = "".join(
        f'<tr><th style="text-align:left">{escape(visible(name))}</th>'
        f'<td style="text-align:left">{escape(visible(value))}</td></tr>'
        for name, value in rows
    )
    return f"<table>{head}<tbody>{body}</tbody></table>"
