"""What runs are called at Weights & Biases."""

from pathlib import Path
from types import SimpleNamespace

from jsonargparse import Namespace

from graphzoo.training.loggers import _place_wandb


def test_long_names_of_own_data_fit_weights_and_biases():
    """It refuses tags of more than 64 letters, and names of more than 128."""
    arguments = Namespace(group=None, tags=None, job_type=None, name="mine")
    state = SimpleNamespace(
        model="pencil", data_name="d" * 150, plan=SimpleNamespace(command="fit", resume=False)
    )
    _place_wandb(arguments, Path("run"), state, {"data": "d" * 150, "recipe": "short"})
    assert arguments.tags == ["data:" + "d" * 59, "recipe:short"]
    assert arguments.group == "pencil-" + "d" * 121
