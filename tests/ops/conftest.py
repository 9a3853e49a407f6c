import pytest
import torch


@pytest.fixture(autouse=True)
def uninitialised_memory_is_nan():
    """`torch.empty` is filled with NaN: a kernel that forgets to write somewhere is found out."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before)
