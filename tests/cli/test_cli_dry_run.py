"""`fit --dry-run`: what a run will take, and nothing on the disk; `--quiet`; what a run says at its start."""

import resource

import pytest
import torch

from graphzoo import dry_run
from graphzoo.dry_run import limited_memory
from graphzoo.summary import duration, size


def dry(fit, *options, status=0, epochs=3):
    return fit("--dry-run", *options, status=status, epochs=epochs)


def shown(result):
    """The table as a dictionary; continued lines are joined."""
    found, last = {}, ""
    for line in result.out.splitlines():
        cells = [cell.strip() for cell in line[1:-1].replace("│", "|").split("|")]
        if len(cells) == 2:
            last = cells[0] or last
            found[last] = f"{found.get(last, '')} {cells[1]}".strip()
    return found


@pytest.mark.parametrize("task", ["fit", "fit_nodes", "fit_links"])
def test_sizes_times_and_memory_and_nothing_written(request, workplace, task):
    fit = request.getfixturevalue(task)
    before = sorted(workplace.rglob("*"))
    result = dry(fit)
    assert sorted(workplace.rglob("*")) == before, "a dry run writes nothing"
    found = shown(result)
    assert list(found) == [
        "device", "graph", "model", "training", "first step", "a step", "training, an epoch", "validation",
        "the whole run", "peak memory",
    ]  # fmt: skip
    assert found["device"] == "cpu, precision 32-true"
    assert "parameters" in found["model"] and "at most 3 epochs" in found["training"]
    assert "for 3 epochs, then the test" in found["the whole run"]
    assert " that the process can have, in these steps" in found["peak memory"]
    assert "nothing is written" in result.out and "epoch 1/" not in result.out


def test_it_counts_what_the_run_then_does(fit, results, monkeypatch):
    found = shown(dry(fit, "--data.micro_batch_size=4"))
    fit("--run_dir=run", "--data.micro_batch_size=4", epochs=3)
    real = results("run")
    steps = real["steps"] // 3
    assert found["training, an epoch"].endswith(f" in {steps} steps")
    assert f"{steps} steps an epoch, each in 4 parts" in found["training"]
    assert found["model"] == f"KnowFormer, {real['num_parameters']:,} parameters"


def test_the_estimate_is_steps_times_time(fit, monkeypatch):
    """With a clock that ticks once a second each step takes a second or two, whatever the machine."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(dry_run.time, "perf_counter", lambda: float(next(ticks)))
    found = shown(dry(fit, "--trainer.check_val_every_n_epoch=3", epochs=6))
    step = float(found["a step"].split(" s")[0])
    epoch, steps = found["training, an epoch"].split(" in ")
    assert float(epoch.split(" ")[0]) == pytest.approx(step * int(steps.split()[0]))
    validation, batches = found["validation"].split(" in ")
    assert float(validation.split(" ")[0]) % int(batches.split()[0]) == 0
    whole = found["the whole run"]
    expected = 6 * step * int(steps.split()[0]) + 2 * float(validation.split(" ")[0])
    assert whole.startswith(duration(expected)), (whole, found)


def test_what_cannot_fit_is_refused(fit, workplace, monkeypatch):
    monkeypatch.setattr("graphzoo.memory.available_bytes", lambda device: 1000)
    result = dry(fit, status=2)
    assert "available on cpu" in result.err and "Take a smaller" in result.err
    assert len(result.err.splitlines()) <= 6 and not list(workplace.glob("runs*"))


def test_a_step_that_runs_out_of_memory_says_what_takes_less(fit, workplace):
    breaks = ["--trainer.callbacks+=cli_helpers.RunOut", "--trainer.callbacks.step=1"]
    result = dry(fit, *breaks, status=1)
    assert "out of memory" in result.err and "Take a smaller --data.micro_batch_size" in result.err
    assert "Go on" not in result.err and "Begin anew" not in result.err
    assert not list(workplace.glob("runs*"))


def test_allocations_beyond_the_machine_fail_instead_of_killing(monkeypatch):
    if torch.cuda.is_available():
        pytest.skip("no limit beside a GPU")
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
    monkeypatch.setattr(dry_run, "available_bytes", lambda device: used + 2**30)
    with limited_memory():
        torch.empty(2**26, dtype=torch.uint8)  # there is room
        with pytest.raises(RuntimeError, match="allocate memory"):
            torch.empty(2**32, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    torch.empty(2**32, dtype=torch.uint8)  # pages that nobody touches take nothing


@pytest.mark.parametrize("command", ["test", "validate"])
def test_other_commands_have_no_steps_to_time(cli, command):
    result = cli(command, "--model=knowformer", "--data=umls", "--dry-run")
    assert result.status == 2 and "--dry-run times training steps" in result.err


def test_quiet_says_the_result_only(fit):
    result = fit("--run_dir=run", "--quiet", "--trainer.enable_progress_bar=true")
    assert "epoch 1/" not in result.out and "device" not in result.out and "writes run" not in result.err
    assert "mrr" in result.out.lower() and "results: run/results.json" in result.err


def test_a_run_says_at_its_start_what_it_is(fit):
    result = fit("--run_dir=run", "--trainer.enable_progress_bar=true")
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["device", "graph", "model", "training"]
    assert "train triples" in lines[1] and lines[4].startswith("epoch 1/")


def test_times_and_sizes_for_people():
    assert [duration(s) for s in (0.2345, 75, 119, 120, 7200, 90_000, 200_000)] == [
        "0.234 s", "75 s", "119 s", "2.0 min", "2.0 h", "25.0 h", "2.3 d",
    ]  # fmt: skip
    assert [size(n) for n in (0, 2**20 * 3, 2**30 * 5.4)] == ["0 MiB", "3 MiB", "5.4 GiB"]
