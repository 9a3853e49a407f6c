"""A fixture that compiles the sampler before Hypothesis measures times."""

import pytest
import torch

from graphzoo.sampling import PairSubgraphSampler


@pytest.fixture(scope="session")
def compiled_sampler():
    """Compile or load the kernels, which takes longer than Hypothesis' deadline of a case."""
    sampler = PairSubgraphSampler(torch.tensor([[0], [1]]), 2, depth=1, num_neighbors=1)
    sampler(torch.tensor([[0, 1]]), seed=0)
