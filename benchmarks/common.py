"""Code that several benchmarks use: options, child processes, timing, peak memory, CSV rows."""

import argparse
import csv
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from graphzoo.system.openmp import shorten_waits

RESULTS = Path(__file__).parent / "results"


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return done.stdout.strip() or "unknown"


def gpu() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def machine() -> str:
    """Number of cores and kind of processor, e.g. `2 x x86_64 AVX512`."""
    return f"{os.cpu_count()} x {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


@dataclass
class Row:
    """One figure: a median with its 20 % and 80 % quantiles."""

    name: str
    provider: str
    mode: str
    metric: str
    unit: str
    x_name: str
    x: str
    p50: float
    p20: float
    p80: float
    config: str
    gpu: str = field(default_factory=gpu)
    torch: str = torch.__version__
    commit: str = field(default_factory=commit)
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    machine: str = field(default_factory=machine)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.name for column in fields(Row))
        writer.writerows(map(_cells, rows))


def read_rows(path: Path) -> list[Row]:
    """The rows of `write_rows`; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [Row(**row | {name: float(row[name]) for name in ("p50", "p20", "p80")}) for row in rows]


def append_row(path: Path, row: Row) -> None:
    """Add a row to the file, so that nothing is lost if a run is stopped."""
    if not path.exists():
        write_rows(path, [])
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(_cells(row))


def _cells(row: Row) -> list[object]:
    return [f"{v:.4g}" if isinstance(v, float) else v for v in astuple(row)]


def measure_ms(
    call: Callable[[], object], *, seconds: float, at_least: int = 5, at_most: int = 200
) -> list[float]:
    """Median, 20 % and 80 % quantile of a call's milliseconds, after two warm-up calls."""
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    times: list[float] = []
    for i in range(at_most + 2):
        synchronize()
        start = time.perf_counter()
        call()
        synchronize()
        if i >= 2:
            times.append((time.perf_counter() - start) * 1e3)
        if len(times) >= at_least and sum(times) > seconds * 1e3:
            break
    p20, _, _, p80 = statistics.quantiles(times, n=5, method="inclusive")
    return [statistics.median(times), p20, p80]


def peak_mib() -> float:
    """Peak memory of this process: on the GPU if there is one, else resident memory (Linux)."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def step_parser(description: str | None, *, out: str, seconds: float) -> argparse.ArgumentParser:
    """Options of a benchmark that measures each figure in a separate process (`in_process`)."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=seconds, help="time to spend on each figure")
    parser.add_argument("--out", default=out, help="file name below results/")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    return parser


def in_process(benchmark: str, figure: Iterable[object], *, seconds: float, plain: bool) -> dict[str, Any]:
    """Result of the benchmark for `--child FIGURE...` in a separate process, which has its own peak memory.

    Args:
        benchmark: Name of its module below `benchmarks`.
        figure: Words of the figure to measure.
        seconds: Time to spend.
        plain: Whether plain PyTorch is measured, with the default waits of OpenMP threads. Otherwise they
            wait as in the `graphzoo` command.
    """
    environment = dict(os.environ)
    if not plain:
        shorten_waits(environment)
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--seconds", str(seconds), "--child"]
    done = subprocess.run(
        [*command, *map(str, figure)], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
