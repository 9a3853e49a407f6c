"""`graphzoo dashboard`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from graphzoo.cli.options import Parser
from graphzoo.errors import UsageError
from graphzoo.report.dashboard import KINDS, SECTIONS, panels, workspace
from graphzoo.system.files import refuse_existing, write_new_text
from graphzoo.system.shown import say


def dashboard_parser() -> Parser:
    """The options."""
    parser = Parser(
        "dashboard",
        "--project P [options]",
        "Create a workspace at Weights & Biases for runs of `graphzoo fit --logger wandb`, with the sections "
        f"{', '.join(SECTIONS)}.",
    )
    add = parser.add_argument
    add(
        "--project",
        required=True,
        metavar="P",
        help="project of the runs (default of the logger: graphzoo)",
    )
    add("--entity", default="", metavar="E", help="user or team (default: the account that is logged in)")
    add("--task", default="all", choices=("all", *KINDS), help="only the panels of this task (default: all)")
    add("--name", default="graphzoo", help="name of the workspace (default: graphzoo)")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="only write the workspace as JSON, without network or account",
    )
    return parser


def dashboard_main(argv: Sequence[str]) -> int:
    """Make the workspace."""
    args = dashboard_parser().read(argv)
    task, out = args.task, args.out
    if out is not None:
        refuse_existing(out, "--out")
    entity = args.entity or ("" if out is not None else _entity())
    made = workspace(args.project, entity, task=task, name=args.name)
    if out is not None:
        text = made._to_model().model_dump_json(by_alias=True, exclude_none=True)
        write_new_text(out, json.dumps(json.loads(text), indent=1) + "\n", "--out")
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


def _entity() -> str:
    """The entity that is logged in."""
    import wandb

    try:
        entity = wandb.Api().default_entity
    except Exception as error:  # no key, no network: wandb has a class of its own for each
        raise UsageError(
            "nobody is logged in at Weights & Biases, or there is no network\n"
            "Run wandb login, or write the dashboard to a file with --out FILE"
        ) from error
    if not entity:
        raise UsageError("Weights & Biases names no default entity: add --entity E")
    return str(entity)
