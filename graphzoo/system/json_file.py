"""Read JSON of unknown origin safely: from a regular file of limited size, with limits on its values."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from graphzoo.system.regular_files import MOST_TEXT, read_regular_text

_MOST_DEPTH = 50
_LARGEST = 2**63


def read_json(path: str | os.PathLike[str], *, most: int = MOST_TEXT) -> Any:
    """Read the plain values in a JSON file of at most `most` bytes.

    Raises:
        ValueError: if the content is not JSON, is nested too deeply or has huge numbers.
        OSError: as `open_regular`.
    """
    try:
        content = json.loads(read_regular_text(path, most=most))
        check_plain(content)
    except RecursionError as error:
        raise ValueError(f"nested more than {_MOST_DEPTH} deep") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from error
    return content


def check_plain(value: Any, depth: int = 0) -> None:
    """Refuse values that are nested too deeply, and integers that do not fit into 64 bits.

    Raises:
        ValueError: if there is one.
    """
    if depth > _MOST_DEPTH:
        raise ValueError(f"nested more than {_MOST_DEPTH} deep")
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"a number of {math.floor(math.log10(abs(value))) + 1:,} digits")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_plain(item, depth + 1)
