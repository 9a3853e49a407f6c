"""Compiled kernels, loaded before anything is timed."""

import pytest
import torch

from graphzoo.sampling import PairSubgraphSampler


@pytest.fixture(scope="session")
def compiled_sampler():
    """Loads the kernels, which are compiled at first: longer than Hypothesis lets a case take."""
    sampler = PairSubgraphSampler(torch.tensor([[0], [1]]), 2, depth=1, num_neighbors=1)
    sampler(torch.tensor([[0, 1]]), seed=0)
