"""`graphzoo dashboard`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphzoo.errors import UsageError, suggestion
from graphzoo.report.dashboard import SECTIONS, TASKS, T, panels, workspace
from graphzoo.system.shown import say

if TYPE_CHECKING:
    pass

__all__ = ["USAGE", "dashboard_main"]


USAGE = f"""usage: graphzoo dashboard --project P [--entity E] [--task all|{"|".join(TASKS)}]
       [--name NAME] [--out FILE]

A workspace at Weights & Biases for runs of `graphzoo fit --logger wandb`, with the sections
Quality, Optimisation, Speed, Data and Comparison.

  --project P      project that the runs are in (the logger's default is graphzoo)
  --entity E       user or team; the one that is logged in by default
  --task T         all, or only the panels of kg, nodes or links
  --name NAME      of the workspace: graphzoo
  --out FILE       write its JSON instead of sending it: needs no network and no account"""
_OPTIONS = ("project", "entity", "task", "name", "out")


def dashboard_main(argv: Sequence[str]) -> int:
    """Make the workspace.

    Args:
        argv: See `USAGE`.

    Returns:
        0.

    Raises:
        UsageError: for wrong options, without wandb-workspaces, or where the server refuses.
    """
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE + "\n")
        return 0
    wanted = _options(list(argv))
    if not wanted.get("project"):
        raise UsageError(f"--project P says which project\n{USAGE.splitlines()[0]}")
    task = wanted.get("task", "all")
    if task not in ("all", *TASKS):
        raise UsageError(f"--task is one of all, {', '.join(TASKS)}, got {task!r}")
    out = Path(wanted["out"]) if "out" in wanted else None
    if out is not None and _refusing(out, out.exists):
        raise UsageError(f"--out {out} exists; give a new file")
    entity = wanted.get("entity") or ("" if out is not None else _entity())
    made = workspace(wanted["project"], entity, task=task, name=wanted.get("name", "graphzoo"))
    if out is not None:
        text = made._to_model().model_dump_json(by_alias=True, exclude_none=True)
        _refusing(out, lambda: out.parent.mkdir(parents=True, exist_ok=True))
        _refusing(
            out, lambda: out.write_text(json.dumps(json.loads(text), indent=1) + "\n", encoding="utf-8")
        )
        say(f"{out}: {len(panels(task))} panels in {len(SECTIONS)} sections\n")
        return 0
    try:
        made.save()  # type: ignore[no-untyped-call]
    except Exception as error:  # of many kinds: no network, no login, no such project
        raise UsageError(
            f"Weights & Biases did not take the dashboard: {str(error) or type(error).__name__}\n"
            "Check wandb login, --entity and --project, or write it to a file with --out FILE"
        ) from error
    say(f"{made.url}\n")
    return 0


def _refusing(out: Path, act: Callable[[], T]) -> T:
    """Do something to the file; a system that refuses is an error of the user's."""
    try:
        return act()
    except OSError as error:
        raise UsageError(
            f"--out {out} cannot be written: {error.strerror or error}\n"
            "Give a file in a folder that you may write to"
        ) from error


def _entity() -> str:
    """The entity that is logged in."""
    import wandb

    try:
        found = wandb.Api().default_entity
    except Exception as error:  # no key, no network: wandb has a class of its own for each
        raise UsageError(
            "nobody is logged in at Weights & Biases, or there is no network\n"
            "Run wandb login, or write the dashboard to a file with --out FILE"
        ) from error
    if not found:
        raise UsageError("Weights & Biases names no default entity: add --entity E")
    return str(found)


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            raise UsageError(f"{word!r} is no option: say --project {word}\n{USAGE.splitlines()[0]}")
        if not name.startswith("--") or name[2:] not in _OPTIONS:
            hint = suggestion(name, [f"--{option}" for option in _OPTIONS])
            raise UsageError(
                "\n".join(filter(None, [f"unknown option {word!r}", hint, USAGE.splitlines()[0]]))
            )
        if not equals:
            if not words or words[0].startswith("--"):
                raise UsageError(f"{name} needs a value\n{USAGE.splitlines()[0]}")
            value = words.pop(0)
        found[name[2:]] = value
    return found
