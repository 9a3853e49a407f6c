r"""Make text of unknown origin safe to show: control characters and invisible ones are escaped.

An escape sequence can clear the screen or rename the window, and characters that change the writing direction
make one name look like another. Joiners (U+200C, U+200D) stay, as Persian, Hindi and many emoji need them.
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


# Soft hyphen, Arabic letter mark, Mongolian vowel separator, characters of zero width, direction marks,
# invisible operators, byte order mark, annotations, tags.
DIRECTIONS = (
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_NARROW = 40
_STEERS = re.compile(f"[\x00-\x1f\x7f-\x9f{DIRECTIONS}\ud800-\udfff]")


def visible(text: str) -> str:
    r"""The text on one line, with control characters and invisible ones escaped.

    >>> visible("a\x1b[2J\u202eb"), visible("caf\u00e9")
    ('a\\x1b[2J\\u202eb', 'café')
    """
    return _STEERS.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def cell(text: object) -> Text:
    """The `str` of a value for a table on the terminal, with control characters escaped and no markup."""
    from rich.text import Text

    return Text(visible(str(text)))


def console() -> Console:
    """The console for tables, with a minimum width: rich fails if there is no room for a column."""
    from rich import get_console

    screen = get_console()
    if screen.width < _NARROW:
        screen.width = _NARROW
    return screen


def say(text: str) -> None:
    """Write lines to standard output, with control characters escaped."""
    sys.stdout.write("\n".join(map(visible, text.split("\n"))))


def tell(text: str) -> None:
    """Write lines to standard error, with control characters escaped."""
    sys.stderr.write("\n".join(map(visible, text.split("\n"))))


_TOLD = 3


def tell_damaged(command: str, damaged: Sequence[UsageError]) -> int:
    """Report what a command has left out because it is damaged, at the end of its output.

    Returns:
        The exit status of the command: 1 if anything was left out, else 0.
    """
    for error in damaged[:_TOLD]:
        first = shorten(str(error).partition("\n")[0])
        tell(f"graphzoo {command}: left out: {first}\n")
    if len(damaged) > _TOLD:
        tell(f"graphzoo {command}: and {len(damaged) - _TOLD:,} more like these\n")
    return int(bool(damaged))
