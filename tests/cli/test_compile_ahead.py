"""The process that compiles kernels ahead: when it starts, what it compiles, and that it always ends."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import graphzoo
from graphzoo.cli import compile_ahead, predict
from graphzoo.errors import UsageError

_STARTS = """
import os
from pathlib import Path
from graphzoo.cli.compile_ahead import _PLACE, is_worthwhile
from graphzoo.ops.prototype_layer import kernels
os.environ.pop("OMP_NUM_THREADS", None)
os.sched_getaffinity = lambda process: {0, 1}
place = Path(kernels.attend.stats.cache_path)
"""
_NEEDS = """
import torch
from graphzoo.cli import compile_ahead
from graphzoo.encoders import KnowFormerAny
from graphzoo.ops import RelationalGraph
from graphzoo.ops.message_update import numba as update
from graphzoo.ops.prototype_layer import kernels
from graphzoo.ops.relational_spmm import narrow, numba as spmm
from graphzoo.ops.state_mlp import numba as mlp
from graphzoo.sampling import NeighbourhoodSampler
from graphzoo.types import GraphSpec

def compiled():
    functions = [kernels.sums, kernels.attend, mlp._perceptron, update._update]
    functions += [spmm._sum_products, narrow.sum_narrow_products]
    return [list(function.signatures) for function in functions]

compile_ahead._leave_with_the_first = lambda: None
compile_ahead.compile_kernels("cpu")
ahead = compiled()
assert all(len(signatures) == 1 for signatures in ahead), ahead
encoder = KnowFormerAny(GraphSpec(num_nodes=30, num_relations=3)).eval()
source, target, relation = torch.randint(0, 30, (60,)), torch.randint(0, 30, (60,)), torch.arange(60) % 3
edge_index = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
whole = RelationalGraph(edge_index, torch.cat([relation, relation + 3]), 30, 6)
head, asked = torch.arange(8), torch.arange(8) % 6
near, _ = NeighbourhoodSampler(whole, 10)(head, asked)
with torch.no_grad():
    encoder(whole, head, asked)
    encoder(near, head, asked)
assert compiled() == ahead, compiled()
"""


@pytest.fixture
def cold(monkeypatch, tmp_path):
    """Two cores, an empty cache, and a `torch` whose import in a second process outlasts any test."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "torch.py").write_text("import time; time.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "cache" / "prototype_layer_0"


@pytest.fixture
def started(monkeypatch):
    processes, start = [], subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda *words, **options: processes.append(start(*words, **options)) or processes[-1],
    )
    return processes


def _run(program, **environment):
    environment = {
        **{name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"},
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def test_it_starts_where_nothing_is_compiled_and_a_core_is_free(cold, monkeypatch):
    assert compile_ahead.is_worthwhile("auto") and compile_ahead.is_worthwhile("cpu")
    assert not compile_ahead.is_worthwhile("cuda:0")
    with monkeypatch.context() as one_thread:
        one_thread.setenv("OMP_NUM_THREADS", "1")
        assert not compile_ahead.is_worthwhile("cpu")
    with monkeypatch.context() as one_core:
        one_core.setattr(os, "sched_getaffinity", lambda process: {1}, raising=False)
        assert not compile_ahead.is_worthwhile("cpu")
    with monkeypatch.context() as gpu:
        exists = Path.exists
        gpu.setattr(Path, "exists", lambda path: str(path) == "/dev/nvidiactl" or exists(path))
        assert compile_ahead.is_worthwhile("auto"), "no device is visible"
        gpu.delenv("CUDA_VISIBLE_DEVICES")
        assert not compile_ahead.is_worthwhile("auto") and compile_ahead.is_worthwhile("cpu")
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    assert not compile_ahead.is_worthwhile("cpu")


def test_it_does_not_start_where_numba_finds_the_kernels(tmp_path):
    again = "assert is_worthwhile('cpu'); kernels.attend._cache.flush(); assert not is_worthwhile('cpu')"
    _run(_STARTS + again, NUMBA_CACHE_DIR=str(tmp_path))  # flush writes an index without an entry
    package = Path(graphzoo.__file__).parent
    _run(_STARTS + f"assert place == Path({str(package)!r}) / _PLACE, place")


def test_it_ends_with_the_block(cold, started):
    with pytest.raises(UsageError), compile_ahead.compiling_ahead("cpu"):
        assert started[0].poll() is None
        raise UsageError("no such relation")
    assert started[0].returncode


def test_it_ends_with_the_first_process(cold, started):
    with compile_ahead.compiling_ahead("cpu"):
        started[0].stdin.close()  # as the system does if the first process is killed
        assert started[0].wait(timeout=120) == 0


def test_the_command_continues_if_no_process_can_start(cold, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(cold / "no-python"))
    with pytest.raises(UsageError, match="of the block"), compile_ahead.compiling_ahead("cpu"):
        raise UsageError("of the block")


def test_a_warm_cache_starts_nothing(cold, started):
    cold.mkdir(parents=True)
    (cold / f"kernels.attend-1.py{sys.version_info[0]}{sys.version_info[1]}.nbi").touch()
    with compile_ahead.compiling_ahead("cpu"):
        assert not started


@pytest.mark.parametrize(("words", "expected"), [(["--model", "knowformer-any"], ["auto"]), (["best"], [])])
def test_predict_compiles_ahead_for_shipped_weights(words, expected, monkeypatch, tmp_path):
    devices, file = [], tmp_path / "queries.tsv"
    file.touch()

    @contextmanager
    def noted(device):
        devices.append(device)
        yield

    monkeypatch.setattr(predict, "compiling_ahead", noted)
    monkeypatch.setattr(predict, "_run", lambda arguments: 0)
    assert predict.predict_main([*words, "--queries", str(file)]) == 0
    assert devices == expected


@pytest.mark.slow
def test_all_kernels_of_the_encoder_are_compiled_ahead():
    _run(_NEEDS)
