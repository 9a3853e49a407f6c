"""`graphzoo doctor`: what is installed, which path computes, what is missing and how to get it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from graphzoo.cli.options import Parser
from graphzoo.errors import UsageError
from graphzoo.system.memory import available_bytes
from graphzoo.system.paths import existing_parent
from graphzoo.system.regular_files import read_regular_text
from graphzoo.system.shown import say
from graphzoo.system.units import counted

_OPTIONAL = {
    "triton": "fast path on NVIDIA GPUs; comes with torch for CUDA: pip install torch",
    "torch-scatter": "backend `scatter`: pip install --no-build-isolation torch-scatter",
    "tensorboard": "`--logger tensorboard`: pip install tensorboard",
    "mlflow-skinny": "`--logger mlflow`: pip install mlflow-skinny",
    "onnxscript": "`export --to onnx`: pip install 'graphzoo[onnx]'",
}


def doctor_parser() -> Parser:
    """The options."""
    parser = Parser(
        "doctor", "[options]", "Show versions, devices, fast kernels, caches, and packages that are missing."
    )
    add = parser.add_argument
    add(
        "--gpu",
        action="store_true",
        help="check every GPU: operations, training steps, processes (takes minutes)",
    )
    add("--device", choices=("cuda", "cpu"), help="with --gpu: cpu makes the same checks on the CPU")
    add("--quick", action="store_true", help="with --gpu: check on small graphs")
    add("--out", type=Path, metavar="FILE", help="with --gpu: results as JSON (default doctor-gpu.json)")
    return parser


def doctor_main(argv: list[str]) -> int:
    """Print the report; 1 when a required package is missing or a check of `--gpu` failed."""
    args = doctor_parser().read(argv)
    if args.gpu:
        from graphzoo.cli.doctor_gpu import check_gpus

        versions = {name: _version(name) for name in ("graphzoo", "torch", "triton", "lightning")}
        return check_gpus(args.out or Path("doctor-gpu.json"), args.device, versions, quick=args.quick)
    for name in ("device", "quick", "out"):
        if getattr(args, name):
            raise UsageError(f"--{name} is for --gpu; add that, or leave --{name} out")
    missing = False
    _say("graphzoo", _version("graphzoo") or "not installed as a package (running from its folder)")
    _say("python", f"{platform.python_version()} on {platform.platform()}")
    for name in _required():
        installed = _version(name)
        missing |= installed is None
        _say(name, installed or f"MISSING: pip install {name}")
    for name, remedy in _OPTIONAL.items():
        _say(name, _version(name) or f"not installed; {remedy}")
    if _version("torch") is not None:
        _devices()
        _backends()
    _data_root()
    return int(missing)


def _devices() -> None:
    import torch

    memory = available_bytes(torch.device("cpu"))
    _say("memory", "unknown" if memory is None else f"{memory / 2**30:.1f} GiB available to a process")
    _say("CPU threads", f"{torch.get_num_threads()} of {os.cpu_count()} (OMP_NUM_THREADS)")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            _say(f"cuda:{index}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    else:
        build = "" if torch.version.cuda else " (this torch is the CPU build)"
        _say("cuda", f"no GPU visible to torch{build}")


def _backends() -> None:
    """Ask the op itself: only a call shows which path is live."""
    from typing import get_args

    import torch

    from graphzoo.ops.relational_spmm import Backend, RelationalGraph, relational_spmm

    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        edge_index = torch.tensor([[0, 1], [1, 0]], device=device)
        graph = RelationalGraph(edge_index, torch.zeros(2, dtype=torch.long, device=device), 2, 1)
        x, relation = torch.ones(2, 4, device=device), torch.ones(1, 4, device=device)
        for backend in (None, *get_args(Backend)):
            if backend == ("triton" if device == "cpu" else "numba"):
                continue  # made for the other device
            try:
                relational_spmm(x, relation, graph, backend=backend)
                state = "works"
            except (RuntimeError, ImportError, OSError, ValueError) as error:
                state = f"does not work: {str(error).splitlines()[0]}"
            _say(f"relational_spmm on {device}", f"{backend or _default_backend(device)}: {state}")


def _default_backend(device: str) -> str:
    """The backend module that the call without a name has loaded on this device."""
    for name in ("numba", "scatter") if device == "cpu" else ("triton", "scatter"):
        if f"graphzoo.ops.relational_spmm.{name}" in sys.modules:
            return f"default ({name})"
    return "default (naive)"


def _data_root() -> None:
    from graphzoo.cli.clean import MADE_AGAIN
    from graphzoo.datasets.files.roots import cache_root, data_root

    for what, folder in (("data root", data_root()), ("cache", cache_root())):
        if folder.exists() and not folder.is_dir():
            _say(what, f"{folder} is a file, not a folder: nothing can be read there or written")
            continue
        exists = "there" if folder.is_dir() else "made when needed"
        try:
            with tempfile.TemporaryFile(dir=existing_parent(folder)):
                state = "writable"
        except OSError as error:
            state = f"read-only ({error.strerror}): never written to"
        _say(what, f"{folder} ({exists}, {state})")
    for name in MADE_AGAIN:
        if sizes := _sizes(cache_root() / name):
            files = counted(len(sizes), "file")
            _say(f"cache, {name}", f"{sum(sizes) / 2**20:,.1f} MiB in {files}; graphzoo clean removes them")


def _sizes(folder: Path) -> list[int]:
    """Bytes of each file below a folder; other processes may add and remove some meanwhile."""
    sizes = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.suffix != ".lock":
                sizes.append(path.stat().st_size)
    return sizes


def _required() -> Sequence[str]:
    """The packages that graphzoo needs whatever is done with it."""
    try:
        entries = requires("graphzoo") or []
    except PackageNotFoundError:  # a checkout that is not installed
        about = Path(__file__).parents[2] / "pyproject.toml"
        entries = (
            tomllib.loads(read_regular_text(about))["project"]["dependencies"] if about.is_file() else []
        )
    needed = (re.match(r"[\w.-]+", entry) for entry in entries if "extra ==" not in entry)
    return [match[0] for match in needed if match]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _say(what: str, text: str) -> None:
    say(f"{what:26}{text}\n")
