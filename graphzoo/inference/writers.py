"""Tables to a file, piece by piece: the file appears whole or not at all."""

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
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from graphzoo.datasets.files.text import is_missing
from graphzoo.errors import UsageError, suggestion
from graphzoo.system.files import write_atomically
from graphzoo.system.progress import progress
from graphzoo.system.shown import visible

if TYPE_CHECKING:
    import pandas as pd


STANDARD_OUTPUT = "-"
# What Excel, LibreOffice and Google take for the begin of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl"}
# What a field between tabs cannot hold without quotes around it.
_BREAKS = re.compile(r"[\t\r\n]")


def check_output(path: str, *, overwrite: bool = False, inputs: Sequence[Path] = ()) -> None:
    """Refuse what could not be written, before hours of work are spent on it.

    The path is a file, or "-" for tab-separated lines on standard output. Of the `inputs`, which are read, it
    may be none, by whatever name.
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
        raise UsageError(f"--out {path}: is a folder; give a file")
    if target.exists() and any(_same_file(target, source) for source in inputs):
        raise UsageError(f"--out {path}: is read by this command and would be lost; give another name")
    if target.exists() and not overwrite:
        raise UsageError(f"--out {path}: exists already; give --overwrite to replace it, or another name")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {path}: {target.parent} cannot be made ({error.strerror})") from error
    if not os.access(target.parent, os.W_OK):
        raise UsageError(f"--out {path}: {target.parent} is not writable")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # the other is not a file: a name of a data set
        return False


def write_tables(tables: Iterable[pd.DataFrame], path: str, *, spreadsheet: bool = False) -> int:
    """Write tables with the same columns, at least one, one below the other; their number of rows.

    Memory holds one at a time. For a spreadsheet, text that it would run as a formula gets a ' before it.
    Between tabs names stay letter for letter, as files of triples have them: quotes mean something only to a
    spreadsheet, and in a table where some text holds a tab or a line break.
    """
    if path == STANDARD_OUTPUT:  # a terminal, at once or behind a pipe
        return _write_text((_changed(table, visible) for table in tables), sys.stdout, "tsv")
    if spreadsheet:
        tables = (_changed(table, _no_formula) for table in tables)
    with progress("answering") as advance:
        return _write_file(_counted(tables, advance), path, quotes=spreadsheet)


def _changed(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The table with its names and texts changed; numbers and what is missing stay."""
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
        text.detach()  # writes what is left, and lets the file be

    write_atomically(Path(path), write)
    return counts[0]


def _write_text(tables: Iterable[pd.DataFrame], file: TextIO, kind: str, *, quotes: bool = False) -> int:
    count, is_plain = 0, kind == "tsv" and not quotes
    for number, table in enumerate(tables):
        if kind == "jsonl":
            file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in _plain_rows(table))
        else:
            if is_plain and _has_breaks(table):
                is_plain = False  # from the first row on: a file is quoted or it is not
                if number:
                    _quote(file)
            table.to_csv(
                file,
                sep="\t" if kind == "tsv" else ",",
                index=False,
                header=not number,
                lineterminator="\n",
                quoting=csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL,
            )
        count += len(table)
    return count


def _quote(file: TextIO) -> None:
    """Write rows between tabs anew, with quotes where they are needed; the file is left at its end."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as quoted:
        file.seek(0)
        # no field of these rows holds a tab or a break
        rows = (line.removesuffix("\n").split("\t") for line in file)
        csv.writer(quoted, delimiter="\t", lineterminator="\n").writerows(rows)
        quoted.seek(0)
        file.seek(0)
        file.truncate()
        shutil.copyfileobj(quoted, file)


def _has_breaks(table: pd.DataFrame) -> bool:
    texts = (table.iloc[:, place] for place, kind in enumerate(table.dtypes) if _holds_text(kind))
    cells = (value for column in (table.columns, *texts) for value in column if isinstance(value, str))
    return any(map(_BREAKS.search, cells))


def _plain_rows(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows in Python's types, a float32 with no more digits than tell it apart, None for what is missing."""
    narrow = table.select_dtypes("float32").columns
    plain = table.astype(dict.fromkeys(narrow, str)).astype(dict.fromkeys(narrow, float))
    for row in plain.to_dict("records"):
        yield {str(name): None if _is_no_number(value) else value for name, value in row.items()}


def _is_no_number(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, float) and math.isinf(value))  # JSON has neither


def _write_parquet(tables: Iterable[pd.DataFrame], file: BinaryIO) -> int:
    import pyarrow
    import pyarrow.parquet

    writer: Any = None
    count = 0
    try:
        for table in tables:
            # The first table's types hold for all: an empty or odd later one must not change them.
            schema = None if writer is None else writer.schema
            if schema is None:
                # before pandas 3 a column of names has no type of its own: an empty one would become "null"
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
