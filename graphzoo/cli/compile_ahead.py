"""Compiles KnowFormer's kernels in a second process, while the first imports torch and reads the data.

On the first use after installation, numba's compilation takes longer than everything else. The first process
compiles the kernels of the neighbourhoods; the second one those of the encoder, which are needed last. They
share their results through numba's cache. This module imports only the standard library until it compiles.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphzoo.system.paths import existing_parent

_PLACE = Path("ops", "prototype_layer", "__pycache__")
# numba's index of the kernel that takes longest to compile
_COMPILED = f"kernels.attend-*.py{sys.version_info[0]}{sys.version_info[1]}*.nbi"


def is_worthwhile(device: str) -> bool:
    """Whether the kernels for a CPU are not compiled yet, and a second core may be used.

    If an older version has compiled them, numba replaces them file by file, and the other process might read
    an old and a new file together. Then this process works alone.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if device == "auto" and Path("/dev/nvidiactl").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != "":
        return False  # a GPU, for which nothing here is needed
    if device not in ("auto", "cpu") or cores == 1 or os.environ.get("OMP_NUM_THREADS") == "1":
        return False
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(chosen) if chosen else Path(__file__).parents[1] / _PLACE
    found = folder.glob(f"{_PLACE.parts[1]}_*/{_COMPILED}" if chosen else _COMPILED)
    return os.access(existing_parent(folder), os.W_OK) and not any(found)


@contextmanager
def compiling_ahead(device: str) -> Iterator[None]:
    """Compile in a second process, which ends with the block, or with this process, however it ends."""
    if not is_worthwhile(device):
        yield
        return
    code = f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as it; it.compile_kernels({device!r})"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:  # no process or no memory left for one: this one compiles what it needs
        yield
        return
    with process:
        try:
            yield
        finally:
            process.kill()


def compile_kernels(device: str) -> None:
    """Run in the second process: call each op of the encoder once, the last and longest one first."""
    threading.Thread(target=_leave_with_the_first, daemon=True).start()
    import torch

    if device == "auto" and torch.cuda.is_available():
        return

    from graphzoo.ops import RelationalGraph, relational_spmm
    from graphzoo.ops.message_update import message_update
    from graphzoo.ops.prototype_layer import prototype_layer
    from graphzoo.ops.state_mlp import state_mlp

    states, row, square, edge = torch.zeros(2, 2, 4), torch.zeros(4), torch.zeros(4, 4), torch.arange(2)
    maps = (row, square, row, square, row, row, row)
    with torch.no_grad():
        twice = (torch.zeros(8, 4), torch.zeros(8))
        prototype_layer(states, states, states, twice, (row, *maps), num_heads=1)
        state_mlp(states, states[..., :1].contiguous(), square, row, (row, square, row))
        graph = RelationalGraph(torch.stack([edge, edge]), edge, 2, 2)
        for width in (32, 1):  # states of one query, and rows of any other size
            relational_spmm(torch.zeros(2, width), torch.zeros(2, width), graph)
        message_update(states, states, maps)


def _leave_with_the_first() -> None:
    """Exit when the first process ends: this closes the pipe, even if it was killed."""
    os.read(0, 1)
    os._exit(0)
