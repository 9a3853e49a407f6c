"""One, two and three real processes have bit-identical scores, and the same losses in training."""

import json
import sys
from pathlib import Path

import pytest
from helpers import process_jobs
from helpers.worlds import TESTS, launch, start, wait

PAGE = TESTS.parent / "docs" / "distributed.md"
WORLDS = (1, 2, 3)


def lines_of_table(alone: dict[str, dict[str, dict[str, str]]]) -> list[str]:
    """Rows of the table in docs/distributed.md."""
    return [
        f"| {what} | {', '.join(f'`{name}`' for name in sorted(alone[job]['figures']))} |"
        for job, what in process_jobs.JUDGED.items()
    ] + [f"| {what} | {len(alone[job]['losses'])} |" for job, what in process_jobs.TRAINED.items()]


# Many pending operations, like those of a backward pass: gloo's threads hold tensors when the process ends.
ENDS_BUSY = """
import sys
from pathlib import Path

from helpers import process_jobs
import torch

process_jobs.run("kg", Path(sys.argv[1]), 2)
for _ in range(1000):
    torch.distributed.all_reduce(torch.zeros(100_000), async_op=True)
"""


@pytest.mark.slow
@pytest.mark.fault(
    "a process ends while gloo's threads hold tensors",
    "it waits for the threads; otherwise it would abort (status 134)",
)
def test_processes_wait_for_the_threads_of_gloo_at_their_end(tmp_path):
    process_jobs.write_data(tmp_path)
    script = tmp_path / "ends_busy.py"
    script.write_text(ENDS_BUSY)
    launch([script, tmp_path], tmp_path, 2, sys.executable)  # tests the end of the interpreter


@pytest.mark.slow
@pytest.mark.fault(
    "fewer samples than processes, uneven shards, an empty part of a batch",
    ("every process makes the same number of steps; scores are bit for bit those of a single process"),
)
def test_several_processes_have_the_scores_and_losses_of_one(tmp_path):
    process_jobs.write_data(tmp_path)
    script = TESTS / "helpers" / "process_jobs.py"
    wait(
        [p for size in WORLDS for p in start([script, tmp_path, tmp_path / f"out-{size}"], tmp_path, size)],
        tmp_path,
    )

    (alone,) = found(tmp_path, 1)
    assert set(alone) == {*process_jobs.JUDGED, *process_jobs.TRAINED}
    counted = {job: alone[job]["evaluated"] for job in process_jobs.JUDGED}
    assert all(counted.values()), counted
    for world_size in WORLDS[1:]:
        for rank, others in enumerate(found(tmp_path, world_size)):
            where = f"rank {rank} of {world_size}"
            for job in process_jobs.JUDGED:
                assert others[job]["figures"] == alone[job]["figures"], f"{job}, {where}"
                assert others[job]["evaluated"] == alone[job]["evaluated"], f"{job}, {where}"
                assert alone[job]["tables"] or job == "kg-mixture", "a table is of one graph"
                assert others[job]["tables"] == ({} if rank else alone[job]["tables"]), f"{job}, {where}"
            for job in process_jobs.TRAINED:
                assert len(alone[job]["losses"]) >= 3 and max(alone[job]["gradients"]) > 1e-3
                assert others[job]["losses"] == pytest.approx(alone[job]["losses"], rel=2e-5), (
                    f"{job}, {where}"
                )
                assert others[job]["gradients"] == pytest.approx(
                    alone[job]["gradients"], rel=1e-3, abs=1e-6
                ), f"{job}, {where}"
                assert others[job]["weight"] == pytest.approx(alone[job]["weight"], rel=1e-3), (
                    f"{job}, {where}"
                )
    page = PAGE.read_text()
    assert [line for line in lines_of_table(alone) if line not in page] == []


def found(folder: Path, world_size: int) -> list[dict[str, dict[str, dict[str, str]]]]:
    """Results of each process of a world."""
    return [json.loads((folder / f"out-{world_size}-{rank}").read_text()) for rank in range(world_size)]
