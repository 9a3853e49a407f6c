"""`--matmul_precision`: TF32 on CUDA unless asked otherwise, nothing on the CPU; said, kept, and put back."""

import json
from pathlib import Path

import pytest
import torch

from graphzoo.cli import main
from graphzoo.training.lightning_cli import set_matmul_precision
from graphzoo.training.plan import make_plan

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def put_back():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("wanted", "device", "expected"),
    [
        (None, CPU, "highest"),
        (None, CUDA, "high"),
        ("highest", CUDA, "highest"),
        ("medium", CUDA, "medium"),
        ("medium", CPU, "medium"),
    ],
)
def test_what_is_set(wanted, device, expected):
    torch.set_float32_matmul_precision("highest")
    set_matmul_precision(wanted, device)
    assert torch.get_float32_matmul_precision() == expected


@pytest.mark.parametrize("wanted", ["hi", "", "HIGH"])
def test_another_word_is_refused(wanted, capsys):
    words = ["fit", "--model", "knowformer", "--data", "umls", f"--matmul_precision={wanted}"]
    assert main(words) == 2
    assert (
        f"--matmul_precision must be one of highest, high, medium, got {wanted!r}" in capsys.readouterr().err
    )


def test_a_run_says_and_keeps_it(fit):
    words = ["--trainer.enable_progress_bar=true", "--run_dir", "run", "--no-test"]
    said = fit(*words, "--matmul_precision", "high", epochs=1)
    assert "precision 32-true, float32 products high\n" in said.out
    assert "# matmul_precision: high\n" in Path("run/config.yaml").read_text()
    assert torch.get_float32_matmul_precision() == "highest", "of this process it is none"
    assert make_plan("fit", ["--ckpt_path", "run"]).matmul_precision == "high"
    again = ["--config", "run/config.yaml", "--run_dir", "again"]  # which repeats the run
    assert make_plan("fit", again).matmul_precision == "high"
    assert make_plan("fit", [*again, "--matmul_precision=medium"]).matmul_precision == "medium"
    assert main(["test", "--ckpt_path", "run", "--quiet", "--run_dir", "tested"]) == 0
    fit("--run_dir", "usual", "--matmul_precision", "highest", epochs=1)
    results = {run: json.loads(Path(run, "results.json").read_text()) for run in ("tested", "usual")}
    assert {run: result["matmul_precision"] for run, result in results.items()} == {
        "tested": "high", "usual": None,
    }  # fmt: skip
    resumed = make_plan("fit", ["--ckpt_path", "run", "--matmul_precision", "highest"])
    assert resumed.matmul_precision == "highest"
