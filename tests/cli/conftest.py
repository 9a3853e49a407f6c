"""Every test runs in an empty folder."""

import pytest


@pytest.fixture(autouse=True)
def at_work(workplace):
    """Make the empty folder the current one."""
