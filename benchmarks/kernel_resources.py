"""Registers, spills and shared memory of all CUDA kernels, compiled ahead of time without a GPU.

    python -m benchmarks.kernel_resources [--arch 80,90,100] [--only TEXT] [--missing] [--out FILE]

Runs every op forward and backward on small tensors. Instead of a launch, each kernel is compiled by Triton
and its ptxas for the given architectures, in the variants that the launchers choose. Writes
results/kernel_resources.csv, a line per kernel, variant and architecture: registers and spilled bytes per
thread, shared memory per program, instructions of the kernel, instructions that load 8 or 16 bytes, those
that load 16 (empty if not counted), for the loop over edges the instructions of a warp per edge and 128
features, and a digest of source, arguments and compiler. If a variant launches a kernel in a second form,
this is called "KERNEL 2". With --missing, kernels whose digest is in the file are not compiled.
"""

import argparse
import csv
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

os.environ.pop("TRITON_INTERPRET", None)  # compile kernels, do not interpret them
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import compiler
from triton.runtime import driver
from triton.runtime.jit import JITFunction

try:
    from triton.runtime.cache import get_cache_key
except ImportError:  # an older Triton has no such function: everything is compiled
    get_cache_key = None

from benchmarks.common import RESULTS
from graphzoo.ops import RelationalGraph, relational_spmm
from graphzoo.ops.message_update import message_update
from graphzoo.ops.message_update import triton as _update_kernels  # noqa: F401 - before TRITON_INTERPRET is set
from graphzoo.ops.prototype_layer import RowDropout, prototype_layer
from graphzoo.ops.prototype_layer import triton as _layer_kernels
from graphzoo.ops.relational_spmm import triton as _spmm_kernels
from graphzoo.ops.state_mlp import state_mlp
from graphzoo.ops.state_mlp import triton as _mlp_kernels  # noqa: F401

TABLE = RESULTS / "kernel_resources.csv"
COLUMNS = ("op", "kernel", "variant", "arch", "registers", "spills", "shared", "instructions", "wide_loads",
           "loads_of_16", "per_edge", "digest")  # fmt: skip
KEY = COLUMNS[:4]
DIGITS = 16  # length of a digest
ARCHITECTURES = (80, 90, 100)
NODES, QUERIES, RELATIONS, EDGES = 48, 16, 6, 2000
SIZE = NODES, QUERIES
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+\S")
Case = tuple[str, str, Callable[[], None]]


def rows(dtype: torch.dtype, channels: int, nodes: int = NODES, queries: int = QUERIES) -> torch.Tensor:
    return torch.randn(nodes, queries, channels, dtype=dtype, requires_grad=True)


def spmm(
    dtype: torch.dtype,
    channels: int,
    mask: bool = False,
    *,
    queries: int = QUERIES,
    edges: int = EDGES,
    nodes: int = NODES,
    relations: int = RELATIONS,
    narrowest: int = 1 << 31,
) -> Callable[[], None]:
    """The width of blocks depends on channels and queries; few edges give short segments."""

    def run() -> None:
        ends, kinds = torch.randint(nodes, (2, edges)), torch.randint(relations, (edges,))
        ends[1, : edges // 2] = min(3, nodes - 1)  # a hub, whose long segment is cut
        graph = RelationalGraph(ends, kinds, nodes, relations)
        kept = torch.rand(edges) < 0.5 if mask else None
        relation = torch.randn(relations, queries, channels, dtype=dtype, requires_grad=True)
        x = rows(dtype, channels, nodes, queries)
        with mock.patch.object(_spmm_kernels, "WIDE_ELEMENTS", narrowest):
            relational_spmm(x, relation, graph, edge_mask=kept, backend="triton").sum().backward()

    return run


def update(
    dtype: torch.dtype, channels: int, weights: torch.dtype = torch.float32, size: tuple[int, int] = SIZE
) -> Callable[[], None]:
    def run() -> None:
        d = channels
        sizes = ((d,), (d, d), (d,), (d, d), (d,), (d,), (d,))
        parameters = tuple(torch.randn(*s, dtype=weights) for s in sizes)
        z, sums = rows(dtype, d, *size), rows(dtype, d, *size)
        message_update(z, sums, parameters, backend="triton").sum().backward()

    return run


def mlp(
    dtype: torch.dtype,
    channels: int,
    has_x: bool,
    has_extra: bool,
    weights: torch.dtype = torch.float32,
    size: tuple[int, int] = SIZE,
) -> Callable[[], None]:
    def run() -> None:
        d = channels
        x = rows(dtype, d, *size) if has_x else None
        extra = torch.randn(*size, 1, dtype=dtype) if has_extra else None
        sizes = ((d, d), (d,), (d,), (d, d), (d,))
        w, e, b1, w2, b2 = (torch.randn(*s, dtype=weights, requires_grad=True) for s in sizes)
        state_mlp(x, extra, w, e if has_extra else None, (b1, w2, b2), backend="triton").sum().backward()

    return run


def layer(
    dtype: torch.dtype,
    channels: int,
    heads: int,
    skip: bool,
    drops: bool,
    nodes: int = NODES,
    weights: torch.dtype = torch.float32,
    far: int = 1 << 31,
) -> Callable[[], None]:
    def run() -> None:
        d = channels
        sizes = ((d,), (d,), (d, d), (d,), (d, d), (d,), (d,), (d,))
        parameters = tuple(torch.randn(*s, dtype=weights) for s in sizes)
        dropout = RowDropout(0.1, torch.arange(QUERIES)) if drops else None
        states, value = rows(dtype, d, nodes), rows(dtype, d, nodes)
        given = rows(dtype, d, nodes) if skip else None
        query_key = torch.randn(2 * d, d, dtype=weights), torch.randn(2 * d, dtype=weights)
        with mock.patch.object(_layer_kernels, "_FAR", far):
            prototype_layer(
                states,
                value,
                given,
                query_key,
                parameters,
                num_heads=heads,
                dropout=dropout,
                backend="triton",
            ).sum().backward()

    return run


def cases() -> Iterator[Case]:
    """The variants of the launchers: dtypes, widths, heads, optional arguments, several sizes."""
    full, half = torch.float32, torch.bfloat16
    for dtype, name in ((full, "float32"), (half, "bfloat16")):
        for channels in (32, 64, 8):
            yield "message_update", f"{name} D={channels}", update(dtype, channels)
        for has_x, has_extra in ((True, True), (False, True), (True, False)):
            yield "state_mlp", f"{name} D=32 x={has_x} extra={has_extra}", mlp(dtype, 32, has_x, has_extra)
        yield "state_mlp", f"{name} D=64 x=True extra=True", mlp(dtype, 64, True, True)
        for skip, drops in ((True, True), (False, False)):
            for channels, heads in ((32, 4), (64, 4), (16, 1)):
                variant = f"{name} D={channels} H={heads} skip={skip} dropout={drops}"
                yield "prototype_layer", variant, layer(dtype, channels, heads, skip, drops)
        for mask in (True, False):
            yield "relational_spmm", f"{name} D=32 mask={mask}", spmm(dtype, 32, mask)
    for dtype, name in ((full, "float32"), (half, "bfloat16"), (torch.float16, "float16")):
        yield "relational_spmm", f"{name} short segments", spmm(dtype, 32, edges=100)
        yield "relational_spmm", f"{name} uneven", spmm(dtype, 30)
        yield "relational_spmm", f"{name} uneven short segments", spmm(dtype, 30, edges=100)
        yield "relational_spmm", f"{name} past 2^31", spmm(dtype, 32, narrowest=1)
        yield "relational_spmm", f"{name} uneven BLOCK=32", spmm(dtype, 30, queries=1)
        for queries in (1, 2):
            yield "relational_spmm", f"{name} BLOCK={32 * queries}", spmm(dtype, 32, queries=queries)
    yield "relational_spmm", "float16 D=32 mask=True", spmm(torch.float16, 32, True)
    yield "relational_spmm", "float64 D=32 mask=False", spmm(torch.float64, 32)
    yield from rare_cases()


def rare_cases() -> Iterator[Case]:
    """float16, other numbers of heads, padded widths, weights in the dtype of the rows, and sizes of 1.

    Triton compiles a 1 as a constant. No branch of a kernel depends on both the dtype and another choice, so
    each choice is compiled in one dtype.
    """
    half, single, full = torch.bfloat16, torch.float16, torch.float32
    yield "message_update", "float16 D=32", update(single, 32)
    yield "state_mlp", "float16 D=32 x=True extra=True", mlp(single, 32, True, True)
    for channels in (32, 64):
        variant = f"float16 D={channels} H=4 skip=True dropout=True"
        yield "prototype_layer", variant, layer(single, channels, 4, True, True)
    for channels in (16, 64):
        variant = f"bfloat16 D={channels} H={channels} skip=True dropout=True"
        yield "prototype_layer", variant, layer(half, channels, channels, True, True)
    yield "message_update", "bfloat16 D=48", update(half, 48)
    yield "state_mlp", "bfloat16 D=24 x=True extra=True", mlp(half, 24, True, True)
    yield "message_update", "bfloat16 weights=bfloat16 D=32", update(half, 32, half)
    yield "state_mlp", "bfloat16 weights=bfloat16 D=32", mlp(half, 32, True, True, half)
    yield "prototype_layer", "bfloat16 weights=bfloat16 D=32", layer(half, 32, 4, True, True, weights=half)
    yield "prototype_layer", "bfloat16 D=32 past 2^31", layer(half, 32, 4, True, True, far=1)
    yield "message_update", "bfloat16 rows=1 D=32", update(half, 32, size=(1, 1))
    yield "state_mlp", "bfloat16 rows=1 D=32", mlp(half, 32, True, True, size=(1, 1))
    yield "prototype_layer", "bfloat16 D=32 H=4 nodes=1", layer(half, 32, 4, False, False, nodes=1)
    yield "relational_spmm", "float32 short segments BLOCK=64", spmm(full, 32, edges=100, queries=2)
    yield "relational_spmm", "float32 uneven BLOCK=64", spmm(full, 30, queries=2)
    for edges in (10, 600):
        one = spmm(full, 1, edges=edges, queries=1, nodes=1, relations=1)
        yield "relational_spmm", f"float32 BLOCK=1 edges={edges}", one


class Compiler:
    """Replaces Triton's driver, and compiles kernels in place of a launch, except known digests."""

    def __init__(self, arch: int, known: Collection[str] = ()) -> None:
        self.target = GPUTarget("cuda", arch, 32)
        self.known = known
        self.compiled: list[tuple[str, Any]] = []

    def __enter__(self) -> "Compiler":
        self._run = run = JITFunction.run
        active = SimpleNamespace(
            get_current_device=lambda: f"sm_{self.target.arch}",
            get_current_stream=lambda device: 0,
            get_current_target=lambda: self.target,
            get_active_torch_device=lambda: torch.device("cpu"),
        )
        driver.set_active(active)

        def compile_unknown(src: Any, target: Any, options: Any) -> Any:
            if get_cache_key is None:
                return compiler.compile(src, target, options)
            backend = compiler.make_backend(target)
            parsed = backend.parse_options({**options, **src.parse_options()})
            key = get_cache_key(src, backend, parsed, compiler.get_cache_invalidating_env_vars())
            digest = hashlib.sha256(key.encode()).hexdigest()
            if digest[:DIGITS] in self.known:
                return SimpleNamespace(hash=digest)
            made = compiler.compile(src, target, options)
            assert made.hash == digest
            return made

        def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            kernel.device_caches.clear()  # another architecture may need what the first did not
            kernel.device_caches[active.get_current_device()]  # noqa: B018 - sets what is replaced here
            kernel.compile = compile_unknown
            made = run(kernel, *arguments, grid=grid, warmup=True, **options)
            self.compiled.append((kernel.__name__, made))
            return made

        JITFunction.run = compile_only
        return self

    def __exit__(self, *error: object) -> None:
        JITFunction.run = self._run


def per_edge(code: str) -> float | None:
    """Instructions of a warp per edge and 128 features, in the loop with the most multiply-adds.

    A multiply-add covers 32 of an edge's 128 features (64 if packed, on sm_100), so four of them are an edge.
    """
    places: dict[str, int] = {}
    lines: list[str] = []
    loops: list[list[str]] = []
    for line in code.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            places[label[1]] = len(lines)
        elif INSTRUCTION.match(line):
            lines.append(line)
            if (to := re.search(r"BRA.*\(\.?(\.L_\w+)\)", line)) and to[1] in places:
                loops.append(lines[places[to[1]] :])
    counted = [
        (sum(1 + ("FFMA2" in x) for x in loop if re.search(r" [FD]FMA", x)), len(loop)) for loop in loops
    ]
    most, length = max(counted, default=(0, 0))
    return 4 * length / most if most else None


def resources(made: Any) -> dict[str, Any]:
    """The resources of a compiled kernel, as reported by ptxas."""
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
        code = subprocess.run([tools / "nvdisasm", "-c", file.name], capture_output=True, text=True).stdout
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}
    instructions = [line for line in code.splitlines() if INSTRUCTION.match(line)]
    return {
        "registers": found["REG"],
        "spills": found["STACK"] + found["LOCAL"],
        "shared": int(made.metadata.shared),
        "instructions": len(instructions),
        "wide_loads": sum("LDG.E.128" in line or "LDG.E.64" in line for line in instructions),
        "loads_of_16": sum("LDG.E.128" in line for line in instructions),
        "per_edge": per_edge(code) if "sum_products" in made.name else None,
        "digest": made.hash[:DIGITS],
    }


def measure(
    architectures: tuple[int, ...], only: str = "", kept: Iterable[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """A line per kernel, variant and architecture; `kept` lines are reused for equal digests."""
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    # variants share some kernels
    known = {line["digest"]: {name: line[name] for name in COLUMNS[len(KEY) :]} for line in kept}
    os.environ["TRITON_INTERPRET"] = "1"  # lets the launchers accept CPU tensors
    for arch in architectures:
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            for op, variant, run in cases():
                if only not in f"{op} {variant} " or (precision == "high" and "float32" not in variant):
                    continue
                if precision == "high" and op == "relational_spmm":
                    continue  # kernels without matrix products
                kind = variant.replace("float32", "tf32") if precision == "high" else variant
                torch.manual_seed(0)
                with Compiler(arch, known) as launched:
                    run()
                for kernel, made in launched.compiled:
                    if (digest := made.hash[:DIGITS]) not in known:
                        known[digest] = resources(made)
                    name = kernel.strip("_")
                    for number in count(1):
                        key = (op, name if number == 1 else f"{name} {number}", kind, f"sm_{arch}")
                        if key not in lines or lines[key]["digest"] == digest:
                            break
                    lines[key] = {**dict(zip(KEY, key, strict=True)), **known[digest]}
    torch.set_float32_matmul_precision("highest")
    return list(lines.values())


def main() -> None:
    """Parse the arguments, compile, write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default=",".join(map(str, ARCHITECTURES)))
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this text")
    parser.add_argument("--missing", action="store_true", help="compile only kernels not in the file")
    parser.add_argument("--out", type=Path, default=TABLE)
    args = parser.parse_args()
    try:
        architectures = tuple(map(int, args.arch.split(",")))
    except ValueError:
        parser.error(f"--arch {args.arch}: numbers with commas between them, as in 80,90")
    if args.out == TABLE and (args.only or set(architectures) < set(ARCHITECTURES)):
        parser.error(f"{TABLE.name} would lose its other lines; name another file: --out FILE")
    kept: list[dict[str, Any]] = []
    if args.missing and args.out.is_file():
        with args.out.open(newline="", encoding="utf-8") as file:
            kept += csv.DictReader(file)
    lines = measure(architectures, args.only, kept)
    if not lines:
        parser.error(f"no case has {args.only!r} in its name")
    with args.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    print(f"{args.out}: {len(lines)} kernels, most registers {max(int(x['registers']) for x in lines)}, "
          f"most spilled bytes {max(int(x['spills']) for x in lines)}", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    main()
