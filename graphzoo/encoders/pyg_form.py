"""Lets node encoders be built like models of PyG: `GALiT(16, 64, 7)`."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable
from typing import Any, TypeVar, overload

from torch import nn

from graphzoo.errors import UsageError, check_whole
from graphzoo.ops.last_result import LastResult
from graphzoo.types import GraphSpec, PlainSettings, plain_whole

T = TypeVar("T")
_POSITIONS = ("in_channels", "hidden_channels", "out_channels")


def has_other_forms(init: Callable[..., None]) -> Callable[..., None]:
    """Mark an `__init__` whose class also takes channels: type checkers then accept any arguments."""
    return init


class PyGForm(ABCMeta):
    """The metaclass of node encoders: it builds them from a `GraphSpec`, or from numbers of channels.

    `Encoder(in_channels, hidden_channels, out_channels, **settings)` is `Encoder(GraphSpec(0,
    in_channels=in_channels), hidden_channels=hidden_channels, **settings)`. Unless `out_channels` is None, a
    linear layer follows that maps the states to this width.
    """

    # what `__init__` takes, not what the method below does
    __signature__ = PlainSettings.__signature__

    @overload
    def __call__(cls: type[T], spec: GraphSpec, **settings: Any) -> T: ...

    @overload
    def __call__(
        cls: type[T],
        in_channels: int,
        hidden_channels: int | None = None,
        out_channels: int | None = None,
        **settings: Any,
    ) -> T: ...

    def __call__(cls: Any, *args: Any, **settings: Any) -> Any:
        """Build an encoder from either form of arguments."""
        out_channels = None
        spec = cls.__signature__.parameters.get("spec")
        is_needed = spec is not None and spec.default is inspect.Parameter.empty
        if not args and is_needed and not {"spec", "in_channels"} & {*settings}:
            raise UsageError(
                f"{cls.__name__} needs the width of features\nGive in_channels=x.shape[1], or a GraphSpec"
            )
        if ((args and not isinstance(args[0], GraphSpec)) or "in_channels" in settings) and not _has_own_form(
            cls.__signature__
        ):
            args, settings, out_channels = _from_channels(cls.__name__, args, settings)
        elif "out_channels" in settings and "out_channels" not in cls.__signature__.parameters:
            out_channels = _count(settings.pop("out_channels"))
        encoder = super().__call__(*args, **settings)
        encoder._edges = LastResult()
        if out_channels is not None:
            encoder.output = nn.Linear(encoder.out_channels, out_channels)
            encoder.out_channels = out_channels
            encoder.init_args["out_channels"] = out_channels
            encoder._has_output = True
        return encoder


def _has_own_form(signature: inspect.Signature) -> bool:
    """Whether `__init__` itself takes channels, or does not begin with a spec, as a user's encoder may."""
    if "in_channels" in signature.parameters:
        return True
    first = next(iter(signature.parameters.values()), None)
    gathers = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if first is None or first.kind in gathers or first.annotation is inspect.Parameter.empty:
        return False
    return "GraphSpec" not in str(first.annotation)


def _from_channels(
    name: str, args: tuple[Any, ...], settings: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], int | None]:
    """Turn numbers of channels into a spec, further settings, and the width of the output layer."""
    if len(args) > len(_POSITIONS):
        raise UsageError(f"{name} takes {', '.join(_POSITIONS)} by position; give other settings by name")
    given = dict(zip(_POSITIONS, args, strict=False))
    if twice := given.keys() & settings.keys():
        raise UsageError(f"{name}: {sorted(twice)[0]} is given twice, by position and by name")
    given |= {key: settings[key] for key in _POSITIONS if key in settings}
    settings = {key: value for key, value in settings.items() if key not in _POSITIONS}
    if "spec" in settings:
        raise UsageError(f"{name} takes a spec, or in_channels: give one of the two")
    channels = plain_whole(given.get("in_channels"))
    if isinstance(channels, bool) or not isinstance(channels, int):
        raise UsageError(
            f"{name} takes a GraphSpec, or {', '.join(_POSITIONS)}; got a {type(channels).__name__} first"
        )
    if channels < 1:
        raise UsageError(
            f"in_channels must be the width of the features, x.shape[1], got {channels}: it cannot be found "
            "out later"
        )
    if given.get("hidden_channels") is not None:
        settings["hidden_channels"] = given["hidden_channels"]
    return (GraphSpec(0, in_channels=channels),), settings, _count(given.get("out_channels"))


def _count(out_channels: int | None) -> int | None:
    out_channels = plain_whole(out_channels)
    if out_channels is not None:
        check_whole(at_least=1, out_channels=out_channels)
    return out_channels
