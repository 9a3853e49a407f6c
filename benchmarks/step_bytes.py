"""Bytes that a training step of KnowFormer moves on a GPU, counted on fake tensors without a GPU.

    python -m benchmarks.step_bytes [--nodes 14541 --facts 272115 --relations 237 --queries 384]

Runs forward and backward on fake tensors of the size of FB15k-237, with the row operations in torch (`naive`)
and as Triton kernels, in float32 and under autocast to bf16. The count assumes that each operation reads its
inputs and writes its outputs once, that views are free, and that a kernel's second read comes from the cache.
Writes results/step_bytes.csv, a line per setting and part of the step.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.common import RESULTS
from graphzoo.decoders import EntityDecoder
from graphzoo.encoders import KnowFormer
from graphzoo.ops import RelationalGraph
from graphzoo.types import GraphSpec

TABLE = RESULTS / "step_bytes.csv"
COLUMNS = ("precision", "row_operations", "part", "gib", "calls", "share_of_naive_float32")
CHANNELS = 32
_FREE = ("prim.", "aten.empty", "aten.new_empty", "aten.detach")  # they read no values


def size(x: Tensor) -> int:
    """Bytes of a tensor; an expanded one counts only the bytes in memory."""
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())


def strided(values: Any) -> list[Tensor]:
    """The strided tensors among arguments or outputs; a sparse matrix has three."""
    leaves = [x for x in torch.utils._pytree.tree_leaves(values) if isinstance(x, Tensor)]
    csr = [(x.crow_indices(), x.col_indices(), x.values()) for x in leaves if x.layout is torch.sparse_csr]
    return [x for x in leaves if x.layout is torch.strided] + [part for parts in csr for part in parts]


class Bytes(TorchDispatchMode):
    """Sums the bytes that operations read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: dict[str, int] = defaultdict(int)
        self.calls: dict[str, int] = defaultdict(int)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given, made = strided((args, kwargs or {})), strided(out)
        is_new = [x for x in made if all(x.untyped_storage() is not g.untyped_storage() for g in given)]
        is_view = bool(made) and not is_new and not func._schema.is_mutable
        if not is_view and not str(func).startswith(_FREE):
            part = self.part(func)
            self.moved[part] += sum(map(size, given)) + sum(map(size, made))
            if "prototype_attend_gradient" in str(func) and (states := made[0]).dtype is torch.float32:
                # A second pass reads three tensors. The first pass writes one of them, without a skip only
                # for the second pass.
                self.moved[part] += (3 if isinstance(out[2], Tensor) else 4) * size(states)
            self.calls[part] += 1
        return out

    @staticmethod
    def part(func: Any) -> str:
        name = str(func)
        if "segment_products" in name:
            return "messages"
        if name.startswith("graphzoo."):
            return "row kernels"
        if any(word in name for word in ("bitwise", "rshift", "hash", "cos", "log")):
            return "hashing"
        return "torch's operations"


@contextmanager
def autocast() -> Iterator[None]:
    """Autocast to bf16, like `torch.autocast("cuda")`, which torch refuses without a GPU."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            yield
    finally:
        torch.set_autocast_enabled("cuda", False)


def step(nodes: int, facts: int, relations: int, queries: int, precision: str, rows: str) -> Bytes:
    """The counted bytes of a forward and a backward pass."""
    counted = Bytes()
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        for op in ("message_update", "state_mlp", "prototype_layer"):
            module = import_module(f"graphzoo.ops.{op}")
            stack.enter_context(mock.patch.object(module, "row_backend", lambda *_: rows))
        module = import_module("graphzoo.ops.map_rows")  # chunks would move the same bytes
        stack.enter_context(mock.patch.object(module, "_chunk_length", lambda rows, _: rows.shape[0]))
        module = import_module("graphzoo.ops.relational_spmm")
        stack.enter_context(mock.patch.object(module, "_choose", lambda *_: "triton"))
        spec = GraphSpec(num_nodes=nodes, num_relations=relations)
        encoder, decoder = KnowFormer(spec, hidden_channels=CHANNELS), EntityDecoder(CHANNELS)
        edges = torch.zeros(2, 2 * facts, dtype=torch.int64)
        graph = RelationalGraph.unchecked(edges, edges[0], nodes, 2 * relations)
        head = torch.zeros(queries, dtype=torch.int64)
        mask = torch.ones(2 * facts, dtype=torch.bool)
        stack.enter_context(counted)
        with autocast() if precision == "bf16-mixed" else nullcontext():
            scores = decoder(encoder(graph, head, head, edge_mask=mask))
        scores.float().square().mean().backward()
    return counted


def main() -> None:
    """Parse the arguments, count, write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("nodes", 14541), ("facts", 272115), ("relations", 237), ("queries", 384)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=TABLE)
    args = parser.parse_args()
    sizes = (args.nodes, args.facts, args.relations, args.queries)
    lines, whole = [], 0
    for precision in ("32-true", "bf16-mixed"):
        for rows in ("naive", "triton"):
            counted = step(*sizes, precision, rows)
            total = sum(counted.moved.values())
            whole = whole or total
            parts = {**counted.moved, "all": total}
            for part, moved in sorted(parts.items()):
                calls = counted.calls.get(part, sum(counted.calls.values()))
                lines.append((precision, rows, part, f"{moved / 2**30:.1f}", calls, f"{moved / whole:.3f}"))
            print(f"{precision:12}{rows:8}{total / 2**30:8.0f} GiB  {total / whole:.2f}")
    with args.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(lines)


if __name__ == "__main__":
    main()
