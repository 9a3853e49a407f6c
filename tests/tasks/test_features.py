"""Whether data have the features that a model was trained with."""

from types import SimpleNamespace

import pytest
import torch

from graphzoo.datamodules.features import FeatureTransform
from graphzoo.errors import UsageError
from graphzoo.tasks.features import check_features_of, listed


def transform(standardize):
    x = torch.tensor([[0.0, 10.0], [1.0, 20.0], [2.0, 40.0]])
    return FeatureTransform.fit(x, normalize=False, reduce_channels=None, standardize=standardize)


@pytest.mark.parametrize(("trained", "difference"), [(True, "with .* are not"), (False, "without .* are")])
def test_features_standardised_only_in_training_or_only_here_are_refused(trained, difference):
    described = {"features": transform(trained).describe()}
    graph = SimpleNamespace(name="mine")
    check_features_of(described, SimpleNamespace(graph=graph, transform=transform(trained)))
    with pytest.raises(UsageError, match=f"{difference} standardised\nGive .*_features {trained}"):
        check_features_of(described, SimpleNamespace(graph=graph, transform=transform(not trained)))


def test_messages_list_six_names():
    assert listed("abcdef") == "a, b, c, d, e, f" and listed("abcdefg") == "a, b, c, d, e, f, ..."
