"""Registers, spills and shared memory of every CUDA kernel, compiled ahead of time: no GPU is needed.

    python -m benchmarks.kernel_resources [--arch 80,90,100] [--out FILE]

Runs every op forward and backward on small tensors; each kernel that it would launch is compiled for the
given architectures by Triton and its ptxas instead, in the variants that the launchers choose. Writes
results/kernel_resources.csv, a line per kernel, variant and architecture: registers of a thread, bytes that
it spills, shared memory of a program, instructions of the whole kernel, those that load 8 or 16 bytes and
those that load 16 (empty: not counted yet); of the loop over edges the instructions of a warp per edge and
128 features.
"""

import argparse
import csv
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

os.environ.pop("TRITON_INTERPRET", None)  # kernels, not their interpreter
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from benchmarks.common import RESULTS
from graphzoo.ops import RelationalGraph, relational_spmm
from graphzoo.ops.message_update import message_update
from graphzoo.ops.message_update import triton as _update_kernels  # noqa: F401 - before TRITON_INTERPRET is set
from graphzoo.ops.prototype_layer import RowDropout, prototype_layer
from graphzoo.ops.prototype_layer import triton as _layer_kernels  # noqa: F401
from graphzoo.ops.relational_spmm import triton as _spmm_kernels
from graphzoo.ops.state_mlp import state_mlp
from graphzoo.ops.state_mlp import triton as _mlp_kernels  # noqa: F401

TABLE = RESULTS / "kernel_resources.csv"
COLUMNS = ("op", "kernel", "variant", "arch", "registers", "spills", "shared", "instructions", "wide_loads",
           "loads_of_16", "per_edge")  # fmt: skip
ARCHITECTURES = (80, 90, 100)
NODES, QUERIES, RELATIONS, EDGES = 48, 16, 6, 2000
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
    narrowest: int = 1 << 31,
) -> Callable[[], None]:
    """A block is as wide as a row of few queries; with few edges segments are short."""

    def run() -> None:
        ends, kinds = torch.randint(NODES, (2, edges)), torch.randint(RELATIONS, (edges,))
        ends[1, : edges // 2] = 3  # a hub, whose segment is cut
        graph = RelationalGraph(ends, kinds, NODES, RELATIONS)
        kept = torch.rand(edges) < 0.5 if mask else None
        relation = torch.randn(RELATIONS, queries, channels, dtype=dtype, requires_grad=True)
        x = rows(dtype, channels, queries=queries)
        with mock.patch.object(_spmm_kernels, "WIDE_ELEMENTS", narrowest):
            relational_spmm(x, relation, graph, edge_mask=kept, backend="triton").sum().backward()

    return run


def update(dtype: torch.dtype, channels: int) -> Callable[[], None]:
    def run() -> None:
        d = channels
        parameters = tuple(torch.randn(*s) for s in ((d,), (d, d), (d,), (d, d), (d,), (d,), (d,)))
        message_update(rows(dtype, d), rows(dtype, d), parameters, backend="triton").sum().backward()

    return run


def mlp(dtype: torch.dtype, channels: int, has_x: bool, has_extra: bool) -> Callable[[], None]:
    def run() -> None:
        d = channels
        x = rows(dtype, d) if has_x else None
        extra = torch.randn(NODES, QUERIES, 1, dtype=dtype) if has_extra else None
        w, e, b1, w2, b2 = (torch.randn(*s, requires_grad=True) for s in ((d, d), (d,), (d,), (d, d), (d,)))
        state_mlp(x, extra, w, e if has_extra else None, (b1, w2, b2), backend="triton").sum().backward()

    return run


def layer(
    dtype: torch.dtype, channels: int, heads: int, skip: bool, drops: bool, nodes: int = NODES
) -> Callable[[], None]:
    def run() -> None:
        d = channels
        sizes = ((d,), (d,), (d, d), (d,), (d, d), (d,), (d,), (d,))
        parameters = tuple(torch.randn(*s) for s in sizes)
        dropout = RowDropout(0.1, torch.arange(QUERIES)) if drops else None
        states, value = rows(dtype, d), rows(dtype, d)
        given = rows(dtype, d) if skip else None
        query_key = torch.randn(2 * d, d), torch.randn(2 * d)
        prototype_layer(
            states, value, given, query_key, parameters, num_heads=heads, dropout=dropout, backend="triton"
        ).sum().backward()

    return run


def cases() -> Iterator[Case]:
    """What the encoders ask for: float32 (exact and as TF32), bf16; padded widths and the widest."""
    half, full = torch.bfloat16, torch.float32
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
        # Triton compiles a number that is 1 as a constant
        yield "prototype_layer", f"{name} D=32 H=4 nodes=1", layer(dtype, 32, 4, False, False, nodes=1)
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


class Compiler:
    """Stands where Triton's driver is, and compiles what would be launched."""

    def __init__(self, arch: int) -> None:
        self.target = GPUTarget("cuda", arch, 32)
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

        def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            made = run(kernel, *arguments, grid=grid, warmup=True, **options)
            self.compiled.append((kernel.__name__, made))
            return made

        JITFunction.run = compile_only
        return self

    def __exit__(self, *error: object) -> None:
        JITFunction.run = self._run


def per_edge(code: str) -> float | None:
    """Instructions of a warp per edge and 128 features, in the loop that multiplies and adds most.

    A multiply and add is 32 of the 128 features of an edge (on sm_100 a packed one 64), so that four are an
    edge.
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
    """What ptxas says of a compiled kernel."""
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
    }


def measure(architectures: tuple[int, ...], wanted: str = "") -> list[dict[str, str | int]]:
    """A line per kernel, variant and architecture."""
    lines: dict[tuple[str, ...], dict[str, str | int]] = {}
    os.environ["TRITON_INTERPRET"] = "1"  # the launchers take tensors of the CPU
    for arch in architectures:
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            for op, variant, run in cases():
                if wanted not in f"{op} {variant} " or (precision == "high" and "float32" not in variant):
                    continue
                if precision == "high" and op == "relational_spmm":
                    continue  # no products of matrices
                torch.manual_seed(0)
                with Compiler(arch) as compiler:
                    run()
                kind = variant.replace("float32", "tf32") if precision == "high" else variant
                for kernel, made in compiler.compiled:
                    key = (op, kernel.strip("_"), kind, f"sm_{arch}")
                    if key not in lines:
                        lines[key] = {**dict(zip(COLUMNS, key, strict=False)), **resources(made)}
    torch.set_float32_matmul_precision("highest")
    return list(lines.values())


def main() -> None:
    """Parse the arguments, compile, write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default=",".join(map(str, ARCHITECTURES)))
    parser.add_argument("--wanted", default="", help="only cases whose name holds this")
    parser.add_argument("--out", type=Path, default=TABLE)
    args = parser.parse_args()
    lines = measure(tuple(map(int, args.arch.split(","))), args.wanted)
    with args.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    print(f"{args.out}: {len(lines)} kernels, most registers {max(int(x['registers']) for x in lines)}, "
          f"most spilled bytes {max(int(x['spills']) for x in lines)}", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    main()
