"""Which classes other packages bring, and whose classes may be imported on the word of a file.

Standard library only. Encoders of other packages register under the entry-point group `graphzoo.encoders`.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphzoo.errors import UsageError, normalise

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


ENCODER_GROUP = "graphzoo.encoders"
_OURS = ("graphzoo", "lightning")


def entry_points(*, group: str) -> EntryPoints:
    """What installed packages offer; importing the library for it takes a third of a command's start."""
    from importlib import metadata

    return metadata.entry_points(group=group)


def encoder_plugins() -> dict[str, EntryPoint]:
    """Encoders that other installed packages offer, by name."""
    return {entry.name: entry for entry in entry_points(group=ENCODER_GROUP)}


def find_plugin(name: str) -> EntryPoint | None:
    """The plug-in encoder of that name, compared like preset names."""
    matching = (entry for plugin, entry in encoder_plugins().items() if normalise(plugin) == normalise(name))
    return next(matching, None)


def is_trusted(class_path: str) -> bool:
    """Whether a file that is not the user's own command line may have this class imported.

    True for graphzoo's own, Lightning's and torch's classes, plug-ins and imported classes made of these.
    """
    module, _, name = class_path.rpartition(".")
    if module.partition(".")[0] in _OURS or module.startswith(("torch.optim", "torchmetrics.")):
        return True
    if _plugin_at(class_path) is not None:
        return True
    # Imported already and made for this purpose: `subprocess.Popen` is imported too.
    bases = getattr(getattr(sys.modules.get(module), name, None), "__mro__", ())
    return any(base.__module__.partition(".")[0] in _OURS for base in bases)


def _plugin_at(path: str, *, aliases: bool = False) -> EntryPoint | None:
    """The plug-in of a class path; it may be registered by a shorter one than that of its class's module.

    To know that, its package is imported, where the class has the name of the plug-in's or, with `aliases`,
    any name.
    """
    for entry in _plugins_of(path):
        if entry.value.replace(":", ".") == path:
            return entry
    for entry in _plugins_of(path):
        if aliases or entry.value.rpartition(":")[2] == path.rpartition(".")[2]:
            with contextlib.suppress(Exception):  # code of somebody else; it need not be what is asked for
                plugin = entry.load()
                if path == f"{plugin.__module__}.{plugin.__qualname__}":
                    return entry
    return None


def _plugins_of(path: str) -> list[EntryPoint]:
    """Those of the same package."""
    package = path.partition(".")[0]
    known = [] if package in _OURS else encoder_plugins().values()
    return [entry for entry in known if entry.value.partition(":")[0].partition(".")[0] == package]


def _why_broken(path: str) -> str:
    """What is wrong with a plug-in of the same package and name as a class, if it cannot be imported."""
    for entry in _plugins_of(path):
        if entry.value.rpartition(":")[2] == path.rpartition(".")[2]:
            try:
                entry.load()
            except Exception as error:
                return f"{error}"
    return ""


def is_same_class(path: str, other: str) -> bool:
    """Whether two class paths are spellings of one, as far as what is imported already can tell."""
    parts = (each.rpartition(".") for each in (path, other))
    found, meant = (getattr(sys.modules.get(module), name, None) for module, _, name in parts)
    return public_path(path) == public_path(other) or (found is not None and found is meant)


def class_path(value: object) -> str:
    """Dotted path of an object's class; graphzoo's own classes by their public, not their file's name."""
    cls = type(value)
    module = cls.__module__
    if module.startswith("graphzoo."):
        module = ".".join(module.split(".")[:2])
    return f"{module}.{cls.__qualname__}"


def public_path(path: str) -> str:
    """The name by which graphzoo, or Lightning for its callbacks, shows a class: all spellings are one."""
    *package, name = path.split(".")
    if path.startswith("graphzoo."):
        package = package[:2]
    elif path.startswith("lightning.pytorch.callbacks."):
        package = package[:3]
    return ".".join([*package, name])


def arguments_of(cls: type) -> list[inspect.Parameter]:
    """What a class takes when it is built; its `**kwargs` stand for what the next parent takes."""
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
    """The values of the arguments of a class that need not be given."""
    return {each.name: each.default for each in arguments_of(cls) if each.default is not each.empty}


def load_class(path: str, source: str | os.PathLike[str], *, trust: bool = False) -> type:
    """Import the class that a file, `source`, names by its dotted path; one that is not trusted is refused.

    With `trust`, it is imported whatever it is.
    """
    module, _, name = path.rpartition(".")
    if not module:
        raise UsageError(f"{source}: {path!r} is not a dotted class path")
    plugin = _plugin_at(path, aliases=True)
    if not (trust or plugin or is_trusted(path)):
        if why := _why_broken(path):
            raise UsageError(f"{source}: {path} cannot be imported: {why}")
        raise UsageError(
            f"{source}: names the class {path}, which is neither graphzoo's, nor a plug-in's, nor "
            "imported. Import its module first, or say trust=True (--trust) if you trust the file"
        )
    try:
        cls = plugin.load() if plugin else getattr(import_module(module), name)
    except Exception as error:
        if plugin is None and not isinstance(error, ImportError | AttributeError):
            raise
        root = module.partition(".")[0]
        is_here = Path(root).is_dir() or Path(f"{root}.py").is_file()
        remedy = f"\n{root} lies in the current folder: set PYTHONPATH=." if is_here else ""
        raise UsageError(f"{source}: {path} cannot be imported: {error}{remedy}") from error
    if not isinstance(cls, type):
        raise UsageError(f"{source}: {path} is not a class")
    return cls
