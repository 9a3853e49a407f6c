"""Restores the state of the process that a run changes, for callers in Python."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator

import jsonargparse
import numpy as np
import torch
from jsonargparse._common import get_parsing_setting

# Lightning's seeding and determinism, and the choice of a run directory set these.
_VARIABLES = ("GRAPHZOO_RUN_DIR", "PL_GLOBAL_SEED", "PL_SEED_WORKERS", "CUBLAS_WORKSPACE_CONFIG")
_SETTING = "omegaconf_absolute_to_relative_paths"


@contextlib.contextmanager
def unchanged_process() -> Iterator[None]:
    """Restore random states, signal handlers, environment and settings of torch when the block ends.

    Inside the block gradients are enabled, even if the caller has disabled them.
    """
    with contextlib.ExitStack() as after, torch.inference_mode(False), torch.enable_grad():
        after.enter_context(random_states())
        after.enter_context(_environment())
        after.enter_context(_signal_handlers())
        parses = get_parsing_setting(_SETTING)
        after.callback(jsonargparse.set_parsing_settings, omegaconf_absolute_to_relative_paths=parses)
        is_deterministic = torch.are_deterministic_algorithms_enabled()
        only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
        after.callback(torch.use_deterministic_algorithms, is_deterministic, warn_only=only_warns)
        after.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
        yield


@contextlib.contextmanager
def random_states() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch when the block ends."""
    python, numbers = random.getstate(), np.random.get_state()
    try:
        # listed, because torch warns about many devices otherwise
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _VARIABLES}
    if "LOCAL_RANK" not in os.environ:
        # Set by an earlier run. A process that Lightning started takes it from the first process.
        os.environ.pop("GRAPHZOO_RUN_DIR", None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _signal_handlers() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can change handlers
        return
    watched = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGUSR1", signal.SIGINT)}
    before = {signum: signal.getsignal(signum) for signum in watched}
    try:
        yield
    finally:
        for signum, handler in before.items():
            if handler is not None:  # None: installed from C, and not replaceable from Python
                signal.signal(signum, handler)
