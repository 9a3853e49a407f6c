"""API pages from what a package makes public, so that no name has to be listed twice.

A line `<!-- api: PACKAGE -->` stands for every name of `PACKAGE.__all__`, `<!-- api: PACKAGE NAME ... -->`
for some of them; `members=a,b` says which members of classes are shown (`members=` none), otherwise all.
"""

from __future__ import annotations

import re
from importlib import import_module

__all__ = ["expand"]

_MARK = re.compile(
    r"^<!-- api: (?P<package>[\w.]+)(?P<names>(?: \w+)*)(?: members=(?P<members>[\w,]*))? -->$", re.MULTILINE
)


def expand(markdown: str) -> str:
    """The page with mkdocstrings' own directives in the places of the marks."""
    return _MARK.sub(_directives, markdown)


def _directives(mark: re.Match[str]) -> str:
    package = import_module(mark["package"])
    names = mark["names"].split() or package.__all__
    return "\n".join(_directive(getattr(package, name), name, mark["members"]) for name in names)


def _directive(thing: object, name: str, members: str | None) -> str:
    # Names are defined in submodules, which load on first use; documentation is read where they are defined.
    home = getattr(thing, "__module__", None)
    assert home is not None and getattr(thing, "__name__", name) == name, f"{name} is not a class or function"
    lines = [f"::: {home}.{name}", "    options:", "        heading_level: 2"]
    if members is not None:
        wanted = [member for member in members.split(",") if member]
        lines.append(f"        members: {wanted or 'false'}")
    return "\n".join([*lines, ""])
