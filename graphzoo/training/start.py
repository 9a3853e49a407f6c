"""Starts runs from another command, in the same process or in a new one."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphzoo.errors import UsageError, shorten
from graphzoo.system.regular_files import read_regular_text
from graphzoo.system.shown import tell


def settings_of(command: str, options: list[str]) -> dict[str, Any]:
    """The whole configuration of a training command with these options, defaults included."""
    import yaml

    from graphzoo.training.launch import run_plan
    from graphzoo.training.plan import make_plan

    said, refused = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(refused):
        status = run_plan(make_plan(command, [*options, "--print_config"]))
    if status:
        raise UsageError(refused.getvalue().strip().removeprefix("graphzoo: "))
    # own modules may have printed before, while they were imported
    settings: dict[str, Any] = yaml.safe_load(re.split(r"^(?=# graphzoo )", said.getvalue(), flags=re.M)[-1])
    return settings


def one_device(words: list[str]) -> list[str]:
    """The words with `--trainer.devices=1` unless they name devices, since Lightning would take them all."""
    if any(word.partition("=")[0] == "--trainer.devices" for word in words):
        return words
    return [*words, "--trainer.devices=1"]


def run_command(arguments: list[str]) -> int:
    """Run `graphzoo ARGUMENTS` in a new process.

    Returns:
        Its exit status; 128 + the signal if a signal ended it. If this process receives a signal meanwhile:
        128 + that signal, however the new process ended.
    """
    with started(arguments) as (process, received):
        status = process.wait()
    if received:
        return 128 + received[-1]
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def started(
    arguments: list[str], **streams: Any
) -> Iterator[tuple[subprocess.Popen[bytes], list[signal.Signals]]]:
    """Start `graphzoo ARGUMENTS` in a new process; yield it and the list of signals received meanwhile.

    A new process is needed since Lightning starts further processes with the command line of its own one.
    """
    dropped = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "GRAPHZOO_RUN_DIR", "PL_GLOBAL_SEED")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    if os.getcwd() not in map(os.path.abspath, sys.path):  # "" is the current folder, too
        # `-m` would put the current folder first on the path; see `own_code`. Unlike `-P`, the processes that
        # Lightning starts from the new one have it, too.
        environment["PYTHONSAFEPATH"] = "1"
    command = [sys.executable, "-m", "graphzoo.cli", *arguments]
    received: list[signal.Signals] = []
    process: subprocess.Popen[bytes] | None = None

    def pass_on(signum: int, frame: Any) -> None:
        # A Ctrl-C in the terminal reaches both processes, and a signal from `kill` only this one. A repeated
        # SIGINT is passed on: it came from `kill`, or the user wants both processes to end at once.
        has_come = signum == signal.SIGINT and signum not in received and _is_in_foreground()
        received.append(signal.Signals(signum))
        if process is not None and not has_come:
            process.send_signal(signum)

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # Installed before the process starts; otherwise it could outlive this one without the signal.
        before = {signum: signal.signal(signum, pass_on) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        with subprocess.Popen(command, env=environment, **streams) as process:
            if received:
                process.send_signal(received[-1])
            yield process, received
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _is_in_foreground() -> bool:
    """Whether a Ctrl-C in the terminal reaches this process and the processes that it started."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # the terminal was closed
        return False
    finally:
        os.close(terminal)


def last_words(log: Path) -> str:
    """The last error message in a run's output, or else its last line."""
    text = read_regular_text(log, errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith("graphzoo: ")]
    return (messages or lines or ["it printed nothing"])[-1].removeprefix("graphzoo: ")


def run_here(arguments: list[str]) -> int:
    """Run a training command in this process, which saves the imports; returns its exit status."""
    from graphzoo.training.launch import run_plan
    from graphzoo.training.plan import make_plan

    command, *words = arguments
    try:
        return run_plan(make_plan(command, words))
    except UsageError as error:
        tell(shorten(f"graphzoo: {error}") + "\n")
        return 2
