"""Format counts, times and sizes for messages."""

from __future__ import annotations

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def counted(number: float, one: str, many: str = "") -> str:
    """A number with its noun, `one` or `many`; `many` is `one` with an s by default.

    >>> counted(1, "batch", "batches"), counted(2000, "step")
    ('1 batch', '2,000 steps')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """A time with a suitable unit: 0.23 s, 75 s, 12.5 min, 3.2 h, 4.1 d."""
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.3g} s"


def size(num_bytes: float) -> str:
    """A number of bytes with a suitable unit: 312 MiB, 5.4 GiB."""
    return f"{num_bytes / 2**30:,.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:,.0f} MiB"
