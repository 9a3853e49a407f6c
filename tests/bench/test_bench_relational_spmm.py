"""The benchmark of the relational SpMM writes times, ratios and memory in the columns of all benchmarks."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_benchmark_writes_times_ratios_and_memory(tmp_path):
    out = tmp_path / "results" / "spmm.csv"
    command = "-m benchmarks.ops.bench_relational_spmm --sizes umls --providers naive numba --seconds 0.01"
    subprocess.run(
        [sys.executable, *command.split(), "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["provider"] for row in rows} == {"naive", "numba"}
    assert all("N=135 E=10432 R=92 F=64*32" in row["config"] for row in rows)
    assert all(0 <= float(row["p20"]) <= float(row["p50"]) <= float(row["p80"]) for row in rows)
    times = {(r["provider"], r["mode"]): float(r["p50"]) for r in rows if r["metric"] == "time"}
    ratios = {
        (r["provider"], r["mode"]): float(r["p50"]) for r in rows if r["metric"] == "speedup_over_naive"
    }
    assert (
        set(times)
        == set(ratios)
        == {(p, m) for p in ("naive", "numba") for m in ("forward", "backward", "both")}
    )
    for provider, mode in times:
        assert ratios[provider, mode] == pytest.approx(times["naive", mode] / times[provider, mode], rel=2e-3)
    memory = {row["provider"]: float(row["p50"]) for row in rows if row["metric"] == "peak_memory"}
    # The messages take 82 MiB, and `naive` stores several tensors of this size.
    assert memory["numba"] < 82 < memory["naive"]
