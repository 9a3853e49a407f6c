"""The Optuna study of a search."""

import warnings

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from graphzoo.search.space import Choice, Space
from graphzoo.search.study import TrialStudy


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_study_changes_no_warnings_or_logging(tmp_path, capfd, sampler):
    space = Space(tmp_path / "space.yaml", {"model.lr": Choice((0.1, 0.01))})
    with warnings.catch_warnings():
        warnings.simplefilter("error", optuna.exceptions.ExperimentalWarning)
        before = list(warnings.filters), optuna.logging.get_verbosity()
        study = TrialStudy(tmp_path, space, direction="maximize", sampler=sampler, seed=0, num_runs=1)
        with study.next_trial(1) as trial:
            assert trial.params["model.lr"] in (0.1, 0.01)
        assert (warnings.filters, optuna.logging.get_verbosity()) == before
    assert capfd.readouterr() == ("", "")


def test_a_grid_proposes_up_to_a_number_of_trials_and_continues(tmp_path):
    """The space has 10^12 combinations, which must not all be listed."""
    choices = {f"model.option{i}": Choice(tuple(range(100))) for i in range(6)}
    study = TrialStudy(
        tmp_path,
        Space(tmp_path / "space.yaml", choices),
        direction="maximize",
        sampler="grid",
        seed=0,
        num_runs=1,
    )
    for most in (3, 3, 5):
        assert study.propose_all(most) == 100**6
        waiting = [trial.system_attrs["fixed_params"] for trial in study.study.get_trials(deepcopy=False)]
        assert len(waiting) == most == len({tuple(each.values()) for each in waiting})


@pytest.mark.parametrize(("direction", "sign"), [("maximize", 1), ("minimize", -1)])
def test_a_trial_is_hopeless_only_if_it_cannot_become_the_best(tmp_path, direction, sign):
    """Its remaining runs may be as good as any run so far, also of this trial and of pruned ones."""
    space = Space(tmp_path / "space.yaml", {"model.lr": Choice((0.1, 0.01))})
    study = TrialStudy(tmp_path, space, direction=direction, sampler="tpe", seed=0, num_runs=3)

    def add(values, **outcome):
        study.study.add_trial(create_trial(user_attrs={"values": [sign * v for v in values]}, **outcome))

    add([0.8, 0.8, 0.8], value=sign * 0.8)
    assert study.is_hopeless([sign * 0.45]) and not study.is_hopeless([sign * 0.45, sign * 1.0])
    add([0.3, 1.2], state=TrialState.PRUNED)
    assert not study.is_hopeless([sign * 0.45])
