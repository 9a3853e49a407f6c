"""A run that compiles the kernels and a run that loads them from the cache give the same bits."""

import os
import subprocess
import sys

import pytest

# Kernels of the backward pass use helpers of the forward kernels, from the process or from the cache.
_PROGRAM = """
import hashlib, torch
from graphzoo.encoders import KnowFormer
from graphzoo.ops import RelationalGraph
from graphzoo.types import GraphSpec
torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
edge_index = torch.randint(0, 300, (2, 900), generator=generator)
graph = RelationalGraph(edge_index, torch.randint(0, 6, (900,), generator=generator), 300, 6)
encoder = KnowFormer(GraphSpec(num_nodes=300, num_relations=3), num_layers=2)
encoder(graph, torch.arange(8), torch.arange(8) % 6).square().mean().backward()
digest = hashlib.sha256()
for parameter in encoder.parameters():
    digest.update(b"" if parameter.grad is None else parameter.grad.numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_compiled_and_cached_kernels_give_the_same_bits(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def run():
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = run()
    assert list(tmp_path.rglob("*.nbc")), "nothing was compiled"
    assert run() == first
