"""Signals in the test that follows a training."""

import signal
from types import SimpleNamespace

import pytest

from graphzoo.callbacks.checkpoint import Interrupted, LastCheckpoint


def test_a_test_of_several_processes_leaves_signals_to_lightning(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    checkpoint = LastCheckpoint(tmp_path)
    checkpoint.on_test_start(SimpleNamespace(world_size=2), None)
    assert signal.getsignal(signal.SIGINT) is before
    checkpoint.on_test_start(SimpleNamespace(world_size=1), None)
    try:
        assert signal.getsignal(signal.SIGINT) is not before
    finally:
        checkpoint.teardown(None, None, "test")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_after_the_last_save_is_heard_before_the_test(tmp_path):
    checkpoint = LastCheckpoint(tmp_path)
    checkpoint._signum = signal.SIGTERM
    with pytest.raises(Interrupted):
        checkpoint.on_test_start(SimpleNamespace(world_size=1), None)
