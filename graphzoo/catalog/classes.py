"""Which classes other packages bring, and whose classes may be imported on the word of a file.

Standard library only. Encoders of other packages register under the entry-point group `graphzoo.encoders`.
"""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module
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
    if any(entry.value.replace(":", ".") == class_path for entry in encoder_plugins().values()):
        return True
    # Imported already and made for this purpose: `subprocess.Popen` is imported too.
    bases = getattr(getattr(sys.modules.get(module), name, None), "__mro__", ())
    return any(base.__module__.partition(".")[0] in _OURS for base in bases)


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
    """What a class takes when it is built, in its order."""
    return list(inspect.signature(cls).parameters.values())


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
    is_ours = module.partition(".")[0] in _OURS
    for entry in [] if is_ours else list(encoder_plugins().values()):
        # A plug-in may be registered by a shorter path than that of the module which defines its class.
        if entry.value.partition(":")[0].partition(".")[0] == module.partition(".")[0]:
            plugin: type = entry.load()
            if path in (entry.value.replace(":", "."), f"{plugin.__module__}.{plugin.__qualname__}"):
                return plugin
    if not (trust or is_trusted(path)):
        raise UsageError(
            f"{source}: names the class {path}, which is neither graphzoo's, nor a plug-in's, nor "
            "imported. Import its module first, or say trust=True (--trust) if you trust the file"
        )
    try:
        cls = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{source}: {path} cannot be imported: {error}") from error
    if not isinstance(cls, type):
        raise UsageError(f"{source}: {path} is not a class")
    return cls
