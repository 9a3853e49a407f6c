"""Docstrings as they stand in the code, made Markdown: formulas in Sphinx's way, and examples of doctest."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_MATH = re.compile(r"^(?P<indent> *)\.\. math:: *(?P<text>.*\n(?:(?P=indent) +\S.*\n?)*)", re.MULTILINE)
_ROLE = re.compile(r":math:`([^`]+)`")
_EXAMPLE = re.compile(r"(?:^ *>>> .*\n(?:^ *(?!>>>)\S.*\n?)*)+", re.MULTILINE)


def to_markdown(text: str) -> str:
    """A docstring's text with `$$` around formulas and a fence around examples."""

    def formula(match: re.Match[str]) -> str:
        indent = match["indent"]
        return f"{indent}$${' '.join(match['text'].split())}$$\n\n"

    def example(match: re.Match[str]) -> str:
        body = textwrap.dedent(match[0]).rstrip()
        return f"\n```pycon\n{body}\n```\n"

    text = _ROLE.sub(r"$\1$", text)
    return _EXAMPLE.sub(example, _MATH.sub(formula, text + "\n")).rstrip()


class Docstrings(griffe.Extension):
    """Applied to every object that mkdocstrings collects."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
