"""Runs resumed with another number of processes, and NaN in one of several processes."""

import json
import os
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import pytest
from helpers import process_resume
from helpers.worlds import launch

WORLD = 2


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of one process, of each of two, and of one that resumes from the checkpoints of two."""
    folder = tmp_path_factory.mktemp("processes")
    process_resume.prepare(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = process_resume.whole(folder, 1)
        launch([Path(process_resume.__file__), folder], folder, WORLD)
        two = [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(WORLD)]
        return one, two, process_resume.go_on(folder, 1, WORLD)


def samples(runs):
    """Optimiser step -> samples of all processes in it."""
    steps = defaultdict(list)
    for run in runs:
        for step, index in run["seen"]:
            steps[step] += index
    return {step: sorted(index) for step, index in steps.items()}


@pytest.mark.slow
@pytest.mark.fault(
    "a run is resumed with another number of processes",
    (
        "the same samples in every step and losses equal to 1e-5; refused if the epoch would be "
        "divided differently"
    ),
)
@pytest.mark.parametrize("ways", ["1 to 2", "2 to 1"])
@pytest.mark.parametrize("name", process_resume.CASES)
def test_a_run_is_resumed_with_another_number_of_processes(found, name, ways):
    one, two, back = found
    before = [one[name]] if ways == "1 to 2" else [rank["whole"][name] for rank in two]
    whole = samples(before)
    for stop in process_resume.STOPS:
        after = (
            [rank["on"][f"{name} {stop}"] for rank in two] if ways == "1 to 2" else [back[f"{name} {stop}"]]
        )
        if name == "nodes-parts" and stop == "inside":
            assert all("number of processes" in run["refused"] for run in after)
            continue
        steps = samples(after)
        assert 0 < len(steps) < len(whole) and steps == {step: whole[step] for step in steps}
        for run in after:
            assert run["losses"] == pytest.approx(before[0]["losses"][-len(steps) :], abs=1e-5)


@pytest.mark.slow
@pytest.mark.fault(
    "NaN in one of several processes, in its loss or in its scores",
    "all processes stop with the same message, and none waits for another",
)
@pytest.mark.parametrize("kind", process_resume.BROKEN)
def test_nan_in_one_process_stops_all(found, kind):
    messages = [rank["broken"][kind] for rank in found[1]]
    assert messages[0] == messages[1]
    expected = {
        "loss": "the loss is nan in process 1; the weights of ",
        "scores": "valid scores after step ",
    }[kind]
    assert messages[0].startswith(expected) and "not finite" in messages[0]
    assert "Lower --model.lr" in messages[0]


FAILS = """
import os, sys, time
from pathlib import Path

pid = Path(__file__).with_name("pid")
if os.environ["RANK"] == "0":
    pid.with_suffix(".part").write_text(str(os.getpid()))
    pid.with_suffix(".part").rename(pid)
    time.sleep(600)
while not pid.exists():
    time.sleep(0.05)
sys.exit("broken")
"""


def test_launch_ends_if_a_process_fails(tmp_path):
    """`launch` neither hangs nor hides the output of the process, and ends the other one."""
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    with pytest.raises(AssertionError, match="broken"):
        launch([script], tmp_path, WORLD, sys.executable)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
