"""What is said of a wrong value."""

import pytest

from graphzoo.errors import UsageError, check_range


@pytest.mark.parametrize("value", [0, -1, 0.0, float("nan"), float("-inf")])
def test_numbers_out_of_range(value):
    with pytest.raises(UsageError, match="^lr must be above 0, got"):
        check_range(above=0, lr=value)


@pytest.mark.parametrize("value", ["8", (8,), [8], 8j, b"8", {}], ids=str)
def test_what_is_no_number_is_named(value):
    with pytest.raises(UsageError, match=f"^width must be a number, at least 1, got {type(value).__name__}"):
        check_range(at_least=1, width=value)


def test_bounds_and_what_is_not_set():
    check_range(at_least=1, at_most=3, a=1, b=3, c=None)
    check_range(above=0, below=1, a=0.5)
    with pytest.raises(UsageError, match="b must be above 0 and below 1, got 1$"):
        check_range(above=0, below=1, a=0.5, b=1)
