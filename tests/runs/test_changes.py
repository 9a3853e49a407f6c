"""Which settings of a run are those of its recipe."""

import pytest

from graphzoo.runs.changes import _same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (8, "${data.batch_size}", True),  # follows another setting
        (None, [], True),
        ("", {}, True),
        (None, 0, False),
        (0.0, None, False),
        (True, 1, False),
        (False, 0.0, False),
        (True, True, True),
        ((1, 2), ["1", "2"], True),
        ([1], [2], False),
        ("1e-3", 0.001, True),
        (0.001, 0.002, False),
        ("exact", "exact", True),
        ("exact", "none", False),
        ("exact", 3, False),
    ],
)
def test_settings_are_the_same_however_they_are_written(one, other, same):
    assert _same(one, other) is same
