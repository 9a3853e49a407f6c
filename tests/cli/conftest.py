"""Each test works in an empty folder of its own."""

import pytest


@pytest.fixture(autouse=True)
def at_work(workplace):
    """The empty folder is the current one."""
