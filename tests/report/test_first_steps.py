"""What `benchmarks.first_steps` reads out of a run's metrics."""

import pytest

from benchmarks import first_steps

METRICS = """\
step,lr-Adam,train/loss,train/peak_memory_gib,train/grad_norm,train/step_seconds,epoch,val/mrr
0,0.1,,,,,,
0,,8.0,1.0,0.5,4.0,0,
1,,7.0,2.0,0.5,2.0,0,
1,,,,,,0,0.25
1,,6.0,2.5,0.5,2.0,0,
1,,,,,,0,0.5
2,,5.0,1.5,0.5,1.8,0,
"""


@pytest.fixture
def steps(tmp_path):
    (tmp_path / "metrics.csv").write_text(METRICS, encoding="utf-8")
    return first_steps.read_steps(tmp_path)


def test_steps_count_from_one_and_a_repeated_step_is_the_later(steps):
    assert list(steps) == [1, 2, 3]
    assert [steps[step]["train/loss"] for step in steps] == [8.0, 6.0, 5.0]
    assert first_steps.validated(steps) == {2: 0.5}


def test_summary(steps):
    steps[0] = {"val/mrr": 0.125}
    found = first_steps.summary(steps, epoch_steps=1800)
    assert found["steps"] == 3
    assert found["loss, first ten"] == found["loss, last ten"] == pytest.approx(19 / 3)
    assert (found["val/mrr after 0"], found["val/mrr after 2"]) == (0.125, 0.5)
    assert (found["seconds a step"], found["steps/s"], found["hours an epoch"]) == (2.0, 0.5, 1.0)
    assert found["peak memory GiB"] == 2.5
