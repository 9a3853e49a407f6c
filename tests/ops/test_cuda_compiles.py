"""The CUDA kernels compile ahead of time, with the registers that the kept table says: no GPU is needed."""

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results" / "kernel_resources.csv"
KEY = ("op", "kernel", "variant", "arch")
ON_LINUX = sys.platform == "linux" and importlib.util.find_spec("triton")


def lines(path):
    with path.open(newline="", encoding="utf-8") as file:
        return {tuple(row[name] for name in KEY): row for row in csv.DictReader(file)}


# Architecture, cases, kernels. All ten at the width that all presets have, on one architecture; on the others
# one product in TF32 and the widest loads. `.ci/run` asks for every number format and architecture.
SOME = [
    (80, "state_mlp float32 D=32 x=True extra=True", 2),
    (90, "bfloat16 D=32 ", 10),
    (100, "relational_spmm float32 D=32 ", 2),
]
EVERY = [(80, "bfloat16 D=32 ", 10), (90, "=32 ", 10), (100, "bfloat16 D=32 ", 10)]
CHOSEN = EVERY if os.environ.get("GRAPHZOO_TEST_KERNELS") == "every" else SOME


@pytest.mark.skipif(not ON_LINUX, reason="Triton is not installed")
@pytest.mark.parametrize(("arch", "wanted", "kernels"), CHOSEN)
def test_kernels_compile_and_keep_to_their_registers(arch, wanted, kernels, tmp_path):
    """Of four ops, forward and backward; `python -m benchmarks.kernel_resources` compiles all there are.

    Triton and ptxas of other versions may take some registers more or fewer.
    """
    command = [sys.executable, "-m", "benchmarks.kernel_resources", "--arch", str(arch), "--wanted", wanted]
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    out = tmp_path / "found.csv"
    done = subprocess.run([*command, "--out", out], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    found, kept = lines(out), lines(KEPT)
    assert len({(op, kernel) for op, kernel, *_ in found}) == kernels
    for key, row in found.items():
        known = kept[key]
        assert int(row["registers"]) <= min(255, 1.3 * int(known["registers"]) + 8), key
        assert int(row["spills"]) <= int(known["spills"]) + 64, key
        assert int(row["shared"]) <= 1.5 * int(known["shared"]) + 4096, key
        if key[2].startswith(("bfloat16", "tf32")):
            assert int(row["spills"]) <= 32, f"{key} spills"
        if key[1] == "sum_products_kernel" and key[2].startswith("float32"):
            assert int(row["wide_loads"]) > 0, "16 bytes of a row are read at once"
