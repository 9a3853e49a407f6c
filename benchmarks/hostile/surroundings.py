"""Attempts with good files: hostile options, streams and environments."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.hostile.attempt import FIT, REPRODUCE, SEARCH, Attempt
from benchmarks.hostile.damage import NAMES, NUMBERS, PATHS
from benchmarks.hostile.runs import ask, lay_run


def options(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    commands: list[list[str]] = [
        [*FIT[kind], "--run_dir", "out"],
        ["test", "--ckpt_path", "run", "--run_dir", "out"],
        ["list", "models"],
        ["predict", "--ckpt_path", "run", "--queries", "queries.tsv"],
        ["export", "run", "--out", "out"],
        ["results", "run"],
        ["plot", "run", "--no-model", "--out", "out.html"],
        ["doctor"],
        ["download", "umls"],
        ["completion", "bash"],
        ["dashboard", "--project", "p", "--out", "out"],
        [*SEARCH, "--sweep", "out"],
        REPRODUCE,
        ["_complete", "3", "fit", "--model", "k"],
    ]
    names = [
        "--model.lr",
        "--model.encoder.num_layers",
        "--model.encoder.hidden_channels",
        "--data.batch_size",
        "--seed",
        "--trainer.max_epochs",
        "--trainer.devices",
        "--trainer.precision",
        "--trainer.callbacks",
        "--config",
        "--run_dir",
        "--ckpt_path",
        "--recipe",
        "--trainer",
        "--logger",
        "--model",
        "--data",
        "--data.path",
        "--out",
        "--format",
        "--queries",
        "--top-k",
        "--device",
        "--explain",
        "--candidates",
        "--batch-size",
        "--score",
        "--data.root",
        "--data.cache",
        "--trainer.default_root_dir",
        "--model.encoder",
        "--trials",
        "--to",
        "--debug",
        "--trainer.logger",
        "--trainer.strategy",
        "--data.num_workers",
        "--trainer.max_time",
        "--help",
        "-h",
        "--",
    ]
    words = list(draw.choice(commands))
    for _ in range(draw.choice([1, 1, 2, 3])):
        value = draw.choice(
            [
                *NAMES,
                *NUMBERS,
                *PATHS,
                "[1",
                "{a: [1}",
                "!!python/object:os.system x",
                "os.system",
                "[]",
                "{}",
                "null",
            ]
        )
        value = value.replace("\x00", "")  # not possible in a command line
        match draw.randrange(5):
            case 0:
                words.insert(draw.randrange(1, len(words) + 1), value)
            case 1 if len(words) > 1:
                words[draw.randrange(1, len(words))] = value
            case 2 if len(words) > 2 and words != REPRODUCE:  # without --in-process, it starts processes
                del words[draw.randrange(1, len(words))]
            case _:
                name = draw.choice(names)
                words += draw.choice([[name, value], [f"{name}={value}"]])
    if "fit" in words[:1]:
        words += ["--trainer.max_steps=1"]
    # folders in the command line may be written
    return Attempt(
        words,
        tuple(word.partition("=")[2] or word for word in words)
        + ("out", "runs", "out.html", "report.html", "search"),
        memory=True,
    )


def streams(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    attempt = draw.choice(
        [
            ask(draw, kind),
            Attempt(["list", "data"]),
            Attempt(["results", "run"]),
            Attempt(["doctor"]),
            Attempt(["--help"]),
            Attempt(
                ["predict", "--ckpt_path", "run", *(["--queries", "queries.tsv"] if kind == "kg" else [])]
            ),
        ]
    )
    if callable(attempt.todo):
        attempt = Attempt(["list", "models"])

    def spoil() -> None:
        for descriptor in draw.choice([(1,), (2,), (1, 2), (0, 1), (0, 1, 2)]):
            how = draw.randrange(3)
            if how == 0:
                os.close(descriptor)
            elif how == 1:
                full = os.open("/dev/full", os.O_WRONLY)
                os.dup2(full, descriptor)
                os.close(full)
            else:
                reader, writer = os.pipe()
                os.close(reader)
                os.dup2(writer, descriptor)
                os.close(writer)

    attempt.around.append(spoil)
    return attempt


def surroundings(draw: random.Random, base: Path) -> Attempt:
    """A good command in a bad environment: users, HOME, clock, links, locks, disk, file handles, folders."""
    kind = lay_run(draw, base)
    attempt = draw.choice(
        [
            ask(draw, kind),
            ask(draw, kind),
            Attempt([*FIT[kind], "--run_dir", "out", "--quiet"], ("out",)),
            Attempt(["doctor"]),
            Attempt(["list", "data"]),
            Attempt(["download", "umls"]),
        ]
    )
    attempt.writes += ("home", ".cache")

    def refused(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    def nobody() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    def backwards() -> None:
        real = time.time
        began = real()
        time.time = lambda: began - (real() - began) * 3600

    def limit(which: int, value: int) -> Callable[[], object]:
        import resource

        return lambda: resource.setrlimit(which, (value, resource.getrlimit(which)[1]))

    import resource

    def no_locks() -> None:
        fcntl.flock = fcntl.lockf = fcntl.fcntl = refused

    def gone() -> None:
        Path("gone").mkdir()
        os.chdir("gone")
        os.rmdir("../gone")

    def file_size() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit(resource.RLIMIT_FSIZE, draw.choice([0, 1, 1000, 20_000]))()

    def send(number: int) -> Callable[[], object]:
        def soon() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            own, pause = os.getpid(), draw.uniform(0, 3)
            if not os.fork():
                time.sleep(pause)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(own, number)
                    time.sleep(0.5)
                    os.kill(own, signal.SIGCONT)
                os._exit(0)

        return soon

    choices: list[list[Callable[[], object]]] = [
        [lambda: os.environ.pop("HOME", None), lambda: os.environ.pop("XDG_CACHE_HOME", None)],
        [lambda: os.environ.update(HOME="/proc"), lambda: os.environ.pop("XDG_CACHE_HOME", None)],
        [lambda: os.environ.update(XDG_CACHE_HOME="/dev/full/x")],
        [lambda: os.environ.update(XDG_CACHE_HOME="relative\x1b[2J")],
        [lambda: os.environ.update(TMPDIR="/nowhere")],
        [nobody],
        [nobody, lambda: os.environ.update(HOME=pwd.getpwuid(0).pw_dir)],
        [lambda: shutil.chown("run", 65534), nobody],
        [backwards],
        [lambda: setattr(os, "link", refused)],
        [lambda: setattr(os, "symlink", refused)],
        [no_locks],
        [no_locks, lambda: setattr(os, "link", refused)],
        [limit(resource.RLIMIT_NOFILE, draw.choice([8, 16, 40]))],
        [file_size],
        [file_size],
        [gone],
        [lambda: os.umask(0o777)],
        [lambda: os.chmod(".", 0o555), nobody],
        [lambda: os.environ.update(COLUMNS="1", LINES="1")],
        [lambda: os.environ.update(COLUMNS="x")],
        [lambda: os.environ.update(GRAPHZOO_DATA="\udc80")],
        [lambda: os.environ.update(GRAPHZOO_DATA="/dev/zero")],
        [send(signal.SIGHUP)],
        [send(signal.SIGSTOP)],
        [send(signal.SIGTERM)],
        [send(signal.SIGINT)],
    ]
    attempt.around += draw.choice(choices)
    return attempt
