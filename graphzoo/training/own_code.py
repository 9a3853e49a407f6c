"""Imports code from the current folder only if the user's command line names it.

With the folder on `sys.path`, any module that a package looks for and that is not installed would be imported
from there: a `torch_xla.py` in a folder of downloaded data would run.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from graphzoo.catalog.settings import read_settings, texts_in
from graphzoo.errors import UsageError
from graphzoo.training.options import config_files

_DOTTED = re.compile(r"(?<![\w./\\-])([^\W\d]\w*)(?:\.[^\W\d]\w*)+(?![\w./\\-])")
_SETTINGS = (".yaml", ".yml", ".json")
# Packages that import what the command line names. Imports by other packages are not the user's wish.
_READERS = ("graphzoo", "jsonargparse")


@contextlib.contextmanager
def own_code(command_line: Sequence[str], *, without: Sequence[Path] = ()) -> Iterator[None]:
    """Let class paths of a command line lie in the current folder.

    They are found last, so that they shadow nothing, and only if the parser imports them. Modules that they
    import in turn may lie in that folder, too. Class paths in the settings files `without` are ignored.
    """
    folder = os.getcwd()
    finder = _OwnCode(folder, class_roots(command_line, without=without))
    if not finder.roots or folder in sys.path or "" in sys.path:
        yield
        return
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def class_roots(command_line: Sequence[str], *, without: Sequence[Path] = ()) -> set[str]:
    """The first parts of all class paths in a command line and its files of settings, but those in `without`.

    >>> sorted(class_roots(["--model.encoder=mine.Net", "--data.path", "a/b.c", "--model.lr", "0.1"]))
    ['mine']
    """
    roots: set[str] = set()
    seen = {os.path.abspath(path) for path in without}
    words = [word.partition("=")[2] if word.startswith("--") else word for word in command_line]
    for text in [*words, *config_files(command_line)]:
        _collect(text, roots, seen)
    return roots


def _collect(value: Any, roots: set[str], seen: set[str]) -> None:
    for text in texts_in(value):
        roots.update(match.group(1) for match in _DOTTED.finditer(text))
        # the parser takes such a file in place of a value
        if text.endswith(_SETTINGS) and os.path.abspath(text) not in seen and os.path.isfile(text):
            seen.add(os.path.abspath(text))
            with contextlib.suppress(UsageError):  # the parser will tell what is wrong with it
                _collect(read_settings(Path(text)), roots, seen)


class _OwnCode(MetaPathFinder):
    """Finds the modules `roots`, which the user typed, in one folder for those who may ask."""

    def __init__(self, folder: str, roots: set[str]) -> None:
        self.folder = folder
        self.roots = roots

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of that name, if the command line names it or a module of the folder imports it."""
        if path is not None:  # a part of a package, which knows its own folder
            return None
        asking = _asking()
        reader = str(asking.get("__name__")).partition(".")[0] in _READERS
        file = asking.get("__file__")
        here = isinstance(file, str) and os.path.abspath(file).startswith(os.path.join(self.folder, ""))
        asks = here or (reader and fullname in self.roots)
        return PathFinder.find_spec(fullname, [self.folder]) if asks else None


def _asking() -> dict[str, Any]:
    """The names of the module whose code imports: the nearest that is not the machinery of imports."""
    frame: FrameType | None = sys._getframe(1)
    machinery = ("<frozen importlib", __file__, importlib.__file__)
    while frame is not None and frame.f_code.co_filename.startswith(machinery):
        frame = frame.f_back
    return {} if frame is None else frame.f_globals
