"""The style of pictures, and writing them to files or as SVG for a light or dark page."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from graphzoo.system.files import write_atomically, write_text_atomically
from graphzoo.system.shown import DIRECTIONS, visible
from graphzoo.system.units import counted

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WIDTH = 3.75
"""Width in inches of a picture on a phone; at 96 dots per inch its letters are 11 pixels high."""

INK, FAINT = "#1d1d1f", "#8b8b90"
# Distinguishable with colour blindness; contrast of at least 3:1 with white; the dark theme with black.
COLORS = ("#0a66b7", "#c2500a", "#00795e", "#a83a86", "#7a6200", "#5a55c8")
_DARK = ("#6cb4f5", "#f29a5c", "#4cc9a6", "#e58cc7", "#d6b84a", "#a5a2f5")
STEADY = ("#2f7fd0", "#d9691f", "#159270", "#bd559f", "#9a7d05", "#7a75e0")
"""Colours of rasterized points, the same in the light and the dark theme; contrast 3:1 with both."""
MEANING = {"head": 0, "tail": 1}
"""Number of the colour of series that have the same colour in every picture."""
THEME = {
    "ink": (INK, "#ececf0"),
    "faint": (FAINT, "#8b8b95"),
    **{f"c{number}": pair for number, pair in enumerate(zip(COLORS, _DARK, strict=True))},
}
"""Name of each colour on the page -> its light and its dark value."""

_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text: searchable, small, and readable by screen readers
    "svg.hashsalt": "graphzoo",  # the same picture gives the same file
    "text.parse_math": False,  # names of entities may contain a $
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
_log = logging.getLogger(__name__)
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
# Characters that XML forbids even if escaped, and the control characters after ASCII.
_DIRECTION = re.compile(f"[{DIRECTIONS}]")
_NO_CHARACTER = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the settings of matplotlib for drawing and writing pictures; the caller's return afterwards."""
    import matplotlib

    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # The reader's machine may have fonts for letters that this machine lacks; see `save_figure`.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(height: float = 2.5, *, width: float = WIDTH) -> Figure:
    """An empty figure, sizes in inches, outside of pyplot's global state."""
    from matplotlib.figure import Figure as MatplotlibFigure

    return MatplotlibFigure(figsize=(width, height), layout="constrained")


def color(number: int) -> str:
    """The colour of the group with this number; colours repeat."""
    return COLORS[number % len(COLORS)]


def colors_of(names: Sequence[str]) -> list[str]:
    """A colour for each series of a picture; series of `MEANING` have the same colour in all pictures.

    >>> colors_of(["tail", "head"]) == colors_of(["head", "tail"])[::-1]
    True
    """
    taken = {MEANING[name] for name in names if name in MEANING}
    free = (number for number in count() if number % len(COLORS) not in taken)
    return [color(MEANING[name] if name in MEANING else next(free)) for name in names]


def fitted(text: object, most: int = 46) -> str:
    """A name, cut in the middle to `most` letters: names of settings of one model differ at the end.

    >>> fitted("pencil on cora, num_layers=2", 21)
    'pencil on …m_layers=2'
    """
    name = short_name(text, 1000)
    end = most // 2
    return name if len(name) <= most else f"{name[: most - 1 - end]}…{name[-end:]}"


def printable(text: str) -> str:
    r"""The text without characters that XML forbids; invisible and direction characters are escaped.

    >>> printable("a\x1b[1mb\x00\u202ec")
    'a[1mb\\u202ec'
    """
    return _DIRECTION.sub(lambda match: visible(match.group()), _NO_CHARACTER.sub("", text))


def short_name(text: object, most: int = 28) -> str:
    r"""A name from the data for a picture: on one line, without control characters, never empty.

    >>> short_name("heart\n attack", 8)
    'heart a…'
    """
    name = " ".join(printable(str(text)).split())
    return (name if len(name) <= most else f"{name[: most - 1]}…") or "–"


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Write names beside horizontal bars, the first at the top, and add a grid."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def plain_ticks(axes: Axes, which: str) -> None:
    """Write plain numbers at the ticks: powers of ten would need math text, which is switched off."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def inline_svg(figure: Figure, prefix: str, label: str) -> str:
    """Convert a figure, drawn inside `drawing()`, to an `<svg>` element with the page's colours and text.

    Args:
        figure: The figure.
        prefix: What all ids of the element begin with.
        label: Description for screen readers.
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
        # The size before the style sheet is read; its ratio lets a browser reserve the space.
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
    """Remove what is not needed, and let the style sheet of the page set colours and fonts."""
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
    # matplotlib leaves out the colour black.
    if element.tag == "text" and "fill:" not in element.get("style", ""):
        element.set("style", f"{element.get('style', '')}; fill: var(--ink)")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure, drawn inside `drawing()`, on white; the suffix of the path is the format."""
    if path.suffix == ".svg":
        text = io.StringIO()
        figure.savefig(text, format="svg", facecolor="white", metadata={"Date": None})
        write_text_atomically(path, printable(text.getvalue()))
    else:
        look: Any = {"format": path.suffix[1:], "facecolor": "white", "dpi": 200}
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", message="Glyph .* missing from")
            write_atomically(path, lambda file: figure.savefig(file, **look))
        if letters := {str(each.message) for each in caught if str(each.message).startswith("Glyph ")}:
            few = counted(len(letters), "letter")
            _log.warning(
                "%s: %s that this machine's fonts lack: install such a font, or draw as svg", path.name, few
            )
        for each in caught:
            if str(each.message) not in letters:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
