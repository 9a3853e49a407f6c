"""What has happened to a planned run so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from graphzoo.runs.lock import RunLock
from graphzoo.training.plan import Plan

__all__ = ["RunState"]


@dataclass
class RunState:
    """What has become of a plan, which itself stays as it was asked for.

    Args:
        plan: The wish.
        arguments: What LightningCLI gets: the plan's, once files that may hold too much have been replaced.
        model: Name of the model; the plan's, else what the configuration or the checkpoint says.
        data: Likewise of the data.
        missing: Folders that were not there when the run directory was chosen, the innermost first.
        wrote: The config.yaml that this process wrote.
        events: TensorBoard's files that a resumed run had before; None until it is known.
        lock: Makes this process the one writer of the run directory.
        began: Whether training or evaluation has begun: what fails then is not a wrong setting, unless it
            says so.
    """

    plan: Plan
    arguments: list[str]
    model: str
    data: str
    missing: list[Path] = field(default_factory=list)
    wrote: Path | None = None
    events: set[Path] | None = None
    lock: RunLock | None = None
    began: bool = False

    @classmethod
    def of(cls, plan: Plan) -> RunState:
        """The state before anything has happened."""
        return cls(plan, list(plan.arguments), plan.model, plan.data)

    @property
    def names(self) -> dict[str, str]:
        """Model, data and recipe, as far as they have names."""
        return {"model": self.model, "data": self.data, "recipe": self.plan.recipe}
