"""The content of a report before it becomes HTML or files: sections of text, tables and pictures."""

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
    title: str  # a few words above it
    alt: str  # text for readers who cannot see it
    draw: Callable[[], Figure]  # called inside `graphzoo.report.style.drawing()`
    caption: str = ""  # explanation below it
    wide: bool = False  # whether it may take the whole width of the page


@dataclass(frozen=True)
class TableBlock:
    """A table of texts; the first cell of a row is its name."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()  # positions of columns that are aligned to the right
    note: str = ""  # below the table, such as how many rows are left out
    folded: bool = False  # whether the reader has to unfold it
    beside: bool = False  # whether it may be beside its neighbour of the same kind


@dataclass(frozen=True)
class Note:
    """A paragraph of plain text; a `warning` says that something is missing or went wrong."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Code:
    """Commands for a shell, below a caption."""

    caption: str
    text: str


Block = Picture | TableBlock | Note | Code


@dataclass(frozen=True)
class Section:
    """A heading of level 2 or 3 and the blocks below it; consecutive pictures are side by side."""

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
        """All pictures of the report, in order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]


def slug(text: str) -> str:
    """A name of letters, digits and dashes for a file or an anchor.

    >>> slug("test/hits@10 of GALiT")
    'test-hits-10-of-galit'
    """
    return "-".join(re.findall("[a-z0-9]+", text.lower())) or "picture"


@dataclass(frozen=True)
class Options:
    """What a report shows in addition to the files of the runs."""

    models: bool = True  # whether trained models are loaded, for pictures of their attention
    # facts (head, relation, tail) whose attended entities are shown; empty takes some of the test split
    facts: tuple[tuple[str, str, str], ...] = ()
    device: str = "cpu"  # device of the models
