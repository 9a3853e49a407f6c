"""The processes of `helpers.warm_python`: a server that forks, and a small client for each forked process.

python warm_process.py serve FOLDER             the server; it ends when its standard input does
python warm_process.py ask FOLDER -c 'print(1)'
"""

import json
import os
import select
import signal
import socket
import sys

ROOMS = (
    "callbacks", "datamodules", "datasets", "decoders", "encoders", "inference", "metrics", "sampling",
    "tasks",
)  # fmt: skip
MODULES = (
    "graphzoo.cli.commands", "graphzoo.training.launch", "lightning.pytorch.cli", "pandas", "torch._dynamo"
)  # fmt: skip
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# ---- the process that a test starts


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def ask(folder, arguments):
    """Have the server run the arguments, forward signals, and end with the status of that process."""
    safe_path = arguments[:1] == ["-P"]
    words = arguments[safe_path:]
    if not words or (words[0] not in ("-c", "-m") and not words[0].endswith(".py")):
        os.execv(sys.executable, [sys.executable, *arguments])
    streams = [fd for fd in (0, 1, 2) if is_open(fd)]
    job = {"arguments": words, "cwd": os.getcwd(), "env": dict(os.environ), "streams": streams}
    job["safe_path"] = safe_path
    message = json.dumps(job).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"{folder}/socket")
        socket.send_fds(server, [len(message).to_bytes(8, "big")], streams)
        server.sendall(message)
        for number in FORWARDED:
            signal.signal(number, lambda number, frame: server.send(bytes([number])))
        status = int(server.recv(16))
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


# ---- the server


def serve(folder):
    """Fork for each call, until standard input ends. Only forked processes return, with job and streams."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            reap(os.WNOHANG)
            if 0 in ready:
                reap(0)
                shutil.rmtree(folder)
                os._exit(0)
            caller, _ = listener.accept()
            if os.fork() == 0:
                break
            caller.close()
    length, streams, _, _ = socket.recv_fds(caller, 8, 3)
    with caller.makefile("rb") as reader:
        job = json.loads(reader.read(int.from_bytes(length, "big")))
    worker = os.fork()
    if worker:
        watch(worker, caller, streams)
    caller.close()
    return job, streams


def reap(options):
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        return  # there is no child


def watch(worker, caller, streams):
    """Forward the caller's signals to the worker, kill it if the caller ends, and report its status."""
    for fd in (0, 1, 2, *streams):  # readers of the worker's output wait until all copies are closed
        os.close(fd)
    ended = os.pidfd_open(worker)
    while ended not in select.select([ended, caller], [], [])[0]:
        numbers = caller.recv(16)
        for number in numbers or [signal.SIGKILL]:
            os.kill(worker, number)
        if not numbers:
            break
    status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    try:
        caller.send(str(status).encode())
    finally:
        os._exit(0)


# ---- a forked process


def become(job, streams, python, own_path):
    """Set streams, folder, environment and `sys` as in a process that the caller has started."""
    for fd in (0, 1, 2):
        os.close(fd)
    for fd, given in zip(job["streams"], streams, strict=True):
        os.dup2(given, fd)
        os.close(given)
    names = {
        "stdin": (0, "r", "strict"),
        "stdout": (1, "w", "strict"),
        "stderr": (2, "w", "backslashreplace"),
    }
    for name, (fd, mode, errors) in names.items():
        buffering = 1 if fd == 2 or (is_open(fd) and os.isatty(fd)) else -1
        stream = open(fd, mode, buffering, errors=errors, closefd=False) if is_open(fd) else None
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    more = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    kind = job["arguments"][0]
    first = {"-c": "", "-m": os.getcwd()}.get(kind, os.path.dirname(os.path.abspath(kind)))
    sys.path[:] = [*([] if job["safe_path"] else [first]), *more, *own_path]
    sys.executable = python
    import numpy as np

    np.random.seed()  # new processes have different seeds


def run(arguments):
    """Run code, module or script as `__main__`."""
    kind, *rest = arguments
    if kind == "-c":
        code, *sys.argv[1:] = rest
        sys.argv[0] = kind
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        module, *sys.argv[1:] = rest
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = arguments
        runpy.run_path(kind, run_name="__main__")


def ended(arguments):
    """Run the arguments and the interpreter's exit handlers, and return the exit status.

    The interpreter's finalisation is left out: it takes 1.5 seconds and has no visible effect.
    """
    status = 0
    try:
        run(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            status = 120
            print(f"Exception ignored in: {stream}\n{error!r}", file=sys.stderr)
    return status


def preload():
    """Import what a run imports, except Triton's kernels, which read environment variables at import."""
    for name in MODULES:
        importlib.import_module(name)
    for name in ROOMS:
        room = importlib.import_module(f"graphzoo.{name}")
        for public in dir(room):
            getattr(room, public)
    gc.collect()
    gc.freeze()  # so that garbage collection in forked processes does not copy these pages


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(sys.argv[2], sys.argv[3:])
    del sys.path[0]
    import atexit
    import gc
    import importlib
    import runpy
    import shutil
    import threading
    import types

    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    own_path = [path for path in sys.path if path not in given]
    preload()
    job, streams = serve(sys.argv[2])
    become(job, streams, f"{sys.argv[2]}/python", own_path)
    os._exit(ended(job["arguments"]) & 0xFF)
