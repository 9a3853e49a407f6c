"""Runs of one to three steps with all recipes and random options, valid and invalid ones.

    python -m benchmarks.load_test --runs 200 --seed 0

Each run is the command in this process, with a time limit. It must end with a result (status 0), or with a
message of at most six lines and status 2 (a wrong setting) or 1 (a failed run). A run that hangs, prints a
traceback or ends with an unexplained Python error is listed, and the benchmark's status is 1. If data are not
in GRAPHZOO_DATA or their steps take gigabytes, small generated data replace them, so that the recipe's model,
optimizer and batches are tested nevertheless. `--resume` continues after the runs in --out.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import csv
import importlib
import inspect
import io
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import types
import typing
import warnings
from collections import Counter
from pathlib import Path

import yaml

from benchmarks.stand_ins import stand_in
from benchmarks.time_limit import OutOfTime, time_limit

RESULTS = Path(__file__).parent / "results" / "load_test.csv"
COLUMNS = ("run", "recipe", "kind", "status", "outcome", "lines", "seconds", "peak_mb", "options", "message")
LINES = 6
PART = 25
BAD = ("hang", "traceback", "unexplained")
# A step takes minutes or gigabytes on two cores.
BIG = re.compile(
    r"^(fb15k237|wn18rr|nell995|yago310|codex-m|ogb|pokec|amazon2m|mini-imagenet|20news|deezer|pubmed-link)"
)
SMALL_GRAPHS = re.compile(r"^(fb15k237|wn18rr|nell995)-v1$")
# Errors that do not help a user.
UNEXPLAINED = re.compile(
    r"^graphzoo: (Traceback|AssertionError|AttributeError|IndexError|KeyError|NameError|RecursionError|"
    r"UnboundLocalError|StopIteration|ZeroDivisionError|NotImplementedError|"
    r"RuntimeError: (?!.*(memory|allocate))|.* not supported between instances)"
)
# Values that the parser refuses, like most typing mistakes; 60 % of the runs have none of them.
WRONG = {"abc", "foo", "maybe", "soon", "[1]", "{a: 1}", ""}
NUMBERS = ["0", "1", "2", "3", "-1", "7", "1.5", "abc", "null", "99999999999"]
FRACTIONS = ["0", "0.1", "0.5", "1", "2", "-1", "nan", "inf", "1e-30", "abc", "null"]
TRAINER = {
    "precision": ["32-true", "bf16-mixed", "64-true", "foo"],
    "gradient_clip_val": ["0.5", "0", "-1", "abc"],
    "accumulate_grad_batches": ["1", "2", "0", "-1"],
    "log_every_n_steps": ["1", "3", "0", "-1"],
    "check_val_every_n_epoch": ["1", "2", "0", "null"],
    "val_check_interval": ["1", "0.5", "0", "9"],
    "limit_train_batches": ["1", "2", "0", "-1", "1.5"],
    "enable_checkpointing": ["true", "false", "maybe"],
    "deterministic": ["true", "false", "warn"],
    "num_sanity_val_steps": ["0", "1", "-1"],
    "fast_dev_run": ["true", "2", "false"],
    "devices": ["1", "0", "auto"],
    "max_time": ["00:00:01:00", "soon"],
    "max_epochs": ["1", "0", "-1", "-2"],
}


def recipes() -> list[tuple[str, str, str]]:
    """Model, name and data of every recipe."""
    from graphzoo.catalog.presets import list_presets

    found = []
    for preset in list_presets("recipe"):
        model, _, name = preset.name.partition("/")
        found.append((model, name, preset.header.get("data", name)))
    return found


def class_paths(model: str, data: str) -> dict[str, str]:
    """The class of each option prefix for which the presets name one."""
    from graphzoo.catalog.presets import find_preset

    found: dict[str, str] = {}
    for kind, name in (("data", data), ("model", model)):
        content = yaml.safe_load(find_preset(kind, name).path.read_text()) or {}
        for section in ("model", "data"):
            described = content.get(section) or {}
            if "class_path" in described:
                found[section] = described["class_path"]
            encoder = (described.get("init_args") or {}).get("encoder")
            if isinstance(encoder, dict) and "class_path" in encoder:
                found["model.encoder"] = encoder["class_path"]
    return found


def choices(annotation: object) -> list[str]:
    """Values that fit a type, and some that do not."""
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return [*map(str, parts), "foo"]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return sorted(
            {value for part in parts if part is not type(None) for value in choices(part)} | {"null"}
        )
    if annotation is bool:
        return ["true", "false", "maybe"]
    if annotation is int:
        return NUMBERS
    if annotation is float:
        return FRACTIONS
    if annotation is str:
        return ["foo", "", "0"]
    return ["foo", "null", "[1]", "{a: 1}"]


def typed_options(model: str, data: str) -> dict[str, list[str]]:
    """Options of task, encoder, data module and Trainer with values to draw from."""
    found = {f"--trainer.{name}": values for name, values in TRAINER.items()}
    for prefix, path in class_paths(model, data).items():
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        hints = typing.get_type_hints(kind.__init__)
        for parameter in inspect.signature(kind).parameters.values():
            # sources of data are not drawn, and num_workers would start processes
            if parameter.name in (
                "spec",
                "self",
                "encoder",
                "root",
                "path",
                "name",
                "download",
                "num_workers",
            ):
                continue
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                found[f"--{prefix}.{parameter.name}"] = choices(hints.get(parameter.name, str))
    return found


def command(
    draw: random.Random, model: str, recipe: str, data: str, *, small: Path | None
) -> tuple[list[str], list[str]]:
    """The words of a run, and the drawn ones among them; with `small`, on generated data."""
    # heuristics are not trained
    words = [
        "test" if model.startswith("heuristic.") else "fit",
        "--model",
        model,
        *(["--data", data] if small is None else stand_in(task_of(data), data, small)),
        "--recipe",
        recipe,
        "--data.download=false",
    ]
    words += ["--trainer.accelerator=cpu", f"--seed={draw.randrange(100)}"]
    words += ["--trainer.enable_progress_bar=false", f"--trainer.max_steps={draw.randint(1, 3)}"]
    words += [
        "--trainer.limit_val_batches=1",
        "--trainer.limit_test_batches=1",
        "--trainer.num_sanity_val_steps=0",
    ]
    options = typed_options(model, data)
    for name, value in (("batch_size", 8), ("micro_batch_size", 4), ("eval_batch_size", 4)):
        if f"--data.{name}" in options and task_of(data) != "node-classification":
            words.append(f"--data.{name}={value}")
    if draw.random() < 0.6:
        options = {
            name: kept for name, values in options.items() if (kept := [v for v in values if v not in WRONG])
        }
    drawn = [
        f"{name}={draw.choice(options[name])}"
        for name in draw.sample(sorted(options), k=draw.choice([0, 1, 1, 2, 3]))
    ]
    return [*words, *drawn], drawn


def task_of(data: str) -> str:
    """The task of a data set."""
    from graphzoo.catalog.presets import find_preset

    return find_preset("data", data).header["task"]


def run_one(words: list[str], seconds: float) -> tuple[int, str, str]:
    """Status, outcome and stderr of a run."""
    from graphzoo.cli import main

    out, err = io.StringIO(), io.StringIO()
    status, outcome = -1, ""
    try:
        with time_limit(seconds), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                status = main(words)
    except OutOfTime:
        outcome = "hang"
    except BaseException as error:
        outcome, err = "traceback", io.StringIO(f"graphzoo: Traceback {type(error).__name__}: {error}")
    text = err.getvalue()
    return status, outcome, text


def judge(status: int, outcome: str, text: str) -> tuple[str, str]:
    """The outcome of a run and its message."""
    lines = text.splitlines()
    begin = next(
        (number for number, line in enumerate(lines) if re.match(r"graphzoo( \w+)?: (?!.*writes )", line)), 0
    )
    message = "" if status == 0 else "\n".join(lines[begin:])
    if outcome:
        return outcome, message
    if status == 0:
        return "result", ""
    if "Traceback" in text or status not in (1, 2) or len(message.splitlines()) > LINES or not message:
        return "unexplained", message
    if UNEXPLAINED.search(message):
        return "unexplained", message
    return ("refused" if status == 2 else "failed"), message


def in_parts(arguments: argparse.Namespace, last: int) -> int:
    """Run in a new process for every few runs; after two hundred, one keeps gigabytes of freed memory."""
    rows: list[list[str]] = []
    if arguments.resume and arguments.out.is_file():
        with arguments.out.open(newline="") as file:
            rows = [row for row in list(csv.reader(file))[1:] if arguments.first <= int(row[0]) < last]
    status = int(any(row[COLUMNS.index("outcome")] in BAD for row in rows))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for first in range(arguments.first + len(rows), last, PART):
            part = Path(folder) / "part.csv"
            words = ["--first", str(first), "--runs", str(min(PART, last - first)), "--out", str(part)]
            words += ["--seed", str(arguments.seed), "--seconds", str(arguments.seconds)]
            words += ["--gigabytes", str(arguments.gigabytes)]
            done = subprocess.run([sys.executable, "-m", "benchmarks.load_test", *words], check=False)
            status |= done.returncode
            with part.open(newline="") as file:
                rows += list(csv.reader(file))[1:]
            arguments.out.parent.mkdir(exist_ok=True)
            with arguments.out.open("w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *rows])
    counted = Counter(f"{row[COLUMNS.index('outcome')]} ({row[COLUMNS.index('kind')]})" for row in rows)
    peak = max(int(row[COLUMNS.index("peak_mb")]) for row in rows)
    print(f"{len(rows)} runs in {(time.monotonic() - began) / 60:.1f} minutes, seed {arguments.seed}")
    print(f"{dict(counted)}, at most {peak} MB")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load_test", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=180, help="time limit of a run")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", type=int, help="number of a run to repeat, with its output")
    parser.add_argument("--resume", action="store_true", help="continue after the runs in --out")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--gigabytes", type=float, default=4, help="memory limit of the process")
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.first < 0 or arguments.seconds <= 0 or arguments.gigabytes <= 0:
        parser.error("--runs, --seconds and --gigabytes must be above 0, --first at least 0")
    if arguments.only is not None and not 0 <= arguments.only - arguments.first < arguments.runs:
        last = arguments.first + arguments.runs - 1
        parser.error(f"--only must be one of the runs {arguments.first} to {last}, got {arguments.only}")
    root = os.environ.get("GRAPHZOO_DATA")
    os.environ.update(WANDB_MODE="offline", GRAPHZOO_OFFLINE="1")
    last = arguments.first + arguments.runs
    if arguments.only is None and arguments.runs > PART:
        return in_parts(arguments, last)
    import graphzoo.training.launch  # noqa: F401  # not in the time of the first run

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + int(arguments.gigabytes * (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    order = recipes()
    data_folder = tempfile.mkdtemp(prefix="graphzoo-stand-ins-")
    atexit.register(shutil.rmtree, data_folder, ignore_errors=True)
    counted: Counter[str] = Counter()
    rows, bad = [], []
    began = time.monotonic()
    for number in range(arguments.first, last):
        model, recipe, data = order[number % len(order)]
        if arguments.only is not None and number != arguments.only:
            continue
        start = time.monotonic()
        is_big = bool(BIG.match(data)) and not SMALL_GRAPHS.match(data)
        for small in ([] if is_big else [None]) + [Path(data_folder)]:
            draw = random.Random(f"{arguments.seed} {number}")
            words, drawn = command(draw, model, recipe, data, small=small)
            with tempfile.TemporaryDirectory(prefix="graphzoo-load-") as folder, contextlib.chdir(folder):
                status, outcome, text = run_one(words, arguments.seconds)
            outcome, message = judge(status, outcome, text)
            if not (outcome == "refused" and "put it at" in message):
                break
        kind = "run" if small is None else "stand-in"
        seconds = round(time.monotonic() - start, 2)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        counted[f"{outcome} ({kind})"] += 1
        shown = " ".join(drawn)
        told = message.replace("\n", " / ")[:300]
        length = len(message.splitlines())
        rows.append((number, f"{model}/{recipe}", kind, status, outcome, length, seconds, peak, shown, told))
        if outcome in BAD:
            bad.append(number)
            print(f"run {number}: {outcome}: graphzoo {shlex.join(words)}\n{message[-600:]}", flush=True)
        if arguments.only is not None:
            print(shlex.join(words), text, f"status {status}: {outcome}", sep="\n")
    if arguments.only is None:
        arguments.out.parent.mkdir(exist_ok=True)
        with arguments.out.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])
    whole = time.monotonic() - began
    print(
        f"{len(rows)} runs in {whole / 60:.1f} minutes, seed {arguments.seed}, data {root}: {dict(counted)}; "
        f"runs to look at: {bad or 'none'}",
        flush=True,
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
