"""Optuna's study of a search, in its process."""

import warnings

import optuna
import pytest

from graphzoo.search.space import Choice, Space
from graphzoo.search.study import TrialStudy


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_study_leaves_the_process_as_it_was(tmp_path, capfd, sampler):
    space = Space(tmp_path / "space.yaml", {"model.lr": Choice((0.1, 0.01))})
    with warnings.catch_warnings():
        warnings.simplefilter("error", optuna.exceptions.ExperimentalWarning)
        before = list(warnings.filters), optuna.logging.get_verbosity()
        study = TrialStudy(tmp_path, space, direction="maximize", sampler=sampler, seed=0, num_runs=1)
        with study.next_trial(1) as trial:
            assert trial.params["model.lr"] in (0.1, 0.01)
        assert (warnings.filters, optuna.logging.get_verbosity()) == before
    assert capfd.readouterr() == ("", "")
