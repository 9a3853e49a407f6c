"""A Python for tests that is up at once: a server that has imported torch and Lightning forks for each start.

Importing them takes four seconds, taking them apart one and a half, and the tests start more than a hundred
processes. `python()` is the path of a command that takes `-c CODE`, `-m MODULE` or a script, with or without
`-P`, as the interpreter does; given anything else it becomes the interpreter. `graphzoo` lies beside it. What
they start is a process of its own with the streams, arguments, folder, environment and exit status of its
caller, and it ends with its caller (`helpers.warm_process`).

This is for tests of what a program does. A test of what is imported, of the interpreter's options, variables
or end, of peak memory, or of process numbers starts `sys.executable`.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = str(Path(__file__).with_name("warm_process.py"))


@cache
def python():
    """The path of the command. Forking is safe on Linux only; elsewhere it starts the interpreter."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))  # short: a socket's path has 107 letters at most
    command = [sys.executable]
    if sys.platform == "linux":
        assert server(str(folder)).stdout.readline(), "the server has ended"
        command += ["-I", "-S", SCRIPT, "ask", str(folder)]
    write_command(folder / "graphzoo", [*command, "-m", "graphzoo.cli"])
    return write_command(folder / "python", command)


@cache
def server(folder):
    """The server, which says when it listens, and ends when its standard input does."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, SCRIPT, "serve", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
    )


def write_command(path, words):
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)
    return str(path)


def stop():
    """End the server, if there is one."""
    if python.cache_info().currsize and sys.platform == "linux":
        server(str(Path(python()).parent)).communicate()
