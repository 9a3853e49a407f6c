"""Thousands of hostile attempts against the program: damaged files, wrong options, bad environments.

    python -m benchmarks.hostile_campaign --attempts 5000 --seed 0 --jobs 2
    python -m benchmarks.hostile_campaign --only 1234          # repeat one attempt and show its output

An attempt depends only on the seed and its number. It runs in a process that is forked from one with all
imports. Allowed outcomes are a result, and an error of at most six lines with a status other than 0. Anything
else is a finding: a traceback, an error without an explanation, a signal, a hang, two gigabytes of memory, a
change of other files than the command may write, control characters in the output, or code of a file that
was run. `--resume` continues after the attempts in --rows.
"""

from __future__ import annotations

import argparse
import csv
import faulthandler
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import stat
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.hostile.attempt import Attempt, make_bases
from benchmarks.hostile.damage import MARKS
from benchmarks.hostile.kinds import KINDS
from benchmarks.load_test import judge

RESULTS = Path(__file__).parent / "results" / "hostile_campaign.csv"
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- hostile: begin -->", "<!-- hostile: end -->"
COLUMNS = ("seed", "kind", "outcome", "status", "seconds", "command", "message")
ALLOWED = ("result", "refused", "failed", "stopped")
SECONDS = 10
MEMORY = 2 << 30
_TOLD = 300
_RAW = re.compile("[\x00\x07\x1b\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NO_ROOM = re.compile(r"out of memory|cannot allocate|MemoryError|\ballocate\b", re.IGNORECASE)


def listing(folder: Path) -> dict[str, str]:
    """All paths below a folder with type, mode and a hash of small regular files; links are not followed."""
    found: dict[str, str] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            facts = os.lstat(path)
            told = f"{stat.S_IFMT(facts.st_mode):o} {facts.st_mode & 0o777:o}"
            if stat.S_ISLNK(facts.st_mode):
                told += f" {os.readlink(path)}"
            elif stat.S_ISREG(facts.st_mode):
                told += f" {facts.st_size}"
                if facts.st_size < 1 << 22:
                    with open(path, "rb") as file:
                        told += hashlib.sha256(file.read()).hexdigest()
            found[os.fsencode(os.path.relpath(path, folder)).decode("utf-8", "backslashreplace")] = told
    return found


def changed(before: Mapping[str, str], after: Mapping[str, str], writes: Iterable[str]) -> list[str]:
    """Changed paths that the attempt may not change."""
    allowed = [os.path.normpath(os.path.join("cwd", path)) for path in writes if path] + ["home"]
    return [
        path
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
        and not any(path == own or path.startswith(own + "/") for own in allowed)
    ]


def run_child(number: int, seed: int, base: Path, place: Path) -> int:
    """Write the files of an attempt and run it, in a child process.

    Returns:
        The exit status.
    """
    draw = random.Random(f"{seed} {number}")
    kind = draw.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    for name in ("cwd", "victim", "home"):
        (place / name).mkdir()
    (place / "victim" / "letters.txt").write_text("kept")
    place.chmod(0o755)
    os.chdir(place / "cwd")
    os.environ.update(HOME=str(place / "home"), XDG_CACHE_HOME=str(place / "home" / "cache"))
    for name in ("torch_xla", "pytz", "numexpr", "sitecustomize"):
        Path(f"{name}.py").write_text("open('OWNED', 'w')\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attempt = KINDS[kind][0](draw, base)
    described = {
        "kind": kind,
        "command": list(map(str, attempt.todo))
        if isinstance(attempt.todo, list)
        else attempt.todo.__qualname__,
        "writes": attempt.writes,
        "memory": attempt.memory,
        "before": listing(place),
    }
    partial = place.with_suffix(".part")
    partial.write_text(json.dumps(described))
    partial.rename(place.with_suffix(".json"))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    with warnings.catch_warnings():
        return make(attempt)


def open_anew() -> None:
    """Open the three standard streams as Python does at its start; a closed one is None."""
    modes = {
        "stdin": ("r", "strict"),
        "stdout": ("w", "surrogateescape"),
        "stderr": ("w", "backslashreplace"),
    }
    for number, (name, (mode, errors)) in enumerate(modes.items()):
        try:
            os.fstat(number)
        except OSError:
            setattr(sys, name, None)
            continue
        lines = 1 if name == "stderr" else -1
        stream = open(number, mode, lines, "utf-8", errors, closefd=False)  # noqa: SIM115  # until the end
        setattr(sys, name, stream)


def make(attempt: Attempt) -> int:
    """Run the command or call of an attempt, with errors as in the command line."""
    from graphzoo.cli import commands as cli

    for surround in attempt.around:
        surround()
    open_anew()
    if isinstance(attempt.todo, list):
        return cli.main(attempt.todo)
    try:
        attempt.todo()
    except Exception as error:
        if isinstance(error, AttributeError | KeyError | IndexError | TypeError | RecursionError):
            raise  # not an error for users
        return cli._explain(error)
    return 0


@dataclass
class Running:
    """An attempt that is running."""

    number: int
    process: int
    place: Path
    began: float = field(default_factory=time.monotonic)
    progress: float = field(default_factory=time.monotonic)
    ticks: int = -1
    prepared: float | None = None  # CPU seconds used when its files were written
    verdict: str = ""


def begin(number: int, seed: int, base: Path, folder: Path) -> Running:
    """Fork a process for an attempt."""
    place = folder / f"{number}"
    place.mkdir()
    process = os.fork()
    if process:
        return Running(number, process, place)
    status = 99
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for descriptor in (1, 2):
            file = os.open(place.with_suffix(f".{descriptor}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, descriptor)
            os.close(file)
        faulthandler.enable(file=2, all_threads=False)
        open_anew()
        status = run_child(number, seed, base, place)
        if sys.stdout is not None:
            sys.stdout.flush()  # at exit, Python would report an error here as "Exception ignored"
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        text = traceback.format_exc()
        with place.with_suffix(".trace").open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    finally:
        os._exit(status & 255)


def watch(attempt: Running) -> int | None:
    """The wait status of an attempt that has ended, or None; an attempt that hangs is killed.

    An attempt hangs if it uses ten seconds of CPU time, or sleeps as long. Waiting for the CPU is allowed.
    """
    done, status, _ = os.wait4(attempt.process, os.WNOHANG)
    if done:
        return status
    try:
        row = Path(f"/proc/{attempt.process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks, state = sum(map(int, row[11:15])), row[0]
    now = time.monotonic()
    if ticks != attempt.ticks or state in "RD":
        attempt.ticks, attempt.progress = ticks, now
    used = ticks / os.sysconf("SC_CLK_TCK")
    if attempt.prepared is None and attempt.place.with_suffix(".json").is_file():
        attempt.prepared = used
    if now - attempt.progress > SECONDS or used - (attempt.prepared or 0) > SECONDS:
        attempt.verdict = "hang"
        os.kill(attempt.process, signal.SIGABRT)  # faulthandler prints where it is
        time.sleep(0.5)
        os.killpg(attempt.process, signal.SIGKILL)
        return os.wait4(attempt.process, 0)[1]
    return None


def conclude(attempt: Running, status: int) -> tuple[object, ...]:
    """The row of an attempt that has ended."""
    place = attempt.place
    seconds = round(time.monotonic() - attempt.began, 2)
    texts = [
        file.read_bytes()[: 1 << 20].decode("utf-8", "replace") if file.is_file() else ""
        for file in (place.with_suffix(".1"), place.with_suffix(".2"), place.with_suffix(".trace"))
    ]
    out, err, trace = texts
    if not place.with_suffix(".json").is_file():
        told = trace or err or attempt.verdict
        return (attempt.number, "", "not prepared", status, seconds, "", told.strip()[-_TOLD:])
    described = json.loads(place.with_suffix(".json").read_text())
    code = os.waitstatus_to_exitcode(status)
    outside = changed(described["before"], listing(place), described["writes"])
    outcome, message = attempt.verdict, ""
    if outcome:
        message = err[-_TOLD:]
    elif trace:
        outcome, message = (
            ("failed", "")
            if "--debug" in described["command"]
            else ("traceback", trace.strip()[-2 * _TOLD :])
        )
    elif (
        code < 0
        and described["kind"] == "surroundings"
        and -code in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    ):
        outcome = "stopped"
    elif code < 0:
        outcome, message = "signal", f"signal {-code}: {err[-_TOLD:]}"
    elif code in (129, 130, 143) and described["kind"] == "surroundings":
        outcome = "stopped"
    elif code and not err and described["kind"] in ("streams", "surroundings"):
        outcome = "failed"  # stderr is closed, or files may not grow
    else:
        outcome, message = judge(code, "", err)
        if (
            outcome == "unexplained"
            and code in (1, 2)
            and "Traceback" not in err
            and err.startswith("usage:")
        ):
            outcome = "refused"
        if outcome in ("refused", "failed") and _NO_ROOM.search(message) and not described["memory"]:
            outcome = "memory"
        message = message if outcome != "unexplained" else message or err[-_TOLD:] or "no word"
    if (place / "cwd" / "OWNED").exists() or (place / "victim" / "OWNED").exists():
        outcome, message = "code ran", message
    elif outside and described["kind"] != "surroundings":
        outcome, message = "wrote outside", " ".join(outside)[:_TOLD]
    elif raw := _RAW.search(out + err):
        outcome, message = "raw output", repr((out + err)[max(0, raw.start() - 60) : raw.end() + 20])
    command = described["command"]
    shown = command if isinstance(command, str) else " ".join(word[:60] for word in command)
    row = (
        attempt.number,
        described["kind"],
        outcome,
        code,
        seconds,
        shown[:_TOLD],
        message.replace("\n", " / "),
    )
    return tuple(part.encode("unicode_escape").decode() if isinstance(part, str) else part for part in row)


def clear(place: Path) -> None:
    """Remove the files of an attempt."""
    shutil.rmtree(place, ignore_errors=True)
    for suffix in (".1", ".2", ".json", ".part", ".trace"):
        place.with_suffix(suffix).unlink(missing_ok=True)


def prepare(base: Path) -> None:
    """Train the good runs in a child process, and import its modules here."""
    process = os.fork()
    if not process:
        status = 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                os.chdir(base)
                make_bases(base)
            Path("modules").write_text("\n".join(sys.modules))
            status = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        raise SystemExit("the good runs could not be made")
    for name in (base / "modules").read_text().split():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except Exception as error:
            print(f"not imported beforehand: {name} ({error})", file=sys.stderr)
    for name in ("kg", "nodes", "links"):
        shutil.rmtree(base / name / "run" / "tensorboard", ignore_errors=True)
    gc.collect()
    gc.freeze()  # garbage collection in forks would copy shared pages


def count(rows: Iterable[Sequence[object]]) -> list[list[object]]:
    """Number of attempts and outcomes for each kind."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counted[str(row[1])][str(row[2])] += 1
    table: list[list[object]] = []
    for kind in [*KINDS, *sorted(counted.keys() - KINDS.keys())]:
        ends = counted[kind]
        if ends:
            findings = sum(number for name, number in ends.items() if name not in ALLOWED)
            table.append([kind, ends.total(), *(ends[name] for name in ALLOWED), findings])
    return table


HEAD = ("kind", "attempts", *ALLOWED, "findings")


def as_markdown(table: Sequence[Sequence[object]]) -> str:
    """The table of counts in docs/reliability.md."""
    whole = ["all", *(f"{sum(int(str(row[at])) for row in table):,}" for at in range(1, len(HEAD)))]
    lines = [
        " | ".join(f"{int(str(cell)):,}" if at else str(cell) for at, cell in enumerate(row)) for row in table
    ]
    lines = [" | ".join(HEAD), "|".join(["---"] * len(HEAD)), *lines, " | ".join(whole)]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def write_page(table: Sequence[Sequence[object]]) -> None:
    """Write the table of counts into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{as_markdown(table)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> int:
    """Run the attempts, or repeat one."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hostile_campaign", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--attempts", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="number of the first attempt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of counts per kind")
    parser.add_argument(
        "--rows", type=Path, default=Path("hostile_rows.csv"), help="file of rows, one per attempt"
    )
    parser.add_argument("--only", type=int, help="number of an attempt to repeat, with its output")
    parser.add_argument("--resume", action="store_true", help="continue after the attempts in --rows")
    parser.add_argument("--page", action="store_true", help="only write the counts of --out into the page")
    arguments = parser.parse_args()
    if arguments.page:
        with arguments.out.open(newline="") as file:
            write_page(list(csv.reader(file))[1:])
        return 0
    if arguments.attempts < 1 or arguments.jobs < 1:
        parser.error("--attempts and --jobs must be above 0")
    os.environ.update(WANDB_MODE="offline", GRAPHZOO_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    rows: list[Sequence[object]] = []
    if arguments.resume and arguments.rows.is_file():
        with arguments.rows.open(newline="") as file:
            rows = list(csv.reader(file))[1:]
    done = {int(str(row[0])) for row in rows}
    numbers = [n for n in range(arguments.first, arguments.first + arguments.attempts) if n not in done]
    if arguments.only is not None:
        numbers = [arguments.only]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="graphzoo-hostile-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        base = Path(folder) / "base"
        base.mkdir()
        prepare(base)
        if arguments.only is not None:
            return show(arguments.only, arguments.seed, base, Path(folder))
        with arguments.rows.open("a" if done else "w", newline="") as file:
            writer = csv.writer(file)
            if not done:
                writer.writerow(COLUMNS)
            running: list[Running] = []
            waiting = iter(numbers)
            following = next(waiting, None)
            while running or following is not None:
                while following is not None and len(running) < arguments.jobs:
                    running.append(begin(following, arguments.seed, base, Path(folder)))
                    following = next(waiting, None)
                for attempt in list(running):
                    if (status := watch(attempt)) is None:
                        continue
                    running.remove(attempt)
                    row = conclude(attempt, status)
                    clear(attempt.place)
                    rows.append(row)
                    writer.writerow(row)
                    file.flush()
                    if row[2] not in ALLOWED:
                        print(*row, sep=" | ", flush=True)
                time.sleep(0.005)
    table = count(rows)
    arguments.out.parent.mkdir(exist_ok=True)
    with arguments.out.open("w", newline="") as file:
        csv.writer(file).writerows([HEAD, *table])
    findings = sum(row[2] not in ALLOWED for row in rows)
    print(f"{len(rows)} attempts, {findings} findings, {(time.monotonic() - began) / 60:.1f} minutes")
    return int(findings > 0)


def show(number: int, seed: int, base: Path, folder: Path) -> int:
    """Repeat an attempt and print its output."""
    attempt = begin(number, seed, base, folder)
    while (status := watch(attempt)) is None:
        time.sleep(0.01)
    row = conclude(attempt, status)
    for suffix in (".1", ".2", ".trace"):
        if (path := attempt.place.with_suffix(suffix)).is_file():
            print(f"--- {suffix}", path.read_text(encoding="utf-8", errors="replace")[-6000:], sep="\n")
    print(*row, sep=" | ")
    return int(row[2] not in ALLOWED)


assert all(_RAW.search(mark) for mark in MARKS)

if __name__ == "__main__":
    sys.exit(main())
