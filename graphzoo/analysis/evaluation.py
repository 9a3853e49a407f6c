"""Metrics and tables of an evaluated split, and their folder in a run directory."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from graphzoo.errors import UsageError
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.regular_files import read_regular

if TYPE_CHECKING:
    from pandas import DataFrame


FORMAT = 1
INDEX = "index.json"

Kind = Literal["table", "bars", "histogram", "curve", "matrix", "scatter"]

_TEXTS = ("name", "title", "kind", "x", "label")  # of a table in the index
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_TYPES = {"i": "int64", "u": "int64", "f": "float64", "b": "bool"}
_READ: dict[str, Callable[[str], Any]] = {
    "int64": int,
    "float64": lambda text: float(text or "nan"),
    "bool": {"True": True, "False": False}.__getitem__,
    "str": str,
}
_ANEW = "Write it again: graphzoo test --ckpt_path RUN --run_dir NEW"


@dataclass(frozen=True)
class Table:
    """Rows of data, and the columns that a picture of them shows.

    The kind of a table says what its columns mean:

    - "table": rows to read, without a picture
    - "bars": a row is a group of bars; `x` is its name, each column of `y` a height, `label` its series
    - "histogram": a row is a bin from the column "from" to the column "to"; columns of `y` are counts
    - "curve": each column of `y` is a line over `x`
    - "matrix": a row is a cell in row `x` and column `y[0]` of the matrix; `label` is its value
    - "scatter": a row is a point (`x`, `y[0]`); `label` is its colour

    Raises:
        ValueError: if the name or kind is not allowed, or the data do not have one of the columns.
    """

    name: str  # name of the file: a-z, 0-9, "-" and "_", a letter first
    title: str  # heading of the table
    kind: Kind
    data: DataFrame = field(repr=False)
    x: str = ""
    y: tuple[str, ...] = ()
    label: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a table's name is made of a-z, 0-9, '-' and '_', got {self.name!r}")
        if self.kind not in get_args(Kind):
            raise ValueError(f"a table's kind is one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        missing = [name for name in (self.x, *self.y, self.label) if name and name not in self.data.columns]
        if missing:
            raise ValueError(f"table {self.name!r} has no column {', '.join(missing)}")

    @classmethod
    def of(cls, name: str, title: str, kind: Kind, data: Any, **columns: Any) -> Table:
        """A table from `pandas.DataFrame(data)`; `columns` may be `x`, `y` and `label`."""
        import pandas

        return cls(name, title, kind, pandas.DataFrame(data), **columns)

    def shown(self) -> DataFrame:
        """The rows for reading: texts of a column `<name>_label` replace the names in the column `<name>`.

        If several names have the same text, the name is added in parentheses.
        """
        data = self.data.copy()
        for name in [name for name in data.columns if f"{name}_label" in data.columns]:
            names, labels = data[name], data.pop(f"{name}_label")
            texts = labels.where(labels != "", names)
            shared = names.groupby(texts).transform("nunique") > 1
            data[name] = texts.where(~shared | (texts == names), texts + " (" + names + ")")
        return data


@dataclass(frozen=True)
class Evaluation:
    """The result of evaluating a model on a split."""

    split: str  # "test", or another split
    figures: Mapping[str, float]  # metrics by their logged names, such as `test/mrr`
    tables: tuple[Table, ...] = ()  # see `triple_tables`, `node_tables` and `link_tables`

    def table(self, name: str) -> Table | None:
        """The table of this name, or None if there is none."""
        return next((table for table in self.tables if table.name == name), None)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write index.json and a CSV file per table to a folder; an earlier evaluation there is replaced.

        The new folder is written beside the old one and then renamed, so that it is never incomplete.

        Args:
            directory: The folder, usually RUN/evaluation/<split>.

        Raises:
            UsageError: if the folder exists and is not an evaluation.
        """
        directory = Path(directory).absolute()
        if directory.exists() and not (directory / INDEX).is_file():
            raise UsageError(
                f"{directory} exists and is not an evaluation: it has no {INDEX}\n"
                "Move it away or choose another folder"
            )
        directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}.part")
        fresh.mkdir()
        try:
            self._write(fresh)
            old = fresh.with_suffix(".old")
            if directory.exists():
                directory.rename(old)
            try:
                fresh.rename(directory)
            except BaseException:
                if old.exists():
                    old.rename(directory)
                raise
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def _write(self, directory: Path) -> None:
        described = []
        for table in self.tables:
            # Quotes around all texts: a name may contain a line break.
            written = table.data.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
            text = written.encode("utf-8")
            (directory / f"{table.name}.csv").write_bytes(text)
            described.append(
                {
                    **{name: getattr(table, name) for name in _TEXTS},
                    "y": list(table.y),
                    # dtype of each column for reading
                    "columns": {
                        str(name): _TYPES.get(column.dtype.kind, "str") for name, column in table.data.items()
                    },
                    "rows": len(table.data),
                    "sha256": hashlib.sha256(text).hexdigest(),
                }
            )
        content = {
            "format": FORMAT,
            "split": self.split,
            "figures": {name: float(v) if math.isfinite(v) else None for name, v in self.figures.items()},
            "tables": described,
        }
        index = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        (directory / INDEX).write_text(index + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: str | os.PathLike[str], *, damaged: list[str] | None = None) -> Evaluation:
        """Read an evaluation that `save` wrote.

        Args:
            directory: Its folder.
            damaged: If given, damaged tables are left out, and a message about each is added to this list.

        Raises:
            UsageError: if a file is missing or damaged; the message names it.
        """
        directory = Path(directory)
        path = directory / INDEX
        if not path.is_file():
            raise UsageError(f"{directory} is not an evaluation: {INDEX} is missing\n{_ANEW}")
        try:
            content = read_json(path)
            if content["format"] > FORMAT:
                raise UsageError(
                    f"{path} has format {content['format']}, but this version of graphzoo reads formats up "
                    f"to {FORMAT}: install a newer graphzoo"
                )
            figures = {
                str(name): math.nan if value is None else float(value)
                for name, value in content["figures"].items()
            }
            tables = []
            for described in content["tables"]:
                try:
                    tables.append(_read_table(directory, described))
                except UsageError as error:
                    if damaged is None:
                        raise
                    damaged.append(str(error))
            return cls(str(content["split"]), figures, tuple(tables))
        except UsageError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise_if_not_the_file(error, path)
            raise _damaged(path, error) from error


def _read_table(directory: Path, described: dict[str, Any]) -> Table:
    # Not read by pandas: entities may be called "NA", and floats must be exactly those that were written.
    import pandas

    name = described["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of a table")
    path = directory / f"{name}.csv"
    try:
        data_bytes = read_regular(path)
        if hashlib.sha256(data_bytes).hexdigest() != described["sha256"]:
            raise ValueError(f"its sha256 differs from that in {INDEX}")
        types: dict[str, str] = described["columns"]
        header, *rows = csv.reader(io.StringIO(data_bytes.decode("utf-8"), newline=""))
        if header != list(types) or len(rows) != described["rows"]:
            raise ValueError(f"its rows and columns differ from those in {INDEX}")
        columns = zip(*rows, strict=True) if rows else [()] * len(header)
        data = pandas.DataFrame(
            {
                column: pandas.Series([_READ[kind](text) for text in texts], dtype=kind)
                for (column, kind), texts in zip(types.items(), columns, strict=True)
            }
        )
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise_if_not_the_file(error, path)
        raise _damaged(path, error) from error
    texts: dict[str, Any] = {text: str(described[text]) for text in _TEXTS}
    return Table(**texts, data=data, y=tuple(map(str, described["y"])))


def _damaged(path: Path, error: Exception) -> UsageError:
    return UsageError(f"{path} is damaged ({type(error).__name__}: {error})\n{_ANEW}")
