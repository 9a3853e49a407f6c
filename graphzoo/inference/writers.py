"""Writes tables to a file piece by piece; the file appears only when it is complete."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

from graphzoo.datasets.files.text import is_missing
from graphzoo.errors import UsageError, suggestion
from graphzoo.system.files import write_atomically
from graphzoo.system.progress import progress
from graphzoo.system.shown import visible

if TYPE_CHECKING:
    import pandas as pd


STANDARD_OUTPUT = "-"
# Excel, LibreOffice and Google Sheets read text as a formula if it begins with one of these.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl"}
# In a tab-separated file, a field with one of these needs quotes.
_BREAKS = re.compile(r"[\t\r\n]")
_RETURN = re.compile(r"\r")


def check_output(path: str, *, overwrite: bool = False, inputs: Sequence[Path] = ()) -> None:
    """Check that a path can be written, before hours of work are spent.

    Args:
        path: A file, or "-" for tab-separated lines on standard output.
        overwrite: Whether the file may exist.
        inputs: Files that the command reads; `path` must not be one of them, not even by another name.

    Raises:
        UsageError: if it cannot be written.
    """
    if path == STANDARD_OUTPUT:
        return
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        hint = suggestion(target.suffix, _FORMATS)
        raise UsageError(f"--out {path}: the ending must be one of {', '.join(_FORMATS)}. {hint}".rstrip())
    if _FORMATS[target.suffix.lower()] == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise UsageError(
                f"--out {path}: Parquet needs pyarrow: pip install pyarrow, or take .csv or .jsonl"
            ) from error
    if target.is_dir():
        raise UsageError(f"--out {path} is a folder; give a file")
    if target.exists() and any(_same_file(target, source) for source in inputs):
        raise UsageError(f"--out {path} is an input of this command and would be lost; give another name")
    if target.exists() and not overwrite:
        raise UsageError(f"--out {path} exists already; give another name, or --overwrite to replace it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--out {path}: cannot create the folder {target.parent}: {error.strerror}"
        ) from error
    folder = _followed(path).parent
    if folder.exists() and not os.access(folder, os.W_OK):
        raise UsageError(f"--out {path}: the folder {folder} is not writable")


def _followed(path: str) -> Path:
    """The file that a path leads to, so that a link stays one and its file is replaced."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # `other` is the name of a data set
        return False


def write_tables(
    tables: Iterable[pd.DataFrame], path: str, *, spreadsheet: bool = False, counts: bool = True
) -> int:
    """Write at least one table with the same columns, one below the other; only one is in memory at a time.

    A tab-separated file has names unchanged, as in files of triples. It has quotes only for a spreadsheet, or
    if some text holds a tab or a line break.

    Args:
        tables: The tables.
        path: A file, or "-" for standard output.
        spreadsheet: Whether the file is for a spreadsheet. Text that it would run as a formula gets a ' in
            front.
        counts: Whether a bar counts the rows; False if the tables show their own progress.

    Returns:
        The number of rows.
    """
    if path == STANDARD_OUTPUT:  # may be a terminal
        return _write_text((_changed(table, visible) for table in tables), sys.stdout, "tsv")
    if spreadsheet:
        tables = (_changed(table, _no_formula) for table in tables)
    if not counts:
        return _write_file(tables, path, quotes=spreadsheet)
    with progress("answering") as advance:
        return _write_file(_counted(tables, advance), path, quotes=spreadsheet)


def _changed(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with `change` applied to column names and texts, but not to numbers and missing values."""
    shown = table.rename(columns=lambda name: change(str(name)))
    for place, kind in enumerate(table.dtypes):
        if _holds_text(kind):
            values = [change(value) if isinstance(value, str) else value for value in table.iloc[:, place]]
            shown.isetitem(place, values)
    return shown


def _holds_text(kind: Any) -> bool:
    return kind.kind == "O" or str(kind) in ("string", "str", "category")


def _no_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _counted(tables: Iterable[pd.DataFrame], advance: Callable[[float], None]) -> Iterator[pd.DataFrame]:
    for table in tables:
        yield table
        advance(len(table))


def _write_file(tables: Iterable[pd.DataFrame], path: str, *, quotes: bool) -> int:
    kind = _FORMATS[Path(path).suffix.lower()]
    counts = []

    def write(file: BinaryIO) -> None:
        if kind == "parquet":
            counts.append(_write_parquet(tables, file))
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        counts.append(_write_text(tables, text, kind, quotes=quotes))
        text.detach()  # flushes, and leaves the file open

    write_atomically(_followed(path), write)
    return counts[0]


def _write_text(tables: Iterable[pd.DataFrame], file: TextIO, kind: str, *, quotes: bool = False) -> int:
    count, is_plain = 0, kind == "tsv" and not quotes
    for number, table in enumerate(tables):
        if kind == "jsonl":
            file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in _plain_rows(table))
        else:
            if is_plain and _holds(table, _BREAKS):
                is_plain = False  # quotes apply to the whole file
                if number:
                    _quote(file)
            table.to_csv(
                file,
                sep="\t" if kind == "tsv" else ",",
                index=False,
                header=not number,
                lineterminator="\n",
                quoting=csv.QUOTE_NONE if is_plain else _quoting(table),
            )
        count += len(table)
    return count


def _quote(file: TextIO) -> None:
    """Rewrite tab-separated rows with quotes where needed; the file position is then at the end."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as quoted:
        file.seek(0)
        # no field so far has a tab or a line break
        rows = (line.removesuffix("\n").split("\t") for line in file)
        csv.writer(quoted, delimiter="\t", lineterminator="\n").writerows(rows)
        quoted.seek(0)
        file.seek(0)
        file.truncate()
        shutil.copyfileobj(quoted, file)


def _quoting(table: pd.DataFrame) -> Literal[0, 2]:
    # where it is needed, which for pandas is not at \r, though it ends a line
    return csv.QUOTE_NONNUMERIC if _holds(table, _RETURN) else csv.QUOTE_MINIMAL


def _holds(table: pd.DataFrame, pattern: re.Pattern[str]) -> bool:
    """Whether a text or the name of a column has a match."""
    texts = (table.iloc[:, place] for place, kind in enumerate(table.dtypes) if _holds_text(kind))
    cells = (value for column in (table.columns, *texts) for value in column if isinstance(value, str))
    return any(map(pattern.search, cells))


def _plain_rows(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows as plain Python values: float32 with its shortest exact digits, None for missing values."""
    narrow = table.select_dtypes("float32").columns
    plain = table.astype(dict.fromkeys(narrow, str)).astype(dict.fromkeys(narrow, float))
    for row in plain.to_dict("records"):
        yield {str(name): None if _is_no_number(value) else value for name, value in row.items()}


def _is_no_number(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, float) and math.isinf(value))  # JSON has no infinity


def _write_parquet(tables: Iterable[pd.DataFrame], file: BinaryIO) -> int:
    import pyarrow
    import pyarrow.parquet

    writer: Any = None
    count = 0
    try:
        for table in tables:
            # The types of the first table apply to all; a later table that is empty must not change them.
            schema = None if writer is None else writer.schema
            if schema is None:
                # Before pandas 3, a column of names has no text type: if empty, it would get the type "null".
                inferred = pyarrow.Schema.from_pandas(table, preserve_index=False)
                schema = pyarrow.schema(
                    field.with_type(pyarrow.string()) if pyarrow.types.is_null(field.type) else field
                    for field in inferred
                )
                writer = pyarrow.parquet.ParquetWriter(file, schema)
            writer.write_table(pyarrow.Table.from_pandas(table, schema=schema, preserve_index=False))
            count += len(table)
    finally:
        if writer is not None:
            writer.close()
    return count
