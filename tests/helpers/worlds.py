"""Scripts in several processes with the environment variables of torchrun."""

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
    """Start `world_size` processes of a script, with the environment variables of torchrun."""
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
    """Wait until all have ended. If one fails, kill the others, which may wait for it."""
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
    """Run a script in several processes; if one fails, an `AssertionError` has their error output."""
    wait(start(words, folder, world_size, interpreter), folder)
