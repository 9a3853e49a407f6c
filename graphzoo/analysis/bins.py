"""Edges of the bins of histograms, and points of curves."""

from __future__ import annotations


def steps_up_to(most: int) -> list[int]:
    """The numbers 1, 2, 3, 5, 10, 20, 30, 50, ... up to the first that is at least `most`.

    1, 3, 10 and 50 are among them, so that bins with these edges show Hits@1, 3, 10 and 50.

    >>> steps_up_to(40)
    [1, 2, 3, 5, 10, 20, 30, 50]
    """
    steps: list[int] = []
    unit = 1
    while True:
        for factor in (1, 2, 3, 5):
            steps.append(factor * unit)
            if steps[-1] >= most:
                return steps
        unit *= 10
