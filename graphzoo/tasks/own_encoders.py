"""Checks that an encoder keeps to the interface of its kind: users write their own."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

from graphzoo.encoders.base import Encoder, NodeEncoder, PairEncoder, QueryEncoder
from graphzoo.errors import UsageError
from graphzoo.ops.eager import is_traced
from graphzoo.types import plain_whole

# What tasks pass to `forward`, by position and by name, and what it returns.
_KINDS: dict[type[Encoder], tuple[tuple[str, ...], tuple[str, ...], str]] = {
    QueryEncoder: (("graph", "head", "relation"), ("edge_mask", "noise_seed"), "[N, B, D]"),
    NodeEncoder: (("x", "edge_index"), (), "[N, D]"),
    PairEncoder: (("subgraphs", "x"), ("noise_seed",), "[B, D]"),
}


def check_interface(encoder: Any) -> None:
    """Refuse an encoder without `out_channels`, or whose `forward` takes other arguments than its kind.

    The states that a user's encoder returns are checked when a task calls it. Graphzoo's own are tested.
    """
    kind = next((kind for kind in _KINDS if isinstance(encoder, kind)), None)
    if kind is None:
        return
    name = type(encoder).__name__
    channels = plain_whole(getattr(encoder, "out_channels", None))
    if not isinstance(channels, int) or isinstance(channels, bool) or channels < 1:
        got = "" if channels is None else f": it is {channels!r}"
        raise UsageError(
            f"{name} has no width of states in out_channels{got}\n"
            "Set self.out_channels in __init__ to D, the last size of what forward returns"
        )
    placed, named, _ = _KINDS[kind]
    signature = inspect.signature(encoder.forward)
    # What `precompute` returns is passed by name, too.
    has_more = kind is NodeEncoder and type(encoder).precompute is not NodeEncoder.precompute
    bind = signature.bind_partial if has_more else signature.bind
    try:
        bind(*placed, **dict.fromkeys(named))
    except TypeError as error:
        by_name = f", and by name {' and '.join(named)}" if named else ""
        raise UsageError(
            f"{name}.forward does not fit: {error}\n"
            f"That of a {kind.__name__} takes {', '.join(placed)}{by_name}"
        ) from error
    hooks = encoder._forward_hooks.values()
    if not type(encoder).__module__.startswith("graphzoo.") and _check_states not in hooks:
        encoder.register_forward_hook(_check_states, with_kwargs=True)


def _check_states(encoder: Any, placed: tuple[Any, ...], named: dict[str, Any], states: Any) -> None:
    if isinstance(states, Tensor) and is_traced(states):
        return
    kind = next(kind for kind in _KINDS if isinstance(encoder, kind))
    given = dict(zip(_KINDS[kind][0], placed, strict=False)) | named
    if not given.keys() >= ({"graph", "head"} if kind is QueryEncoder else {_KINDS[kind][0][0]}):
        return  # not a call of a task: the user's parameters may have other names
    width = int(encoder.out_channels)
    if kind is QueryEncoder:
        expected = [given["graph"].num_nodes, given["head"].numel(), width]
    elif kind is PairEncoder:
        expected = [given["subgraphs"].num_nodes.numel(), width]
    else:  # a tensor, or a PyG `Data`
        x = given["x"]
        expected = [x.shape[0] if isinstance(x, Tensor) else x.num_nodes, width]
    got = list(states.shape) if isinstance(states, Tensor) else f"a {type(states).__name__}"
    if got != expected:
        raise UsageError(
            f"{type(encoder).__name__}.forward returned {got}, but a {kind.__name__} returns states "
            f"{_KINDS[kind][2]}, here {expected}: D is out_channels"
        )
