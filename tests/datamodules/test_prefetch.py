"""`prefetch`: items of an iterable, made ahead of their use in a thread."""

import threading
from collections.abc import Iterator

import pytest

from graphzoo.datamodules.prefetch import prefetch


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "graphzoo-prefetch"]


@pytest.mark.parametrize("size", [1, 3])
def test_items_come_in_order(size: int) -> None:
    assert list(prefetch(range(20), size)) == list(range(20))
    assert list(prefetch([], size)) == [] and not running()


def test_the_next_item_is_made_while_the_current_one_is_used() -> None:
    made = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for number in range(3):
            made.release()
            yield number

    stream = prefetch(items())
    assert next(stream) == 0
    for _ in range(3):  # the thread holds the third item, the queue the second
        assert made.acquire(timeout=30)
    stream.close()
    assert not running()


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    stream = prefetch(items())
    assert next(stream) == 1
    with pytest.raises(KeyError, match="broken"):
        next(stream)
    assert not running()


def test_a_consumer_that_stops_early_stops_the_thread() -> None:
    stream = prefetch(iter(int, 1))
    assert next(stream) == 0
    assert running()
    stream.close()
    assert not running()
