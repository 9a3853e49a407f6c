"""Arrays and a description in one .npz file without pickle: how the data classes are kept on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from graphzoo.errors import DataError, reason
from graphzoo.system.files import check_growth, write_atomically
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.regular_files import open_regular

__all__ = ["check_fingerprint", "reading_arrays", "to_bytes", "to_text", "write_arrays"]

_Array = np.ndarray[Any, np.dtype[Any]]


def to_bytes(text: str) -> _Array:
    """The UTF-8 bytes of a text as an array."""
    return np.frombuffer(text.encode(), dtype=np.uint8)


def to_text(codes: _Array) -> str:
    """The text of `to_bytes`."""
    return codes.tobytes().decode()


def write_arrays(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, _Array]) -> None:
    """Write arrays and their description, replacing the file at once.

    Args:
        path: File to write.
        meta: Plain values for JSON, among them "format" and "fingerprint".
        arrays: Arrays by name; "meta" is taken.
    """
    content = {**arrays, "meta": to_bytes(json.dumps(meta, ensure_ascii=False))}

    def write(file: BinaryIO) -> None:
        np.savez(file, **content)  # type: ignore[arg-type]  # the stub takes **kwds for allow_pickle

    write_atomically(path, write)


@contextmanager
def reading_arrays(
    path: Path, file_format: int, *, what: str, written_by: str
) -> Iterator[tuple[dict[str, Any], dict[str, _Array]]]:
    """Give the description and arrays of `write_arrays`; a failure in the block becomes a `DataError`.

    Args:
        path: File to read.
        file_format: The format that the caller understands.
        what: What the file holds, for the message.
        written_by: What writes such a file, for the message.

    Raises:
        DataError: if the file is missing, damaged, of another format, or the block cannot use its content.
    """
    try:
        # opened here: numpy leaves a damaged file open
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as file:
            check_growth(path, path.stat().st_size, sum(part.file_size for part in file.zip.infolist()))
            meta = json.loads(to_text(file["meta"]))
            if meta["format"] != file_format:
                raise DataError(
                    f"{path}: format {meta['format']!r}, this version reads {file_format}; write it again"
                )
            arrays = {name: file[name] for name in file.files}
        yield meta, arrays
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: no such file; it is written by `save_artifacts` or `{written_by}`"
        ) from error
    except DataError as error:
        if str(path) in str(error):
            raise
        # the graph itself refuses its content, and does not know where that came from
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # damage in an archive, a header, a description: there is no end of kinds
        raise_if_not_the_file(error, path)
        raise DataError(f"{path}: not a readable {what} file ({reason(error)}); write it again") from error


def check_fingerprint(path: Path, found: str, written: str) -> None:
    """Refuse content that is not the one that was written.

    Raises:
        DataError: if the fingerprint of the content is not the one that the file names.
    """
    if found != written:
        raise DataError(
            f"{path}: content does not match its fingerprint; the file was changed, write it again"
        )
