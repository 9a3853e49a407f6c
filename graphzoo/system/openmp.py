"""How long OpenMP's threads wait awake. Standard library only: it has to be said before torch is imported."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

# Rounds of the waiting loop, some microseconds: long enough for the next of several small operations.
_SPIN_COUNT = "1000"


def shorten_waits(environment: MutableMapping[str, str] | None = None) -> None:
    """Let GNU OpenMP's threads go to sleep soon after an operation of torch, before torch is imported.

    By default they keep a core busy for milliseconds, waiting for more. Compiled kernels that run on threads
    of their own (`graphzoo.ops.threads`) then share that core with them: a training step of KnowFormer on two
    cores took a third longer, and several times as long beside other work. What the user has set
    (`OMP_WAIT_POLICY`, `GOMP_SPINCOUNT`) stays. The environment may be that of a process to be started.
    """
    environment = os.environ if environment is None else environment
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
