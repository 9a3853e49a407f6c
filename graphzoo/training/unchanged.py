"""What a run changes of its process, put back for a caller in Python who continues to work in it."""

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

# Set by Lightning's seeding, by its determinism, and by the run directory's choice.
_VARIABLES = ("GRAPHZOO_RUN_DIR", "PL_GLOBAL_SEED", "PL_SEED_WORKERS", "CUBLAS_WORKSPACE_CONFIG")
_SETTING = "omegaconf_absolute_to_relative_paths"


@contextlib.contextmanager
def unchanged_process() -> Iterator[None]:
    """Put back random states, signal handlers, environment and switches of torch when the block ends.

    Gradients are computed inside, wherever the caller is.
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
    """Put back the states of all random numbers when the block ends."""
    python, numbers = random.getstate(), np.random.get_state()
    try:
        # named, or torch would warn of many of them
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _VARIABLES}
    if "LOCAL_RANK" not in os.environ:
        # of an earlier run; a process that Lightning started for this one has it from the first
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
        yield  # only the main thread may set them, so that nothing has to be put back
        return
    watched = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGUSR1", signal.SIGINT)}
    before = {signum: signal.getsignal(signum) for signum in watched}
    try:
        yield
    finally:
        for signum, handler in before.items():
            if handler is not None:  # installed from C: nobody can put it back, nor did anybody take it
                signal.signal(signum, handler)
