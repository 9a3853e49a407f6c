"""The CUDA kernels compile ahead of time, with the registers that the kept table says: no GPU is needed."""

import csv
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results" / "kernel_resources.csv"
KEY = ("op", "kernel", "variant", "arch")
ON_LINUX = sys.platform == "linux" and importlib.util.find_spec("triton")
# The Triton of the kept table. That of torch's CUDA builds (3.7 for torch 2.13) takes up to twice as many.
VERSION = importlib.metadata.version("triton") if ON_LINUX else ""
IS_KEPT = VERSION.startswith("3.9.")


def lines(path):
    with path.open(newline="", encoding="utf-8") as file:
        return {tuple(row[name] for name in KEY): row for row in csv.DictReader(file)}


# Architecture, cases, kernels. All ten at the width that all presets have, on one architecture; on the others
# one product in TF32 and the widest loads. `.ci/run` asks for every number format of that width on every
# architecture, and on one of them for every case: of these it compiles what the kept table has not, of this
# source and with this Triton.
SOME = [
    (80, "state_mlp float32 D=32 x=True extra=True", 2),
    (90, "bfloat16 D=32 ", 10),
    (100, "relational_spmm float32 D=32 ", 2),
]
EVERY = [(80, "=32 ", 10), (90, "", 10), (100, "=32 ", 10)]
CHOSEN = [(*row, []) for row in SOME]
if os.environ.get("GRAPHZOO_TEST_KERNELS") == "every":
    CHOSEN += [(*row, ["--missing"]) for row in EVERY]


@pytest.mark.skipif(not ON_LINUX, reason="Triton is not installed")
@pytest.mark.parametrize(("arch", "wanted", "kernels", "more"), CHOSEN)
def test_kernels_compile_and_keep_to_their_registers(arch, wanted, kernels, more, tmp_path):
    """Of four ops, forward and backward; `python -m benchmarks.kernel_resources` compiles all there are.

    Triton and ptxas of other versions may take some registers more or fewer.
    """
    command = [sys.executable, "-m", "benchmarks.kernel_resources", "--arch", str(arch), "--wanted", wanted]
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    out = shutil.copy(KEPT, tmp_path / "found.csv")
    done = subprocess.run(
        [*command, *more, "--out", out], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr
    found, kept = lines(out), lines(KEPT)
    assert len({(op, kernel.split()[0]) for op, kernel, *_ in found}) == kernels
    for key, row in found.items():
        known = kept[key]
        if VERSION == "3.9.0":
            remedy = "run python -m benchmarks.kernel_resources --missing"
            stale = f"{key}: the table is of another source, {remedy}"
            assert row["digest"] == known["digest"], stale
        if IS_KEPT:
            assert int(row["registers"]) <= min(255, 1.3 * int(known["registers"]) + 8), key
            assert int(row["spills"]) == 0, key
        assert int(row["spills"]) <= 64, key
        assert int(row["shared"]) <= 1.5 * int(known["shared"]) + 4096, key
        if key[2].startswith(("bfloat16", "float16", "tf32")):
            assert int(row["spills"]) <= 32, f"{key} spills"
        if key[1].startswith("sum_products_kernel"):
            assert float(row["per_edge"]) <= 1.2 * float(known["per_edge"]), key
            # rows of 30 numbers or of 1 begin anywhere
            is_narrow = key[2].count("uneven BLOCK") + key[2].count("BLOCK=1 ") > 0
            assert (int(row["loads_of_16"]) > 0) != is_narrow, f"{key}: 16 bytes of a row are read at once"


def test_the_loop_over_edges_takes_few_instructions():
    """As many as docs/speed.md says; of rows that begin at multiples of 16 bytes."""
    rows = [row for row in lines(KEPT).values() if row["per_edge"]]
    rows = [row for row in rows if not any(x in row["variant"] for x in ("uneven BLOCK", "BLOCK=1 "))]
    usual = [float(row["per_edge"]) for row in rows if row["variant"].startswith(("float32", "bfloat16"))]
    assert len(usual) == 2 * 3 * (2 * 8 + 1) and max(usual) <= 27 and min(usual) == 15.25


def test_no_register_is_spilled():
    """In the kept table, in any number format, as docs/speed.md says."""
    rows = lines(KEPT).values()
    kinds = {row["variant"].split()[0] for row in rows}
    assert kinds == {"bfloat16", "float16", "tf32", "float32", "float64"}
    assert {row["spills"] for row in rows} == {"0"}


@pytest.mark.skipif(not ON_LINUX, reason="Triton is not installed")
def test_a_part_of_the_cases_does_not_take_the_place_of_the_kept_table():
    before = KEPT.read_bytes()
    command = [sys.executable, "-m", "benchmarks.kernel_resources", "--wanted", "state_mlp float32 D=32"]
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2 and "--out FILE" in done.stderr and KEPT.read_bytes() == before
