"""What MkDocs does here beside Markdown: formulas become MathML, reference and API are filled in."""

from __future__ import annotations

import html
import re
from typing import Any

import latex2mathml.converter
from api import expand
from mkdocs.exceptions import PluginError
from reference import command_reference

MARK = "<!-- command reference -->"
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_FIGURE = re.compile(
    r"(?<=\d) (?=± \d)|(?<=\d ±) (?=\d)|(?<=\d) (?=(?:%|ms|s|µs|MiB|GiB)(?!\w))|(?<=accuracy) (?=%)"
)
# Browsers draw these with their own fonts; latex2mathml knows the same things under other names.
_SYNONYMS = {r"\lVert": r"\|", r"\rVert": r"\|", r"\lvert": "|", r"\rvert": "|", r"\tfrac": r"\frac"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the command's reference and the public names where their marks stand."""
    return expand(markdown.replace(MARK, command_reference()) if MARK in markdown else markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Replace the formulas that arithmatex has found; keep a figure together with its deviation and unit."""
    content = _FIGURE.sub("\u00a0", content)
    return _FORMULA.sub(lambda match: mathml(match, page.file.src_uri), content)


def mathml(match: re.Match[str], where: str) -> str:
    """One formula as MathML.

    Raises:
        PluginError: for a command that the converter does not know, which it would pass on as text.
    """
    tex = html.unescape(match[2])
    for name, plain in _SYNONYMS.items():
        tex = re.sub(re.escape(name) + r"(?![A-Za-z])", (plain + " ").replace("\\", r"\\"), tex)
    # A command's only letter may stand without braces in TeX, which the converter overlooks.
    tex = re.sub(r"(\\(?:mathbf|mathbb|boldsymbol)) ?(\\[A-Za-z]+|\w)", r"\1{\2}", tex)
    block = match[1] == "div"
    made = latex2mathml.converter.convert(tex, display="block" if block else "inline")
    if "\\" in made:
        raise PluginError(f"{where}: latex2mathml does not understand {tex!r}")
    return f'<div class="formula">{made}</div>' if block else made
