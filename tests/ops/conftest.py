import pytest
import torch


@pytest.fixture(autouse=True)
def uninitialised_memory_is_nan():
    """Fill `torch.empty` with NaN, which shows where a kernel does not write."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before)
