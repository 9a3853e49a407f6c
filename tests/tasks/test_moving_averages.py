"""Lightning's moving averages of the weights, with every task: the best checkpoint holds the averages."""

import dataclasses
import warnings

import pytest
import torch
from helpers.resume_cases import CASES, train
from lightning.pytorch.callbacks import EMAWeightAveraging

AVERAGED = {
    name: dataclasses.replace(case, callbacks=lambda: [EMAWeightAveraging(decay=0.8)])
    for name, case in CASES.items()
    if "averages" not in name and "sampled" not in name and "two validations" not in name
}
AVERAGED |= {name: case for name, case in CASES.items() if "warm up" in name}


@pytest.mark.parametrize("name", AVERAGED)
def test_a_checkpoint_is_evaluated_with_its_averages(tmp_path, name):
    case, run = AVERAGED[name], tmp_path / "run"
    _, trainer = train(case, run)
    best = trainer.checkpoint_callbacks[0]
    saved = torch.load(best.best_model_path, weights_only=True)
    averages, latest = saved["state_dict"], saved["current_model_state"]
    assert list(averages) == list(latest)
    assert any(not torch.equal(averages[key], latest[key]) for key in averages)

    task, data = trainer.lightning_module, case.data(tmp_path / "data", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (scores,) = trainer.validate(
            task, datamodule=data, ckpt_path=best.best_model_path, verbose=False, weights_only=True
        )
    assert scores[best.monitor] == float(best.best_model_score)
    state = task.state_dict()
    assert all(torch.equal(state[key], averages[key]) for key in averages)
