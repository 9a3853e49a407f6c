"""`--matmul_precision`: TF32 on CUDA by default, unchanged on the CPU; shown, saved and reset."""

import json
from pathlib import Path

import pytest
import torch

from graphzoo.cli import main
from graphzoo.training.lightning_cli import set_matmul_precision
from graphzoo.training.plan import make_plan

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def reset():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("option", "device", "expected"),
    [
        (None, CPU, "highest"),
        (None, CUDA, "high"),
        ("highest", CUDA, "highest"),
        ("medium", CUDA, "medium"),
        ("medium", CPU, "medium"),
    ],
)
def test_the_precision_depends_on_option_and_device(option, device, expected):
    torch.set_float32_matmul_precision("highest")
    set_matmul_precision(option, device)
    assert torch.get_float32_matmul_precision() == expected


@pytest.mark.parametrize("option", ["hi", "", "HIGH"])
def test_an_unknown_precision_is_refused(option, capsys):
    words = ["fit", "--model", "knowformer", "--data", "umls", f"--matmul_precision={option}"]
    assert main(words) == 2
    assert (
        f"--matmul_precision must be one of highest, high, medium, got {option!r}" in capsys.readouterr().err
    )


def test_a_run_shows_and_saves_its_precision(fit):
    words = ["--trainer.enable_progress_bar=true", "--run_dir", "run", "--no-test"]
    shown = fit(*words, "--matmul_precision", "high", epochs=1)
    assert "precision 32-true, float32 products high\n" in shown.out
    assert "# matmul_precision: high\n" in Path("run/config.yaml").read_text()
    assert torch.get_float32_matmul_precision() == "highest", "of this process it is none"
    assert make_plan("fit", ["--ckpt_path", "run"]).matmul_precision == "high"
    again = ["--config", "run/config.yaml", "--run_dir", "again"]  # repeats the run
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
