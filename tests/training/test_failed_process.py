"""A process that fails aborts an NCCL group first, since later steps could wait for the other processes."""

import signal
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from graphzoo.callbacks import Interrupted
from graphzoo.system.processes import abort_group
from graphzoo.training.callbacks import Began


@pytest.fixture
def group(monkeypatch):
    """`group(backend)` fakes a process group of this backend; returns the list of actions."""
    done = []

    def make(backend, error=None):
        def abort():
            done.append("aborted")
            if error is not None:
                raise error

        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: backend is not None)
        monkeypatch.setattr(torch.distributed, "get_backend", lambda: backend)
        monkeypatch.setattr(torch.distributed.distributed_c10d, "_abort_process_group", abort)
        return done

    return make


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("nccl", ["aborted"]), ("cpu:gloo,cuda:nccl", ["aborted"]), ("gloo", []), (None, [])],
)
def test_only_nccl_is_aborted(group, backend, expected):
    done = group(backend)
    abort_group()
    assert done == expected


def test_an_abort_that_fails_does_not_hide_the_failure(group):
    done = group("nccl", RuntimeError("it is gone"))
    abort_group()
    assert done == ["aborted"]


class Launcher(_SubprocessScriptLauncher):
    def __init__(self, done):
        self.done, self.procs = done, [object()]

    def kill(self, signum):
        self.done.append(signum)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("wrong"), ["aborted", signal.SIGKILL]),
        (RuntimeError("NCCL error: remote process exited or there was a network error"), ["aborted"]),
        (Interrupted(signal.SIGTERM, None), []),
        (KeyboardInterrupt(), []),
    ],
    ids=["a failure", "of another process", "a signal, after its checkpoint", "Ctrl-C"],
)
@pytest.mark.fault(
    "one of several processes on GPUs (NCCL) fails",
    "it aborts the group at once, so that the others do not wait ten minutes",
)
def test_a_failure_aborts_the_group_first(group, error, expected):
    done = group("nccl")
    trainer = SimpleNamespace(training=False, strategy=SimpleNamespace(launcher=Launcher(done)))
    Began(SimpleNamespace()).on_exception(trainer, None, error)
    assert done == expected
    # Lightning would see the killed process and kill this one before it prints its error.
    assert bool(trainer.strategy.launcher.procs) == (signal.SIGKILL not in expected)
