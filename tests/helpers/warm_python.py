"""A Python for tests that starts at once: a server with torch and Lightning imported forks for each start.

Importing them takes four seconds and their finalisation one and a half, and the tests start more than a
hundred processes. `python()` is the path of a command that takes `-c CODE`, `-m MODULE` or a script, with or
without `-P`, like the interpreter; with other arguments it starts the interpreter. The command `graphzoo` is
in the same folder. Each starts a new process with the streams, arguments, folder and environment of its
caller, which gets its exit status. The process ends with its caller (`helpers.warm_process`).

Tests of imports, peak memory, process numbers, and the interpreter's options, variables or exit must start
`sys.executable` instead.
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
    """The path of the command. Forking is safe on Linux only; on other systems it starts the interpreter."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))  # short, because a socket's path has at most 107 bytes
    command = [sys.executable]
    if sys.platform == "linux":
        assert server(str(folder)).stdout.readline(), "the server has ended"
        command += ["-I", "-S", SCRIPT, "ask", str(folder)]
    write_command(folder / "graphzoo", [*command, "-m", "graphzoo.cli"])
    return write_command(folder / "python", command)


@cache
def server(folder):
    """The server, which prints a line when it listens, and ends when its standard input is closed."""
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
    """End the server if it runs."""
    if python.cache_info().currsize and sys.platform == "linux":
        server(str(Path(python()).parent)).communicate()
