"""Arrays and a description in one .npz file without pickle: how the data classes are kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np

from graphzoo.errors import DataError, reason
from graphzoo.system.files import check_growth, write_atomically
from graphzoo.system.memory import raise_if_not_the_file
from graphzoo.system.regular_files import open_regular

_FORMAT = 1
_Array = np.ndarray[Any, np.dtype[Any]]
Content = tuple[dict[str, Any], dict[str, _Array]]
"""Plain values for JSON, and arrays, by name."""


class StoredGraph:
    """A frozen data class with a fingerprint that is kept in a file."""

    _what: ClassVar[str]
    fingerprint: str

    def __post_init__(self) -> None:
        self._check()
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", fingerprint_of(self._parts()))

    def save(self, path: str | Path) -> None:
        """Write everything into one .npz file without pickle, replacing it at once."""
        self.write(Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            DataError: if the file is missing, damaged, of another format, or does not match its fingerprint.
        """
        return cls.read(Path(path))[0]

    def write(self, path: Path, notices: Sequence[str] = ()) -> None:
        """`save`, with what was counted while the graph was parsed."""
        meta, arrays = self._content()
        facts = {"format": _FORMAT, "fingerprint": self.fingerprint, "notices": list(notices)}
        write_arrays(path, facts | meta, arrays)

    @classmethod
    def read(cls, path: Path) -> tuple[Self, list[str]]:
        """What `write` wrote; see `load`."""
        with reading_arrays(path, _FORMAT, what=cls._what, written_by=f"{cls.__name__}.save") as content:
            graph = cls._from_content(*content)
            check_fingerprint(path, graph.fingerprint, content[0]["fingerprint"])
            # graphs of a run that was made earlier have none
            return graph, list(content[0].get("notices", []))

    def _check(self) -> None:
        """Refuse parts that do not fit together."""

    def _parts(self) -> list[_Array]:
        """What enters the fingerprint."""
        raise NotImplementedError

    def _content(self) -> Content:
        raise NotImplementedError

    @classmethod
    def _from_content(cls, meta: Mapping[str, Any], arrays: Mapping[str, _Array]) -> Self:
        raise NotImplementedError


def fingerprint_of(parts: Iterable[_Array]) -> str:
    """sha256 of arrays, each with its size before it."""
    digest = hashlib.sha256()
    for part in parts:
        data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        digest.update(data.size.to_bytes(8, "little"))
        digest.update(data.data)
    return digest.hexdigest()


def to_bytes(text: str) -> _Array:
    """The UTF-8 bytes of a text as an array."""
    return np.frombuffer(text.encode(), dtype=np.uint8)


def to_text(codes: _Array) -> str:
    """The text of `to_bytes`."""
    return codes.tobytes().decode()


def write_arrays(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, _Array]) -> None:
    """Write arrays and their description ("format" and "fingerprint" in it), replacing the file at once."""
    content = {**arrays, "meta": to_bytes(json.dumps(meta, ensure_ascii=False))}

    def write(file: BinaryIO) -> None:
        np.savez(file, **content)  # type: ignore[arg-type]  # the stub takes **kwds for allow_pickle

    write_atomically(path, write)


@contextmanager
def reading_arrays(path: Path, file_format: int, *, what: str, written_by: str) -> Iterator[Content]:
    """Give the description and arrays of `write_arrays`; a failure, in the block too, becomes a `DataError`.

    Its message says `what` the file should hold, and what it is `written_by`.
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
    """Refuse content whose fingerprint is not the one that its file names."""
    if found != written:
        raise DataError(
            f"{path}: content does not match its fingerprint; the file was changed, write it again"
        )
