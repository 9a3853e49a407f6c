"""Sorts the words of a command line: options of graphzoo, options of Lightning, and obvious mistakes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from graphzoo.catalog.presets import list_presets
from graphzoo.catalog.tasks import TaskInfo
from graphzoo.errors import UsageError, nearest, suggestion

OPTIONS = {
    "model": "a model by name, or a class path",
    "data": "a data set by name, or a class path",
    "recipe": "another recipe of the model; `none` for no recipe",
    "trainer": "Trainer preset: bf16, cpu, ddp, early, gpu, smoke",
    "logger": "csv, tensorboard, wandb, mlflow; or several: A,B",
    "run_dir": "the folder to write this run to",
    "seed": "seed of weights, batches and noise",
    "ckpt_path": "run directory, file, best, last or knowformer-any",
    "matmul_precision": "of float32 matrix products: highest, high or medium",
}
# Those that share a line in the help of fit.
RARE = ("matmul_precision",)
MATMUL_PRECISIONS = ("highest", "high", "medium")
FLAGS = {
    "dry_run": "fit: estimate time and memory from a few steps",
    "no_test": "fit: skip the test, and write no results.json",
    "quiet": "print only the result and errors",
    "override": "fit: resume although settings differ from before",
    "trust": "import any class that the run's files name",
    "debug": "show the traceback of unexpected errors",
}
LIGHTNING = ("config", "print_config", "help", "seed_everything", "optimizer", "lr_scheduler")
GROUPS = ("trainer", "model", "data", "optimizer", "lr_scheduler")
# Options by the names that other tools use, or by their name without the group.
_MEANT = {
    **dict.fromkeys(("epochs", "max_epochs", "num_epochs"), "--trainer.max_epochs"),
    **{
        name: f"--trainer.{name}"
        for name in ("max_steps", "max_time", "accelerator", "precision", "strategy")
    },
    **dict.fromkeys(("devices", "gpus", "num_gpus"), "--trainer.devices"),
    **dict.fromkeys(("gpu", "cuda"), "--trainer gpu"),
    "device": "--trainer.accelerator",
    "cpu": "--trainer cpu",
    **dict.fromkeys(("lr", "learning_rate"), "--model.lr"),
    **{name: f"--model.{name}" for name in ("encoder", "loss", "weight_decay")},
    **{name: f"--model.encoder.{name}" for name in ("hidden_channels", "num_layers", "num_heads", "dropout")},
    **{name: f"--data.{name}" for name in ("path", "root", "batch_size", "micro_batch_size", "num_workers")},
    **dict.fromkeys(("dataset", "data_set"), "--data"),
    "wandb": "--logger wandb",
    "tensorboard": "--logger tensorboard",
    "mlflow": "--logger mlflow",
    **dict.fromkeys(("checkpoint", "ckpt", "resume"), "--ckpt_path"),
    **dict.fromkeys(("out", "output", "output_dir", "out_dir"), "--run_dir"),
}
# Arguments of a task that only its own optimiser uses, and what to give instead with `--optimizer`.
OF_OPTIMIZER = {
    "model.lr": "--optimizer.lr",
    "model.weight_decay": "--optimizer.weight_decay",
    "model.lr_milestones": "--lr_scheduler MultiStepLR --lr_scheduler.milestones",
    "model.lr_gamma": "--lr_scheduler MultiStepLR --lr_scheduler.gamma",
}


def whole_option(name: str) -> str:
    """The option that a short name stands for, `--trainer.max_epochs` for `max_epochs`; `--NAME` otherwise.

    >>> whole_option("lr"), whole_option("model.lr"), whole_option("seed")
    ('--model.lr', '--model.lr', '--seed')
    """
    known = name in OPTIONS or name in FLAGS or name in LIGHTNING or "." in name
    return f"--{name}" if known else _MEANT.get(name, f"--{name}")


def split_options(argv: list[str]) -> tuple[dict[str, str], set[str], list[str]]:
    """Split into our options (the last one wins; `logger` adds up), our flags, and words for LightningCLI."""
    values: dict[str, str] = {}
    flags: set[str] = set()
    rest: list[str] = []
    position = 0
    while position < len(argv):
        token = argv[position]
        position += 1
        name, equals, value = token[2:].partition("=")
        flag = name.replace("-", "_")  # --dry-run too
        if token.startswith("--") and flag in FLAGS and not equals:
            flags.add(flag)
            continue
        # Lightning's long name for the same thing.
        own = "seed" if name == "seed_everything" else name
        if not token.startswith("--") or own not in OPTIONS:
            rest.append(token)
            continue
        if not equals:
            if position == len(argv) or argv[position].startswith("--"):
                raise UsageError(f"--{name} needs a value: {OPTIONS[own]}")
            value = argv[position]
            position += 1
        values[own] = f"{values[own]},{value}" if own == "logger" and own in values else value
        if own in ("data", "model", "trainer") and passes_through(own, value):
            rest.append(f"--{own}={value}")
    return values, flags, rest


def check_options(command: str, rest: list[str]) -> None:
    """Refuse obvious mistakes before Lightning is imported."""
    if rest and not rest[0].startswith("-"):
        raise UsageError(
            f"{command} takes options or a run, and there is no run {rest[0]!r}\n"
            f"Write: graphzoo {command} --model knowformer --data umls"
        )
    known = [*OPTIONS, *FLAGS, *LIGHTNING]
    for before, token in zip(["", *rest], rest, strict=False):
        if not token and before.startswith("--data."):
            raise UsageError(f"{before} is empty: give it a value, or leave it out")
        short = token[1:].partition("=")[0]
        if re.match(r"-[a-zA-Z]", token) and (short in known or not re.match("-(c|h$|inf|nan)", token)):
            whole = [short] if short in known else [o for o in OPTIONS if o.startswith(token[1])]
            meant = ", ".join(f"--{option}" for option in whole)
            message = f"unknown option {token}; options begin with two dashes" + (
                f": {meant}" if meant else ""
            )
            raise UsageError(f"{message}\n{_help(command)}")
        name, equals, value = token[2:].partition("=")
        name = name.rstrip("+")
        if not token.startswith("--") or name in known or name == "verbose":
            continue
        group, dot, key = name.partition(".")
        if not dot:
            near = near_options(name)
            hint = f"Did you mean: {', '.join(near)}?" if near else _help(command)
            raise UsageError(f"unknown option --{name}\n{hint}")
        if group == "data" and equals and not value:
            raise UsageError(f"--{name} is empty: give it a value, or leave it out")
        if group not in GROUPS:
            hint = suggestion(group, GROUPS, prefix="--").replace("?", f".{key}?", 1)
            raise UsageError(f"unknown option --{name}\n{hint or _help(command)}")


def is_known(name: str) -> bool:
    """Whether fit has an option of that name without a dot, or knows what is meant by it.

    >>> is_known("no-test"), is_known("epochs"), is_known("epocs")
    (True, True, False)
    """
    return name.replace("-", "_") in (*OPTIONS, *FLAGS, *LIGHTNING, *_MEANT, "verbose")


def near_options(name: str) -> list[str]:
    """The options of fit that come near a name without a dot, spelt as its help spells them.

    >>> near_options("epocs"), near_options("dry-rn")
    (['--trainer.max_epochs'], ['--dry-run'])
    """
    if usual := _MEANT.get(name.lower().replace("-", "_")):
        return [usual]
    by_name = {option: f"--{option}" for option in (*OPTIONS, *LIGHTNING)}
    by_name |= {flag: f"--{flag.replace('_', '-')}" for flag in FLAGS} | _MEANT
    return list(dict.fromkeys(map(by_name.__getitem__, nearest(name, by_name))))


def passes_through(kind: str, value: str) -> bool:
    """Whether a value is a class path or file that LightningCLI reads itself: no preset has that name."""
    if any(value == preset.name for preset in list_presets(kind)):
        return False
    is_class = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", value) is not None
    return is_class or value.endswith((".yaml", ".yml", ".json"))


def watch_metric(rest: list[str], task: TaskInfo | None) -> list[str]:
    """Let EarlyStopping watch the task's metric unless another one is given."""
    monitor, mode = (task.monitor, task.mode) if task is not None else ("auto", "max")
    own = ("--trainer.callbacks.monitor", "--trainer.callbacks.init_args.monitor")
    watched: list[str] = []
    for position, (before, token) in enumerate(zip(["", *rest], rest, strict=False)):
        watched.append(token)
        name, equals, value = token.partition("=")
        if "--trainer.callbacks+" not in (name, before):
            continue
        stops = (value if equals else token).rpartition(".")[2] == "EarlyStopping"
        if stops and not any(other.startswith(own) for other in rest[position:]):
            watched += [f"--trainer.callbacks.monitor={monitor}", f"--trainer.callbacks.mode={mode}"]
    return watched


def names_optimizer(words: Sequence[str]) -> bool:
    """Whether an optimiser takes the place of the task's own."""
    return any(word.partition("=")[0] == "--optimizer" for word in words)


def config_files(command_line: Sequence[Any]) -> list[str]:
    """The files of settings in a command line."""
    return split_configs(command_line)[0]


def split_configs(command_line: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The files of settings, in any of the spellings that the parser knows, and all other words.

    >>> split_configs(["--config", "a", "--config=b", "-c", "d", "--seed=0", "-c=e", "-cf"])
    (['a', 'b', 'd', 'e', 'f'], ['--seed=0'])
    """
    files: list[str] = []
    others: list[str] = []
    words = map(str, command_line)
    for word in words:
        if word in ("--config", "-c"):
            files += islice(words, 1)
        elif word.startswith(("--config=", "-c")):
            files.append(word.removeprefix("--config").removeprefix("-c").removeprefix("="))
        else:
            others.append(word)
    return files, others


def value_of(option: str, words: Sequence[str]) -> str:
    """The value that an option has, the last one counts; "" without it.

    >>> value_of("--data", ["--data", "umls", "--data=cora", "--seed", "1"])
    'cora'
    """
    for position in reversed(range(len(words))):
        name, equals, value = words[position].partition("=")
        if name.rstrip("+") == option:
            return value if equals else "".join(words[position + 1 : position + 2])
    return ""


def _help(command: str) -> str:
    return f"`graphzoo {command} --help` shows the options."
