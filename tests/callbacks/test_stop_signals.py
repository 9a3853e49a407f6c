"""The signals that ask a run to stop: the first is noted, the second ends the run."""

import signal
import threading

import pytest

from graphzoo.callbacks.stop_signals import StopSignals

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def signals():
    before = [signal.getsignal(signum) for signum in SIGNALS]
    handled = StopSignals()
    yield handled
    for signum, handler in zip(SIGNALS, before, strict=True):
        signal.signal(signum, handler)


@pytest.mark.parametrize("first", SIGNALS)
def test_the_first_signal_is_noted_and_the_second_ends_the_run(signals, first):
    signals.handle(at_once=False)
    signal.raise_signal(first)
    assert signals.noted == first
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_second_sigterm_ends_the_process(signals):
    signals.handle(at_once=False)
    signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_after_forget_a_signal_is_the_first_again(signals):
    signals.handle(at_once=False)
    signal.raise_signal(signal.SIGINT)
    signals.forget()
    signal.raise_signal(signal.SIGINT)
    assert signals.noted == signal.SIGINT


def test_handlers_of_others_stay(signals):
    """Another handler that was set in between is not replaced, and another thread sets none."""
    own = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=signals.handle, kwargs={"at_once": False})
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == own
    signals.handle(at_once=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.restore()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) == own
