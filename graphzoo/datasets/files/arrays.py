"""Store arrays and their description in one .npz file without pickle; the data classes are kept so."""

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
"""Values that JSON can hold, and arrays; both by name."""


class StoredGraph:
    """Base of the frozen data classes of graphs, which have a fingerprint and can be saved to a file."""

    _what: ClassVar[str]
    fingerprint: str

    def __post_init__(self) -> None:
        self._check()
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", fingerprint_of(self._parts()))

    def save(self, path: str | Path) -> None:
        """Write everything to one .npz file without pickle; an existing file is replaced atomically."""
        self.write(Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote.

        Raises:
            DataError: if the file is missing, damaged, of another format, or does not match its fingerprint.
        """
        return cls.read(Path(path))[0]

    def write(self, path: Path, notices: Sequence[str] = ()) -> None:
        """`save`, together with the notices that came up while the graph was parsed."""
        meta, arrays = self._content()
        facts = {"format": _FORMAT, "fingerprint": self.fingerprint, "notices": list(notices)}
        write_arrays(path, facts | meta, arrays)

    @classmethod
    def read(cls, path: Path) -> tuple[Self, list[str]]:
        """The graph and the notices of a file that `write` wrote; see `load`."""
        with reading_arrays(path, _FORMAT, what=cls._what, written_by=f"{cls.__name__}.save") as content:
            graph = cls._from_content(*content)
            check_fingerprint(path, graph.fingerprint, content[0]["fingerprint"])
            # Files of earlier versions have no notices.
            return graph, list(content[0].get("notices", []))

    def _check(self) -> None:
        """Refuse parts that do not fit together."""

    def _parts(self) -> list[_Array]:
        """The arrays that the fingerprint is computed from."""
        raise NotImplementedError

    def _content(self) -> Content:
        raise NotImplementedError

    @classmethod
    def _from_content(cls, meta: Mapping[str, Any], arrays: Mapping[str, _Array]) -> Self:
        raise NotImplementedError


def fingerprint_of(parts: Iterable[_Array]) -> str:
    """sha256 of arrays, each preceded by its size in bytes."""
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
    """Write arrays and a description with "format" and "fingerprint"; a file is replaced atomically."""
    content = {**arrays, "meta": to_bytes(json.dumps(meta, ensure_ascii=False))}

    def write(file: BinaryIO) -> None:
        np.savez(file, **content)  # type: ignore[arg-type]  # the stub takes **kwds for allow_pickle

    write_atomically(path, write)


@contextmanager
def reading_arrays(path: Path, file_format: int, *, what: str, written_by: str) -> Iterator[Content]:
    """Read the description and arrays of a file of `write_arrays`.

    An error while reading, or in the `with` block, becomes a `DataError`. Its message says `what` the file
    should be, and which function it is `written_by`.
    """
    try:
        # opened here: numpy leaves a damaged file open
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as file:
            check_growth(path, path.stat().st_size, sum(part.file_size for part in file.zip.infolist()))
            meta = json.loads(to_text(file["meta"]))
            if meta["format"] != file_format:
                raise DataError(
                    f"{path}: the file has format {meta['format']!r}, this version reads {file_format}; "
                    "write it again"
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
        # The checks of the graph do not know the file.
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # a damaged archive, header or description can raise anything
        raise_if_not_the_file(error, path)
        raise DataError(f"{path}: not a readable {what} file ({reason(error)}); write it again") from error


def check_fingerprint(path: Path, found: str, written: str) -> None:
    """Refuse content whose fingerprint differs from the one that is written in its file."""
    if found != written:
        raise DataError(
            f"{path}: content does not match its fingerprint; the file was changed, write it again"
        )
