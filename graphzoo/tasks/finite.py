"""NaN and infinite numbers: where they are, and how a run says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from graphzoo.errors import NonFiniteError
from graphzoo.system.paths import relative


def not_finite(values: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold NaN or infinity."""
    return [name for name, value in values.items() if not bool(torch.isfinite(value.detach()).all())]


def bad_weights(module: nn.Module) -> list[str]:
    """Names of parameters that hold NaN or infinity, and of saved buffers that hold NaN.

    A buffer may hold infinity on purpose, as masks do.
    """
    parameters = {name: p for name, p in module.named_parameters() if p.is_floating_point()}
    buffers = {name: value for name, value in module.state_dict().items() if name not in parameters}
    # First one check of all parameters: to check each by itself waits for the device every time.
    norms = list(torch._foreach_norm([p.detach() for p in parameters.values()])) if parameters else []
    good = not norms or bool(torch.isfinite(torch.stack(norms)).all())
    return ([] if good else not_finite(parameters)) + [
        name for name, value in buffers.items() if isinstance(value, Tensor) and bool(value.isnan().any())
    ]


def describe_weights(module: nn.Module) -> str:
    """Which weights are not finite, as part of a sentence."""
    bad = bad_weights(module)
    return f"the weights of {listed(bad)} are not finite" if bad else "all weights are still finite"


def listed(names: Iterable[str]) -> str:
    """Up to three names and how many there are beside them.

    >>> listed(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def stopped(trainer: Trainer, what: str) -> NonFiniteError:
    """The error that ends a run: what is wrong, what to try, and which checkpoints are good."""
    lines = [what]
    if trainer.state.fn == "fit":
        if trainer.precision == "16-true":  # Adam's mean squares and its eps would be 0
            why = "sums over many nodes exceed float16 (65,504), and it rounds values below 6e-8 to 0"
            lines.append(f"Take --trainer.precision bf16-true or 16-mixed: {why}")
        else:
            lines.append("Lower --model.lr or add --trainer.gradient_clip_val 1.0")
        if good := _good_checkpoints(trainer):
            lines.append(f"Last good checkpoints: {', '.join(good)}")
    return NonFiniteError("\n".join(lines))


def values_of_processes(trainer: Trainer, value: Tensor) -> Tensor:
    """Gather a number of each process, [W], in all processes; every process has to call this."""
    value = value.detach().reshape(1)
    if trainer.world_size == 1:
        return value
    values = [torch.empty_like(value) for _ in range(trainer.world_size)]
    torch.distributed.all_gather(values, value)
    return torch.cat(values)


def texts_of_processes(trainer: Trainer, text: str) -> list[str]:
    """Gather a text of each process in all processes; every process has to call this.

    They then stop together. If one stopped alone, the others would wait for it.
    """
    if trainer.world_size == 1:
        return [text]
    texts = [""] * trainer.world_size
    torch.distributed.all_gather_object(texts, text)
    return texts


def require_finite_weights(trainer: Trainer, module: LightningModule) -> None:
    """Raise if `bad_weights` finds any, so that no bad checkpoint replaces a good one."""
    if bad_weights(module):
        when = f"(epoch {trainer.current_epoch}, step {trainer.global_step})"
        raise stopped(trainer, f"{describe_weights(module)}, so no checkpoint is written {when}")


def _good_checkpoints(trainer: Trainer) -> list[str]:
    """The files of the run's checkpoint callbacks, which are written only while all weights are finite."""
    paths = set()
    for callback in trainer.checkpoint_callbacks:
        for name in ("best_model_path", "path"):
            path = getattr(callback, name, None)
            if path and Path(path).is_file():
                paths.add(str(relative(Path(path))))
    return sorted(paths)
