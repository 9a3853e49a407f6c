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


def _plugin_at(path: str) -> type | None:
    """The plug-in of a class path; it may be registered by a shorter one than that of its class's module."""
    package = path.partition(".")[0]
    for entry in [] if package in _OURS else list(encoder_plugins().values()):
        if entry.value.partition(":")[0].partition(".")[0] != package:
            continue
        if path == entry.value.replace(":", "."):
            found: type = entry.load()
            return found
        with contextlib.suppress(Exception):  # another plug-in of the package may be broken
            plugin: type = entry.load()
            if path == f"{plugin.__module__}.{plugin.__qualname__}":
                return plugin
    return None


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
    gathers = [each for each in taken.values() if each.kind is each.VAR_KEYWORD]
    for parent in itertools.islice(makers, 1, None):
        if not gathers:
            break
        _, *inherited = inspect.signature(vars(parent)["__init__"]).parameters.values()
        del taken[gathers[0].name]
        taken |= {each.name: each for each in inherited if each.name not in taken}
        gathers = [each for each in inherited if each.kind is each.VAR_KEYWORD]
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
    if (plugin := _plugin_at(path)) is not None:
        return plugin
    if not (trust or is_trusted(path)):
        raise UsageError(
            f"{source}: names the class {path}, which is neither graphzoo's, nor a plug-in's, nor "
            "imported. Import its module first, or say trust=True (--trust) if you trust the file"
        )
    try:
        cls = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        root = module.partition(".")[0]
        is_here = Path(root).is_dir() or Path(f"{root}.py").is_file()
        remedy = f"\n{root} lies in the current folder: set PYTHONPATH=." if is_here else ""
        raise UsageError(f"{source}: {path} cannot be imported: {error}{remedy}") from error
    if not isinstance(cls, type):
        raise UsageError(f"{source}: {path} is not a class")
    return cls
