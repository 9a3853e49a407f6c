r"""Names of others as a terminal, a table or a page may show them: what steers is spelt out.

An escape sequence can clear the screen or name the window, a control of the direction of writing makes one
name look like another. Joiners (U+200C, U+200D) stay: Persian, Hindi and many emoji are written with them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphzoo.errors import UsageError, shorten

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


# soft hyphen, Arabic letter mark, Mongolian separator, widths and directions, invisible operators, byte order
# mark, annotations, tags
DIRECTIONS = (
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_NARROW = 40
_STEERS = re.compile(f"[\x00-\x1f\x7f-\x9f{DIRECTIONS}\ud800-\udfff]")


def visible(text: str) -> str:
    r"""The text on one line, with everything that steers a terminal or cannot be seen spelt out.

    >>> visible("a\x1b[2J\u202eb"), visible("caf\u00e9")
    ('a\\x1b[2J\\u202eb', 'café')
    """
    return _STEERS.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def cell(text: object) -> Text:
    """The `str` of anything for a table on the screen: spelt out, and no markup."""
    from rich.text import Text

    return Text(visible(str(text)))


def console() -> Console:
    """Where tables and lines go: never so narrow that rich finds no room for a column, and fails."""
    from rich import get_console

    screen = get_console()
    if screen.width < _NARROW:
        screen.width = _NARROW
    return screen


def say(text: str) -> None:
    """Write lines to standard output: names and paths in them are spelt out."""
    sys.stdout.write("\n".join(map(visible, text.split("\n"))))


def tell(text: str) -> None:
    """Write lines to standard error: names and paths in them are spelt out."""
    sys.stderr.write("\n".join(map(visible, text.split("\n"))))


_TOLD = 3


def tell_damaged(command: str, damaged: Sequence[UsageError]) -> int:
    """Say what a command has left out, after it has shown the rest; its exit status, 1 if there is any."""
    for error in damaged[:_TOLD]:
        first = shorten(str(error).partition("\n")[0])
        tell(f"graphzoo {command}: left out: {first}\n")
    if len(damaged) > _TOLD:
        tell(f"graphzoo {command}: and {len(damaged) - _TOLD:,} more like these\n")
    return int(bool(damaged))
