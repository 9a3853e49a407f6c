"""Spawned loader processes, as on macOS and Windows, make the batches of the main process."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]
LOADED = ("kg-bce", "kg-near-parts", "nodes-parts", "links-pencil")


def tensors(item):
    """All tensors in a batch, in order."""
    if torch.is_tensor(item):
        return [item]
    if dataclasses.is_dataclass(item):
        item = [getattr(item, field.name) for field in dataclasses.fields(item)]
    if isinstance(item, dict):
        item = item.values()
    return [one for part in item for one in tensors(part)] if isinstance(item, (list, tuple)) else []


def batches(name, folder, workers):
    from helpers.process_jobs import make

    datamodule = make(name, folder, num_workers=workers)
    datamodule.prepare_data()
    datamodule.setup("fit")
    return [tensors(batch) for batch in datamodule.train_dataloader()]


def compare(folder):
    """Compare the batches with and without workers; runs in the process that the test starts."""
    import multiprocessing

    multiprocessing.set_start_method("spawn")
    for number, name in enumerate(LOADED):
        # Each worker takes seconds to import torch, so only the first job has two, which take turns.
        alone, spawned = (batches(name, folder, workers) for workers in (0, 1 if number else 2))
        assert len(alone) == len(spawned) > 1 and all(alone), name
        for one, other in zip(alone, spawned, strict=True):
            assert all(map(torch.equal, one, other)) and len(one) == len(other), name


@pytest.mark.slow
@pytest.mark.fault("loader processes that are spawned, not forked", "they load the same batches")
def test_spawned_workers_make_the_same_batches(tmp_path):
    from helpers.process_jobs import write_data

    write_data(tmp_path)
    code = f"import sys; sys.path[:0] = [{str(TESTS)!r}, {str(Path(__file__).parent)!r}]\n"
    (tmp_path / "job.py").write_text(
        code
        + "from test_spawned_workers import compare\nif __name__ == '__main__':\n    compare(sys.argv[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "job.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
