"""Seeds, devices and tiny graphs for every test; Triton's interpreter where there is no GPU."""

import gc
import os
import random
import socket

import numpy as np
import pytest
import torch
from helpers.tiny_graphs import TINY_GRAPHS
from hypothesis import settings

pytest_plugins = ["helpers.command_fixtures", "helpers.run_fixtures", "helpers.wandb_fixtures"]

# Every run draws the same examples, so that its result is the same; HYPOTHESIS_PROFILE=explore draws more.
settings.register_profile("graphzoo", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "graphzoo"))

if not torch.cuda.is_available():
    # Read when Triton is first imported, so before any test module.
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Tests that take ten seconds or more each.
LONG = (
    "tests/test_docs.py::test_examples_run",
    "tests/ops/test_cuda_compiles.py",
    "tests/tasks/test_processes.py",
    "tests/tasks/test_process_resume.py",
    "tests/datamodules/test_spawned_workers.py",
    "tests/test_docs.py::test_fit_commands_are_accepted",
    "tests/test_site.py::test_reading_a_page",
    "tests/training/test_parser_errors.py::test_every_data_set",
    "tests/runs/test_lock.py::test_a_home",
    "tests/ops/test_compiled_kernels.py",
)


def pytest_collection_modifyitems(items):
    """Run long tests first, so that no worker ends alone with one."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish():
    """Exempt imported modules from garbage collection, which would scan them during every test."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    """Undo the exemption, so that libraries that count live objects at exit find none."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def no_network(request):
    """Fail a test that connects to another machine, unless `-m` selects the mark `network`."""
    if "network" in request.config.option.markexpr.replace("not network", ""):
        yield
        return
    connect = socket.socket.connect

    def guarded(self, address):
        host = address[0] if isinstance(address, tuple) else "localhost"
        if host not in ("localhost", "127.0.0.1", "::1", "0.0.0.0"):
            raise AssertionError(f"a test connects to {host}: mark it `network`, or serve the file yourself")
        return connect(self, address)

    socket.socket.connect = guarded
    yield
    socket.socket.connect = connect


@pytest.fixture(autouse=True, scope="session")
def no_fsync():
    """Leave out fsync, for which a run waits ten times: it only helps when the power fails."""
    fsync, os.fsync = os.fsync, lambda file: os.fstat(file) and None  # fstat raises for a closed file
    yield
    os.fsync = fsync


@pytest.fixture(autouse=True)
def seeds():
    """Start every test from the same random state."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture(params=TINY_GRAPHS)
def tiny_graph(request):
    """A `RelationalGraph` of each kind in `TINY_GRAPHS`."""
    from graphzoo.ops import RelationalGraph

    pairs, types, num_nodes, num_relations = TINY_GRAPHS[request.param]
    edge_index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    return RelationalGraph(edge_index, torch.tensor(types, dtype=torch.int64), num_nodes, num_relations)
