"""What a report is made of, before it becomes HTML or files: sections of text, tables and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A picture that is drawn when it is needed."""

    name: str  # for files and anchors: letters, digits and dashes
    title: str  # above it, a few words
    alt: str  # what it shows, for those who cannot see it
    draw: Callable[[], Figure]  # called inside `graphzoo.report.style.drawing()`
    caption: str = ""  # what to know when reading it
    wide: bool = False  # takes the whole width of the page where there is room


@dataclass(frozen=True)
class TableBlock:
    """A table of cells that are text already; the first of a row names it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()  # positions of columns that are aligned to the right
    note: str = ""  # below the table, such as how many rows are left out
    folded: bool = False  # shown only when asked for
    beside: bool = False  # stands beside its neighbour of the same kind where there is room


@dataclass(frozen=True)
class Note:
    """A paragraph of plain text; a `warning` says that something is missing or went wrong."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Code:
    """Lines to be typed into a shell, below a caption."""

    caption: str
    text: str


Block = Picture | TableBlock | Note | Code


@dataclass(frozen=True)
class Section:
    """A heading, of level 2 or 3, and what is below it; pictures in a row are side by side."""

    title: str
    blocks: Sequence[Block]
    level: int = 2


@dataclass(frozen=True)
class Report:
    """A whole report."""

    title: str
    lead: str  # one or two sentences below the title
    sections: Sequence[Section]

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]


def slug(text: str) -> str:
    """Letters, digits and dashes that name a file or an anchor.

    >>> slug("test/hits@10 of GALiT")
    'test-hits-10-of-galit'
    """
    return "-".join(re.findall("[a-z0-9]+", text.lower())) or "picture"


@dataclass(frozen=True)
class Options:
    """What a report shows beside what the runs have written down."""

    models: bool = True  # trained models are loaded, for pictures of what they attend to
    # (head, relation, tail), of which the attended entities are shown; empty: some of the test split
    facts: tuple[tuple[str, str, str], ...] = ()
    device: str = "cpu"  # where models run
