"""Limit the busy waiting of OpenMP's threads. Standard library only, as it is set before importing torch."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

# Rounds of the waiting loop, some microseconds: enough until the next of several small operations.
_SPIN_COUNT = "1000"


def shorten_waits(environment: MutableMapping[str, str] | None = None) -> None:
    """Make threads of GNU OpenMP sleep soon after an operation of torch; call it before importing torch.

    By default these threads keep a core busy for milliseconds while they wait. Compiled kernels that run on
    other threads (`graphzoo.ops.threads`) then have to share this core: a training step of KnowFormer on two
    cores took a third longer, and several times as long if other programs ran, too. `OMP_WAIT_POLICY` and
    `GOMP_SPINCOUNT` are not changed if the user has set them.

    Args:
        environment: Environment to change, such as that of a new process; None takes that of this process.
    """
    environment = os.environ if environment is None else environment
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
