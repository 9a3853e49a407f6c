"""Read .npz files: arrays that users saved with numpy, or graphs that graphzoo saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphzoo.datasets.files.arrays import StoredGraph
from graphzoo.errors import DataError
from graphzoo.system.files import check_growth
from graphzoo.system.memory import reading
from graphzoo.system.regular_files import open_regular

_ZIP = b"PK"
_Graph = TypeVar("_Graph", bound=StoredGraph)


def read_npz(path: Path, kind: type[_Graph]) -> Mapping[str, Any] | _Graph:
    """The arrays of a file by name, or the graph if `kind.save` wrote the file. No code in the file is run.

    Raises:
        DataError: if the file cannot be read; the message has the remedy.
    """
    with reading(path, "a readable .npz file", "write it again"):
        with open_regular(path) as stream:
            # numpy takes any file that is not an archive for a pickle, and would advise to allow pickles.
            is_archive = stream.read(2) == _ZIP
        if not is_archive:
            raise DataError(
                f"{path}: not a readable .npz file (not a zip archive); write it with "
                "numpy.savez(PATH, x=..., ...)"
            )
        # opened here: numpy leaves a damaged file open
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as file:
            check_growth(path, path.stat().st_size, sum(part.file_size for part in file.zip.infolist()))
            if "meta" in file.files:
                return kind.read(path)[0]
            return {name: _array(file, name, path) for name in file.files}


def _array(file: Any, name: str, path: Path) -> Any:
    try:
        return file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{path}: {name} has Python objects, which cannot be read without running code of the file\n"
            f"Save it as numbers or text: {name}.astype(float) or {name}.astype(str)"
        ) from error
