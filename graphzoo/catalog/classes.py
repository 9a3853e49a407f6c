"""Plug-in encoders of other packages, and which classes may be imported if a file names them.

Standard library only. Encoders of other packages register in the entry-point group `graphzoo.encoders`.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphzoo.errors import UsageError, normalise

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


ENCODER_GROUP = "graphzoo.encoders"
_OURS = ("graphzoo", "lightning")
_PLAIN = re.compile(r"\b(int|float|str|bool)\b")


def entry_points(*, group: str) -> EntryPoints:
    """Entry points of installed packages. The import is local: it takes a third of a command's start."""
    from importlib import metadata

    return metadata.entry_points(group=group)


def encoder_plugins() -> dict[str, EntryPoint]:
    """Encoders of other installed packages, by name."""
    return {entry.name: entry for entry in entry_points(group=ENCODER_GROUP)}


def find_plugin(name: str) -> EntryPoint | None:
    """The plug-in encoder of a name, or None; case, `-` and `_` do not matter."""
    matching = (entry for plugin, entry in encoder_plugins().items() if normalise(plugin) == normalise(name))
    return next(matching, None)


def is_trusted(class_path: str) -> bool:
    """Whether a class may be imported because a file, such as a checkpoint, names it.

    True for classes of graphzoo and Lightning, optimisers of torch, metrics of torchmetrics, plug-ins, and
    classes that are already imported and inherit from graphzoo or Lightning.
    """
    module, _, name = class_path.rpartition(".")
    if module.partition(".")[0] in _OURS or module.startswith(("torch.optim", "torchmetrics.")):
        return True
    if _plugin_at(class_path) is not None:
        return True
    # Being imported is not enough: so is `subprocess.Popen`.
    bases = getattr(getattr(sys.modules.get(module), name, None), "__mro__", ())
    return any(base.__module__.partition(".")[0] in _OURS for base in bases)


def _plugin_at(path: str, *, aliases: bool = False) -> EntryPoint | None:
    """The plug-in that a class path names, or None.

    A plug-in may be registered by a shorter path than that of the module of its class. To find it then, the
    plug-in is imported if both classes have the same name, or with `aliases` in any case.
    """
    for entry in _plugins_of(path):
        if entry.value.replace(":", ".") == path:
            return entry
    for entry in _plugins_of(path):
        if aliases or entry.value.rpartition(":")[2] == path.rpartition(".")[2]:
            with contextlib.suppress(Exception):  # a broken plug-in, which may not even be the one wanted
                plugin = entry.load()
                if path == f"{plugin.__module__}.{plugin.__qualname__}":
                    return entry
    return None


def _plugins_of(path: str) -> list[EntryPoint]:
    """The plug-ins of the package of a class path."""
    package = path.partition(".")[0]
    known = [] if package in _OURS else encoder_plugins().values()
    return [entry for entry in known if entry.value.partition(":")[0].partition(".")[0] == package]


def _why_broken(path: str) -> str:
    """The error of importing a plug-in of the same package and class name; "" if there is none."""
    for entry in _plugins_of(path):
        if entry.value.rpartition(":")[2] == path.rpartition(".")[2]:
            try:
                entry.load()
            except Exception as error:
                return f"{error}"
    return ""


def is_same_class(path: str, other: str) -> bool:
    """Whether two paths name the same class; only modules that are already imported are looked at."""
    parts = (each.rpartition(".") for each in (path, other))
    found, meant = (getattr(sys.modules.get(module), name, None) for module, _, name in parts)
    return public_path(path) == public_path(other) or (found is not None and found is meant)


def class_path(value: object) -> str:
    """Dotted path of an object's class; classes of graphzoo by their public path, not that of their file."""
    cls = type(value)
    module = cls.__module__
    if module.startswith("graphzoo."):
        module = ".".join(module.split(".")[:2])
    return f"{module}.{cls.__qualname__}"


def public_path(path: str) -> str:
    """The public path of a class of graphzoo or of a callback of Lightning; other paths stay as they are."""
    *package, name = path.split(".")
    if path.startswith("graphzoo."):
        package = package[:2]
    elif path.startswith("lightning.pytorch.callbacks."):
        package = package[:3]
    return ".".join([*package, name])


def arguments_of(cls: type) -> list[inspect.Parameter]:
    """The arguments of a class; `**kwargs` are replaced by the arguments of the next parent class."""
    taken = {each.name: each for each in inspect.signature(cls).parameters.values()}
    makers = (parent for parent in cls.__mro__ if "__init__" in vars(parent) and parent is not object)
    for parent in itertools.islice(makers, 1, None):
        rest = {name: each for name, each in taken.items() if each.kind is not each.VAR_KEYWORD}
        if len(rest) == len(taken):
            break
        _, *inherited = inspect.signature(vars(parent)["__init__"]).parameters.values()
        taken = rest | {each.name: each for each in inherited if each.name not in rest}
    return list(taken.values())


def defaults_of(cls: type) -> dict[str, Any]:
    """The default values of the arguments of a class, by name."""
    return {each.name: each.default for each in arguments_of(cls) if each.default is not each.empty}


def spec_problem(cls: type) -> str:
    """What is wrong with the first argument of an encoder's class, which is the `GraphSpec`; "" if nothing.

    The command and checkpoints build encoders in this way. The spec may have any name, and a type of any name
    such as an alias, but not that of a number or a text.
    """
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = next((each for each in arguments_of(cls) if each.kind is not each.KEYWORD_ONLY), None)
    if first is not None:
        kind = str(first.annotation)
        is_plain = isinstance(first.default, int | float | str) or _PLAIN.search(kind) is not None
        may_be_spec = first.name == "spec" or "GraphSpec" in kind or not is_plain
        if first.kind is first.VAR_POSITIONAL or (first.kind in placed and may_be_spec):
            return ""
    taken = "none" if first is None or first.kind not in placed else f"{first.name} first"
    return (
        f"the first argument of an encoder is a GraphSpec, but {cls.__name__}.__init__ takes {taken}\n"
        "Write def __init__(self, spec: GraphSpec, *, ...), with the settings after the star"
    )


def load_class(path: str, source: str | os.PathLike[str], *, trust: bool = False) -> type:
    """Import a class that a file names by its dotted path.

    Args:
        path: Dotted path of the class.
        source: The file that names it, for messages.
        trust: Whether to import the class even if `is_trusted` is False.

    Raises:
        UsageError: if the path is not that of a class, the class is not trusted, or cannot be imported.
    """
    module, _, name = path.rpartition(".")
    if not module:
        raise UsageError(f"{source}: {path!r} is not a dotted class path")
    plugin = _plugin_at(path, aliases=True)
    if not (trust or plugin or is_trusted(path)):
        if why := _why_broken(path):
            raise UsageError(f"{source}: {path} cannot be imported: {why}")
        raise UsageError(
            f"{source}: names the class {path}, which is not part of graphzoo, not a plug-in and not yet "
            "imported. Import its module first, or give trust=True (--trust) if you trust the file"
        )
    try:
        cls = plugin.load() if plugin else getattr(import_module(module), name)
    except Exception as error:
        if plugin is None and not isinstance(error, ImportError | AttributeError):
            raise
        root = module.partition(".")[0]
        is_here = Path(root).is_dir() or Path(f"{root}.py").is_file()
        remedy = f"\n{root} is in the current folder: set PYTHONPATH=." if is_here else ""
        raise UsageError(f"{source}: {path} cannot be imported: {error}{remedy}") from error
    if not isinstance(cls, type):
        raise UsageError(f"{source}: {path} is not a class")
    return cls
