"""How pictures look, and how they become SVG for a page that may be light or dark, or files."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from graphzoo.system.files import write_atomically, write_text_atomically
from graphzoo.system.shown import DIRECTIONS, visible

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WIDTH = 3.75
"""Inches of a picture that is as wide as a phone: at 96 dots per inch its letters are 11 pixels high."""

INK, FAINT = "#1d1d1f", "#8b8b90"
# Told apart by those who see few colours too; at least 3:1 against the paper, their dark twins against black.
COLORS = ("#0a66b7", "#c2500a", "#00795e", "#a83a86", "#7a6200", "#5a55c8")
_DARK = ("#6cb4f5", "#f29a5c", "#4cc9a6", "#e58cc7", "#d6b84a", "#a5a2f5")
STEADY = ("#2f7fd0", "#d9691f", "#159270", "#bd559f", "#9a7d05", "#7a75e0")
"""Colours for points that are an image: the same on light and on dark paper, 3:1 against both."""
MEANING = {"head": 0, "tail": 1}
"""Series that keep their colour in every picture, whatever their order."""
THEME = {
    "ink": (INK, "#ececf0"),
    "faint": (FAINT, "#8b8b95"),
    **{f"c{number}": pair for number, pair in enumerate(zip(COLORS, _DARK, strict=True))},
}
"""Name of each colour on the page -> its light and its dark value."""

_SETTINGS: Any = {
    "svg.fonttype": "none",  # letters stay letters: readable aloud, searchable, small
    "svg.hashsalt": "graphzoo",  # the same picture is the same file
    "text.parse_math": False,  # names of entities may hold a $
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.grid": False,
    "grid.color": FAINT,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "figure.dpi": 110,
}
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
# Everything but XML's Char, and the controls behind ASCII: no page and no SVG may hold it, however escaped.
_DIRECTION = re.compile(f"[{DIRECTIONS}]")
_NO_CHARACTER = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@contextmanager
def drawing() -> Iterator[None]:
    """Settings in which pictures are drawn and written; the caller's own come back afterwards."""
    import matplotlib

    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # The page's reader has fonts for letters that this machine lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(height: float = 2.5, *, width: float = WIDTH) -> Figure:
    """An empty figure, sizes in inches, which no window and no global state knows."""
    from matplotlib.figure import Figure as MatplotlibFigure

    return MatplotlibFigure(figsize=(width, height), layout="constrained")


def color(number: int) -> str:
    """The colour of the group with that number."""
    return COLORS[number % len(COLORS)]


def colors_of(names: Sequence[str]) -> list[str]:
    """A colour for each of the series of one picture: those of `MEANING` have the same in all pictures.

    >>> colors_of(["tail", "head"]) == colors_of(["head", "tail"])[::-1]
    True
    """
    taken = {MEANING[name] for name in names if name in MEANING}
    free = (number for number in count() if number % len(COLORS) not in taken)
    return [color(MEANING[name] if name in MEANING else next(free)) for name in names]


def fitted(text: object, most: int = 46) -> str:
    """A long name cut in its middle to `most` letters: settings of one model differ at the end.

    >>> fitted("pencil on cora, num_layers=2", 21)
    'pencil on …m_layers=2'
    """
    name = short_name(text, 1000)
    end = most // 2
    return name if len(name) <= most else f"{name[: most - 1 - end]}…{name[-end:]}"


def printable(text: str) -> str:
    r"""The text without characters that XML forbids; those that turn the direction of writing are spelt out.

    >>> printable("a\x1b[1mb\x00\u202ec")
    'a[1mb\\u202ec'
    """
    return _DIRECTION.sub(lambda match: visible(match.group()), _NO_CHARACTER.sub("", text))


def short_name(text: object, most: int = 28) -> str:
    r"""A name of the data that fits into a picture: one line, no control characters, never empty.

    >>> short_name("heart\n attack", 8)
    'heart a…'
    """
    name = " ".join(printable(str(text)).split())
    return (name if len(name) <= most else f"{name[: most - 1]}…") or "–"


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names beside horizontal bars, the first at the top, and a grid to read the bars by."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def plain_ticks(axes: Axes, which: str) -> None:
    """Figures without powers of ten in mathematical writing, which is switched off."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def inline_svg(figure: Figure, prefix: str, label: str) -> str:
    """The figure, drawn inside `drawing()`, as an `<svg>` element: colours are the page's, letters are text.

    Every id begins with `prefix`; `label` is read to those who cannot see the picture.
    """
    text = io.StringIO()
    empty = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(text, format="svg", transparent=True, metadata=empty)
    root = ElementTree.fromstring(printable(text.getvalue()))
    wanted = {reference for element in root.iter() for reference in _references(element)}
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("metadata", "style")):
                parent.remove(child)
    for element in root.iter():
        _tidy(element, prefix, wanted)
    _, _, width, height = root.attrib["viewBox"].split()
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        # the size before any style sheet is read, and the ratio that a browser keeps free
        "width": f"{float(width) * 4 / 3:.0f}",
        "height": f"{float(height) * 4 / 3:.0f}",
        "role": "img",
        "aria-label": printable(label),
    }
    return ElementTree.tostring(root, encoding="unicode")


def _references(element: ElementTree.Element) -> Iterator[str]:
    yield element.attrib.get(_LINK, "").removeprefix("#")
    for value in element.attrib.values():
        if match := re.fullmatch(r"url\(#(.+)\)", value):
            yield match[1]


def _tidy(element: ElementTree.Element, prefix: str, wanted: set[str]) -> None:
    """Leave out what no reader needs, and let the page's style sheet choose colours and letters."""
    element.tag = element.tag.removeprefix(_NAMESPACE)
    element.tail = None
    if element.tag not in ("text", "tspan"):
        element.text = None
    given = dict(element.attrib)
    element.attrib.clear()
    for name, value in given.items():
        if name == "id":
            if value not in wanted:
                continue
            value = f"{prefix}-{value}"
        elif name == _LINK:
            name = "href"
            value = f"#{prefix}-{value[1:]}" if value.startswith("#") else "".join(value.split())
        elif name == "style":
            value = re.sub(r"font-family: [^;]*;? ?", "", value)
            for theme, (light, _) in THEME.items():
                value = value.replace(light, f"var(--{theme})")
        elif name == "transform":
            value = re.sub(r"^rotate\(-?0 [^)]*\) ?", "", value)
        elif name == "d":
            value = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", value)
        value = re.sub(r"url\(#", f"url(#{prefix}-", " ".join(value.split()))
        if value:
            element.set(name, value)
    # matplotlib writes no colour where it is black
    if element.tag == "text" and "fill:" not in element.get("style", ""):
        element.set("style", f"{element.get('style', '')}; fill: var(--ink)")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure, drawn inside `drawing()`, on white, in one piece; the file's ending is the format."""
    if path.suffix == ".svg":
        text = io.StringIO()
        figure.savefig(text, format="svg", facecolor="white", metadata={"Date": None})
        write_text_atomically(path, printable(text.getvalue()))
    else:
        look: Any = {"format": path.suffix[1:], "facecolor": "white", "dpi": 200}
        write_atomically(path, lambda file: figure.savefig(file, **look))
