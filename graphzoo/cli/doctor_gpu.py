"""`graphzoo doctor --gpu`: ops, steps and processes on a GPU against the CPU and torch's own operations."""

from __future__ import annotations

import json
import logging
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, cast

import torch
from torch import Tensor

from graphzoo.callbacks.run_length import finish
from graphzoo.errors import UsageError
from graphzoo.ops.eager import float32_precision, row_backend
from graphzoo.system.files import write_text_atomically
from graphzoo.system.memory import is_out_of_memory
from graphzoo.system.processes import abort_group
from graphzoo.system.shown import say, tell

Check = dict[str, Any]
_WIDTH, _HEADS, _RELATIONS = 32, 4, 11
# Norm of the difference over the norm, of outputs and gradients: sums over all rows lose some digits in
# float32, and in bf16 a ReLU turns here and there.
_LARGEST = {"float32": 1e-3, "bfloat16": 0.1}
_LARGEST_LOSS = {"32-true": 1e-3, "bf16-mixed": 0.03}
# Of all gradients together. In bf16, torch's own operations on a CPU put KnowFormer's on WN18RR 15 % off.
_LARGEST_NORM = {"32-true": 0.01, "bf16-mixed": 0.2}
_PROCESSES = 2
_PAIRS = ("add up", "one is killed", "one runs out of memory")
_ENDED = 9  # exit status of the process that is to end
_PATIENCE = 120.0  # seconds that a process may wait for one that failed


def check_gpus(out: Path, device: str | None, versions: Mapping[str, str | None], *, quick: bool) -> int:
    """Run every check, print a line each, and write all of them as JSON; 1 where a check failed.

    On every GPU unless `device` is "cuda" or "cpu"; `quick` takes smaller graphs than FB15k-237 and WN18RR.
    """
    if out.exists():
        raise UsageError(f"{out} exists already and is not overwritten\nGive a new file with --out FILE")
    folder = next(each for each in out.absolute().parents if each.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):  # found now, not after minutes of checks
        raise UsageError(f"{folder} is not a writable folder\nGive another place with --out FILE")
    if device != "cpu" and not torch.cuda.is_available():
        raise UsageError(
            "no GPU is visible to torch\n--device cpu runs the same checks on the CPU; graphzoo doctor says "
            "which torch is installed"
        )
    gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    devices = [torch.device("cpu")] if device == "cpu" else gpus
    checks: list[Check] = []
    for place in devices:
        checks.append(_run("copy", place, partial(_copy, place, 1 << (20 if quick else 28))))
        _show(checks[-1])
        speed = checks[-1].get("gb_per_s", math.nan)
        for name, run in (*op_checks(place, speed, quick=quick), *step_checks(place, quick=quick)):
            checks.append(_run(name, place, run))
            _show(checks[-1])
    checks += process_checks(devices)
    described = {
        "versions": {**versions, "cuda": torch.version.cuda},
        "devices": [_describe(place) for place in devices],
        "checks": checks,
    }
    write_text_atomically(out, json.dumps(described, indent=1) + "\n")
    failed = [check for check in checks if not check["ok"]]
    say(f"{len(checks) - len(failed)} of {len(checks)} checks passed; {out}\n")
    return int(bool(failed))


def _run(name: str, place: torch.device, run: Callable[[], Check]) -> Check:
    """A check's figures; an error of any kind is what the check found."""
    try:
        return {"check": name, "device": str(place), **run()}
    except Exception as error:  # a kernel that does not compile, memory, a wrong device: all are reported
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return {"check": name, "device": str(place), "ok": False, "error": text}


def _show(check: Check) -> None:
    figures = {key: value for key, value in check.items() if key not in ("check", "device", "ok")}
    columns = "  ".join(f"{key} {value}" for key, value in figures.items() if value is not None)
    say(f"{'ok' if check['ok'] else 'FAILED':7}{check['device']:8}{check['check']:48}{columns}\n")


def _copy(place: torch.device, num_floats: int) -> Check:
    """What a copy reads and writes."""
    source = torch.ones(num_floats, device=place)
    target = torch.empty_like(source)
    seconds = seconds_of(lambda: target.copy_(source), place)
    return {"ok": True, "gb_per_s": round(2 * 4 * num_floats / seconds / 1e9, 1)}


def seconds_of(run: Callable[[], Any], place: torch.device) -> float:
    """Median of five runs, after one to warm up, each waited for."""
    times = []
    for _ in range(6):
        finish(place)
        began = time.perf_counter()
        run()
        finish(place)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def op_checks(place: torch.device, speed: float, *, quick: bool) -> Iterator[tuple[str, Callable[[], Check]]]:
    """Every fused op, forward and backward, in float32 and bf16, against `naive` in float32."""
    shape = (500, 4) if quick else (14541, 64)
    for dtype in (torch.float32, torch.bfloat16):
        kind = str(dtype).removeprefix("torch.")
        for name, make in _ops(place, *shape).items():
            yield f"{name}, {kind}", partial(_compare, make, dtype, kind, place, speed)


def _compare(
    make: Callable[[], Any], dtype: torch.dtype, kind: str, place: torch.device, speed: float
) -> Check:
    torch.manual_seed(0)
    run, tensors = make()
    before = float32_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        # as under autocast: rows in bf16, parameters in float32; the CPU's operations take one type only
        given = [x.to(dtype) if x.dim() == 3 or place.type == "cpu" else x for x in tensors]
        expected = _with_gradients(run, "naive", [x.float() for x in given])
        actual = _with_gradients(run, None, given)
        seconds = seconds_of(lambda: _with_gradients(run, None, given), place)
    finally:
        torch.set_float32_matmul_precision(before)
    # a maximum of tensors: Python's passes over NaN
    pairs = zip(actual, expected, strict=True)
    off = [(one.float() - other).norm() / other.norm().clamp_min(1e-6) for one, other in pairs]
    worst = float(torch.stack(off).max())
    # forward and backward read, one writes
    moved = sum(2 * x.numel() * x.element_size() for x in (*given, *actual))
    backend = row_backend(_WIDTH, *given)
    return {
        # torch's own operations compared with themselves would say nothing of a GPU's kernels
        "ok": worst <= _LARGEST[kind] and (backend == "triton" or place.type == "cpu"),
        "backend": backend,
        "error": f"{worst:.2g}",
        "ms": round(1000 * seconds, 2),
        "of_copy": None if math.isnan(speed) else round(moved / seconds / 1e9 / speed, 3),
    }


def _with_gradients(run: Callable[..., Tensor], backend: str | None, tensors: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = run(backend, *leaves)
    draw = torch.Generator(out.device).manual_seed(1)
    weight = torch.randn(out.shape, generator=draw, device=out.device).bfloat16()
    return [out.detach(), *torch.autograd.grad(out, leaves, weight.to(out.dtype))]


def _ops(place: torch.device, num_nodes: int, num_queries: int) -> dict[str, Callable[[], Any]]:
    """Name -> what makes a function of (backend, tensors) and the tensors; rows are [N, B, D]."""
    from graphzoo.ops import RelationalGraph, relational_spmm
    from graphzoo.ops.message_update import message_update
    from graphzoo.ops.prototype_layer import RowDropout, prototype_layer
    from graphzoo.ops.state_mlp import state_mlp

    def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
        scale = {1: 1.0, 2: _WIDTH**-0.5, 3: 1.0}
        return [torch.randn(shape, device=place) * scale[len(shape)] for shape in shapes]

    rows, square, vector = (num_nodes, num_queries, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH,)

    def spmm(is_masked: bool) -> Any:
        edges = torch.randint(num_nodes, (2, 20 * num_nodes), device=place)
        kinds = torch.randint(_RELATIONS, (20 * num_nodes,), device=place)
        graph = RelationalGraph(edges, kinds, num_nodes, _RELATIONS)
        mask = torch.rand(kinds.shape, device=place) < 0.9 if is_masked else None

        def run(backend: Any, x: Tensor, relation: Tensor) -> Tensor:
            return relational_spmm(x, relation, graph, edge_mask=mask, backend=backend)

        return run, drawn(rows, (_RELATIONS, num_queries, _WIDTH))

    def update() -> Any:
        def run(backend: Any, z: Tensor, sums: Tensor, *parameters: Tensor) -> Tensor:
            return message_update(z, sums, parameters, backend=backend)

        return run, drawn(rows, rows, vector, square, vector, square, vector, vector, vector)

    def mlp() -> Any:
        noise = torch.randn(num_nodes, num_queries, 1, device=place)

        def run(backend: Any, x: Tensor, weight: Tensor, extra: Tensor, *parameters: Tensor) -> Tensor:
            b1, w2, b2 = parameters
            return state_mlp(x, noise.to(x.dtype), weight, extra, (b1, w2, b2), backend=backend)

        return run, drawn(rows, square, vector, vector, square, vector)

    def layer() -> Any:
        dropout = RowDropout(0.1, torch.arange(num_queries, device=place))

        def run(backend: Any, states: Tensor, value: Tensor, skip: Tensor, *more: Tensor) -> Tensor:
            return prototype_layer(
                states, value, skip, (more[0], more[1]), more[2:], num_heads=_HEADS, dropout=dropout,
                backend=backend,
            )  # fmt: skip

        both = (2 * _WIDTH, _WIDTH), (2 * _WIDTH,)
        parameters = (vector, vector, square, vector, square, vector, vector, vector)
        return run, drawn(rows, rows, rows, *both, *parameters)

    return {
        "relational_spmm": lambda: spmm(False),
        "relational_spmm with a mask": lambda: spmm(True),
        "message_update": update,
        "state_mlp": mlp,
        "prototype_layer": layer,
    }


def step_checks(place: torch.device, *, quick: bool) -> Iterator[tuple[str, Callable[[], Check]]]:
    """A step of every task, beside loss and norm of the gradients of the same step on the CPU.

    The step with the dropout and noise of training has to be finite.
    """
    for precision in ("32-true", "bf16-mixed"):
        for name, make in _tasks(quick=quick).items():
            yield f"step of {name}, {precision}", partial(_step, make, place, precision)


def _step(make: Callable[[], Any], place: torch.device, precision: str) -> Check:
    expected, expected_norm, _ = _train(make, torch.device("cpu"), "32-true")
    drawn, drawn_norm, _ = _train(make, place, precision, draws=True)
    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place)
    loss, norm, seconds = _train(make, place, precision)
    off = abs(loss - expected) / max(abs(expected), 1e-6)
    norm_off = abs(norm - expected_norm) / max(expected_norm, 1e-6)
    peak = torch.cuda.max_memory_allocated(place) / 2**30 if place.type == "cuda" else None
    return {
        "ok": off <= _LARGEST_LOSS[precision]
        and norm_off <= _LARGEST_NORM[precision]
        and math.isfinite(drawn + drawn_norm),
        "loss": round(loss, 6),
        "on_cpu": round(expected, 6),
        "gradient": round(norm, 6),
        "gradient_on_cpu": round(expected_norm, 6),
        "ms": round(1000 * seconds, 1),
        "gib": None if peak is None else round(peak, 2),
    }


def _train(
    make: Callable[[], Any], place: torch.device, precision: str, *, draws: bool = False
) -> tuple[float, float, float]:
    """Loss and norm of the gradients of the first step, and seconds of the last.

    Unless it `draws`, an encoder that draws on the device, which draws others than a CPU, is in evaluation
    mode: without dropout and noise. KnowFormer's are functions of numbers, the same everywhere.
    """
    from lightning.pytorch import Callback, Trainer, seed_everything
    from torch.nn.utils import get_total_norm

    from graphzoo.encoders import KnowFormer

    class Clock(Callback):
        def __init__(self) -> None:
            self.times: list[float] = []
            self.losses: list[Tensor] = []
            self.norms: list[Tensor] = []

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            self.norms.append(get_total_norm([p.grad for p in pl_module.parameters() if p.grad is not None]))

        def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            if not (draws or isinstance(pl_module.encoder, KnowFormer)):
                pl_module.encoder.eval()
            finish(place)
            self.times.append(time.perf_counter())

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *args: Any) -> None:
            self.losses.append(outputs["loss"].detach())
            finish(place)
            self.times[-1] = time.perf_counter() - self.times[-1]

    clock, kind = Clock(), cast(Any, precision)
    with warnings.catch_warnings(), _quiet(), tempfile.TemporaryDirectory() as scratch:
        warnings.simplefilter("ignore")
        seed_everything(0, verbose=False)
        task, data = make()
        devices = [place.index or 0] if place.type == "cuda" else 1
        trainer = Trainer(
            accelerator="gpu" if place.type == "cuda" else "cpu", devices=devices, precision=kind,
            max_steps=3 if place.type == "cuda" else 1, limit_val_batches=0, logger=False, callbacks=[clock],
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=scratch,
        )  # fmt: skip
        trainer.fit(task, datamodule=data)
    return float(clock.losses[0]), float(clock.norms[0]), clock.times[-1]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Lightning says of every Trainer."""
    loggers = [logging.getLogger(f"lightning.{name}") for name in ("pytorch", "fabric")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _tasks(*, quick: bool) -> dict[str, Callable[[], Any]]:
    """Random graphs of known sizes, so that nothing is downloaded."""
    from graphzoo.datamodules import KGDataModule, LinkDataModule, NodeDataModule
    from graphzoo.encoders import PENCIL, GALiT, KnowFormer, NodeFormer
    from graphzoo.tasks import KGCompletion, LinkPrediction, NodeClassification

    def facts(entities: int, relations: int, triples: int) -> Callable[[], Any]:
        def make() -> Any:
            draw = torch.Generator().manual_seed(0)
            ends = torch.randint(entities, (2, triples), generator=draw)
            kinds = torch.randint(relations, (triples,), generator=draw)
            rows = sorted({*zip(ends[0].tolist(), kinds.tolist(), ends[1].tolist(), strict=True)})
            named = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in rows]
            # in one part, whose loss is that of the step
            data = KGDataModule.from_triples(
                named[4:], named[:2], named[2:4], batch_size=16, micro_batch_size=16
            )
            return KGCompletion(lambda spec: KnowFormer(spec, noise_std=1.0), loss="ce"), data

        return make

    def nodes(encoder: Any, **settings: Any) -> Callable[[], Any]:
        def make() -> Any:
            draw = torch.Generator().manual_seed(0)
            size = 300 if quick else 2708
            graph = {
                "x": torch.randn(size, 64, generator=draw),
                "edge_index": torch.randint(size, (2, 4 * size), generator=draw),
                "y": torch.randint(7, (size,), generator=draw),
            }
            task = NodeClassification(lambda spec: encoder(spec, hidden_channels=32, **settings))
            return task, NodeDataModule.from_data(graph)

        return make

    def links() -> Any:
        draw = torch.Generator().manual_seed(0)
        size = 200 if quick else 2000
        edges = torch.randint(size, (2, 5 * size), generator=draw)
        task = LinkPrediction(lambda spec: PENCIL(spec, hidden_channels=64, num_layers=2, num_heads=4))
        return task, LinkDataModule.from_edge_index(edges, batch_size=32, micro_batch_size=32)

    sizes = {"FB15k-237": (14541, 237, 272115), "WN18RR": (40943, 11, 86835)}
    if quick:
        sizes = {"FB15k-237, small": (300, 20, 3000)}
    return {
        **{f"KnowFormer, {name}": facts(*size) for name, size in sizes.items()},
        "NodeFormer, Cora": nodes(NodeFormer),
        "GALiT, Cora": nodes(GALiT),
        "PENCIL, 32 links": links,
    }


def process_checks(devices: list[torch.device]) -> list[Check]:
    """Two processes that add up a tensor, and pairs of which one ends: the other must not wait for ever."""
    checks = []
    on_gpus = devices[0].type == "cuda" and len(devices) >= _PROCESSES
    backend = "nccl" if on_gpus else "gloo"
    for name in _PAIRS:
        began = time.perf_counter()
        with closing(socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        code = f"from graphzoo.cli.doctor_gpu import work; work({backend!r}, {name!r})"
        started = []
        for rank in range(_PROCESSES):
            place = {"RANK": str(rank), "WORLD_SIZE": str(_PROCESSES), "MASTER_ADDR": "127.0.0.1"}
            environment = {**os.environ, **place, "MASTER_PORT": str(port), "GRAPHZOO_IMPORTED": "1"}
            command = [sys.executable, "-c", code]
            started.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
        statuses: list[int | None] = []
        for process in started:
            try:
                statuses.append(process.wait(timeout=_PATIENCE))
            except subprocess.TimeoutExpired:
                process.kill()
                statuses.append(None)
        expected = statuses == [0, 0] if name == "add up" else None not in statuses and statuses[1] == _ENDED
        checks.append({
            "check": f"{_PROCESSES} processes, {name}", "device": backend, "ok": bool(expected),
            "seconds": round(time.perf_counter() - began, 1), "statuses": str(statuses),
        })  # fmt: skip
        _show(checks[-1])
    if devices[0].type == "cuda" and not on_gpus:
        tell("NCCL was not tried: it takes two GPUs\n")
    return checks


def work(backend: str, what: str) -> None:
    """What a process of `process_checks` does."""
    from datetime import timedelta

    from torch import distributed

    rank = int(os.environ["RANK"])
    if backend == "nccl":
        torch.cuda.set_device(rank)
    distributed.init_process_group(backend, timeout=timedelta(seconds=60))
    device = "cuda" if backend == "nccl" else "cpu"
    total = torch.ones(4, device=device)
    distributed.all_reduce(total)
    if not torch.equal(total.cpu(), torch.full((4,), float(_PROCESSES))):
        sys.exit(3)
    if what == "one is killed" and rank == 1:
        os._exit(_ENDED)
    if what == "one runs out of memory" and rank == 1:
        try:
            torch.empty(2**60, dtype=torch.uint8, device=device)
        except RuntimeError as error:
            abort_group()  # as a run does where a step fails
            os._exit(_ENDED if is_out_of_memory(error) else 4)
    distributed.all_reduce(total)
    distributed.barrier()
    distributed.destroy_process_group()


def _describe(place: torch.device) -> Check:
    if place.type == "cpu":
        return {"device": "cpu", "threads": torch.get_num_threads()}
    properties = torch.cuda.get_device_properties(place)
    return {
        "device": str(place),
        "name": properties.name,
        "gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
    }
