"""`doctor --gpu` on CUDA tensors without memory and with simulated measurements."""

import json
import math

import pytest
import torch
from helpers.pretended_cuda import Waits, pretended_cuda

from graphzoo.cli import doctor_gpu
from graphzoo.encoders import GALiT
from graphzoo.tasks import NodeClassification

GPU = torch.device("cuda", 0)
OPS = ["relational_spmm", "relational_spmm with a mask", "message_update", "state_mlp", "prototype_layer"]


@pytest.fixture
def no_clock(monkeypatch):
    monkeypatch.setattr(doctor_gpu, "seconds_of", lambda run, place: run() and 0.001)
    # A torch built for the CPU cannot differentiate through CUDA tensors without memory.
    monkeypatch.setattr(
        torch.autograd, "grad", lambda out, leaves, weight: list(map(torch.empty_like, leaves))
    )


@pytest.mark.filterwarnings("ignore")
def test_every_op_runs_its_kernel_and_is_compared(monkeypatch, no_clock):
    """Every value read from a tensor without memory is 1, and an error of 1 fails the check."""
    with pretended_cuda(monkeypatch), Waits() as waits:
        checks = dict(doctor_gpu.op_checks(GPU, 1e-3, quick=True))
        found = {name: run() for name, run in checks.items()}
    assert list(found) == [f"{name}, {kind}" for kind in ("float32", "bfloat16") for name in OPS]
    for name, check in found.items():
        assert check["backend"] == "triton" and check["error"] == "1" and not check["ok"], name
        assert check["of_copy"] > 0 and check["ms"] == 1
    assert waits.found["item"] >= len(found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["triton", "naive"])
def test_a_check_fails_without_the_triton_kernel(monkeypatch, no_clock, backend):
    monkeypatch.setitem(doctor_gpu._LARGEST, "float32", 2.0)
    monkeypatch.setattr(doctor_gpu, "row_backend", lambda *given: backend)
    with pretended_cuda(monkeypatch), Waits():
        make = doctor_gpu._ops(GPU, 20, 2)["state_mlp"]
        found = doctor_gpu._compare(make, torch.float32, "float32", GPU, math.nan)
    assert found["ok"] == (backend == "triton") and found["of_copy"] is None


# Loss and norm of the gradients on the GPU. Both are 2 on the CPU.
@pytest.mark.parametrize(
    ("precision", "loss", "norm", "is_ok"),
    [
        ("32-true", 2.001, 2.01, True),
        ("32-true", 2.01, 2.0, False),
        ("32-true", 2.0, 2.1, False),
        ("bf16-mixed", 2.05, 2.1, True),
        ("bf16-mixed", 2.1, 2.0, False),
        ("bf16-mixed", 2.0, 2.5, False),
        ("bf16-mixed", math.nan, 2.0, False),
        ("bf16-mixed", 2.0, math.nan, False),
    ],
)
def test_a_step_is_compared_with_the_cpu(monkeypatch, precision, loss, norm, is_ok):
    calls = []

    def train(make, place, kind, *, draws=False):
        calls.append((place.type, kind, draws))
        return (loss, norm, 0.25) if place.type == "cuda" and not draws else (2.0, 2.0, 9.0)

    monkeypatch.setattr(doctor_gpu, "_train", train)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda place: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda place: 3 << 29)
    found = doctor_gpu._step(lambda: None, GPU, precision)
    assert found["ok"] is is_ok and found["ms"] == 250 and found["gib"] == 1.5
    assert calls == [("cpu", "32-true", False), ("cuda", precision, True), ("cuda", precision, False)]
    assert found["on_cpu"] == 2


def test_a_step_with_dropout_has_to_be_finite(monkeypatch):
    place = torch.device("cpu")
    monkeypatch.setattr(
        doctor_gpu, "_train", lambda *given, draws=False: (math.nan if draws else 2.0, 2.0, 1.0)
    )
    assert not doctor_gpu._step(lambda: None, place, "32-true")["ok"]


def test_steps_are_compared_in_one_micro_batch():
    """The loss of a step of several micro-batches is that of the last one."""
    tasks = doctor_gpu._tasks(quick=True)
    for name in ("KnowFormer, FB15k-237, small", "PENCIL, 32 links"):
        _, data = tasks[name]()
        assert data.micro_batch_size == data.batch_size


@pytest.mark.parametrize("draws", [False, True])
def test_steps_are_compared_without_dropout(draws):
    modes = []

    class Watched(GALiT):
        def forward_with_auxiliary(self, *given, **named):
            modes.append(self.training)
            return super().forward_with_auxiliary(*given, **named)

    def make():
        _, data = doctor_gpu._tasks(quick=True)["GALiT, Cora"]()
        return NodeClassification(lambda spec: Watched(spec, hidden_channels=8)), data

    doctor_gpu._train(make, torch.device("cpu"), "32-true", draws=draws)
    assert modes and set(modes) == {draws}


def test_every_gpu_is_checked_and_failures_are_reported(monkeypatch, tmp_path, capsys):
    def check(place, *speed, quick):
        def run():
            if place.index == 1:
                raise RuntimeError("no kernel image")
            return {"ok": True}

        yield "an op", run

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(doctor_gpu, "_copy", lambda place, num_floats: {"ok": True, "gb_per_s": 2.0})
    monkeypatch.setattr(doctor_gpu, "op_checks", check)
    monkeypatch.setattr(doctor_gpu, "step_checks", check)
    monkeypatch.setattr(doctor_gpu, "_describe", str)
    places = []
    monkeypatch.setattr(doctor_gpu, "process_checks", lambda devices: places.extend(devices) or [])
    assert doctor_gpu.check_gpus(tmp_path / "out.json", None, {}, quick=True) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert [c["ok"] for c in found["checks"]] == [True, True, True, True, False, False]
    assert found["checks"][-1]["error"] == "RuntimeError: no kernel image"
    assert places == [torch.device("cuda", 0), torch.device("cuda", 1)] and len(found["devices"]) == 2
    assert "4 of 6 checks passed" in capsys.readouterr().out
