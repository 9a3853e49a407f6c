"""Scripts in several processes, started as torchrun starts them."""

import os
import socket
import subprocess
import time
from pathlib import Path

from helpers.warm_python import python

TESTS = Path(__file__).resolve().parents[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(
    words: list[Path], folder: Path, world_size: int, interpreter: str = ""
) -> list[subprocess.Popen[bytes]]:
    """The processes of a world: a script with its arguments in the environment that torchrun gives them."""
    common = {
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHELASTIC_RUN_ID": "tests",
    }
    command = [interpreter or python(), *map(str, words)]
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=(folder / f"errors-{world_size}-{rank}").open("wb"),
        )
        for rank in range(world_size)
    ]


def wait(started: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Until all have ended; one that fails leaves others waiting for it: do not wait with them."""
    deadline = time.monotonic() + 900
    try:
        while None in (codes := [process.poll() for process in started]) and not any(codes):
            assert time.monotonic() < deadline, "processes hang"
            time.sleep(0.2)
    finally:
        for process in started:
            process.kill()
            process.wait()
    errors = "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("errors-*")))
    assert not any(process.returncode for process in started), errors


def launch(words: list[Path], folder: Path, world_size: int, interpreter: str = "") -> None:
    """Run a script in a world of processes; an `AssertionError` with what they said if one fails."""
    wait(start(words, folder, world_size, interpreter), folder)
