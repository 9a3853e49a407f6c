"""Whether a graph has the features that a model was trained with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphzoo.errors import UsageError


def check_features_of(trained: Mapping[str, Any], datamodule: Any) -> None:
    """Refuse data with other features than in training: their number, names or order."""
    here, before = datamodule.transform, trained["features"] or {}
    names = () if here is None else here.names
    expected = tuple(before.get("names", ()))
    if names and expected and names != expected:
        raise UsageError(
            f"the model's features are {listed(expected)}, those of {datamodule.graph.name} are "
            f"{listed(names)}\n"
            "Give the same columns in the same order, or predict: it takes them by name"
        )
    width, wanted = 0 if here is None else here.in_channels, before.get("in_channels", 0)
    if width != wanted:
        raise UsageError(
            f"{datamodule.graph.name} has {width:,} features per node, "
            f"the model was trained with {wanted:,}\n"
            "Give a graph with the same features, in the same order"
        )
    if here is not None and (here.mean is not None) != ("mean" in before):
        given = "mean" in before
        raise UsageError(
            f"the model was trained {'with' if given else 'without'} standardised features, but here they "
            f"{'are not' if given else 'are'} standardised\nGive --data.standardize_features {given}"
        )


def scaling_options(features: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the DataModule that scale features as in training; both kinds exclude each other."""
    normalizes, standardizes = features["normalize"], "mean" in features
    return {
        "normalize_features": normalizes,
        "standardize_features": None if normalizes else standardizes,
    }


def listed(names: Sequence[str]) -> str:
    """The first names, for messages."""
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
