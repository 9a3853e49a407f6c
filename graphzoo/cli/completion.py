"""`graphzoo completion SHELL`: names and options by the Tab key. Standard library only.

The scripts ask `graphzoo _complete WORDS...` for the words that fit in place of the last one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from graphzoo.catalog.presets import KINDS, list_presets
from graphzoo.catalog.tasks import model_names
from graphzoo.cli.options import Parser
from graphzoo.runs.checkpoints import RUNS
from graphzoo.training.options import FLAGS, LIGHTNING, MATMUL_PRECISIONS, OPTIONS, value_of

SCRIPTS = {
    "bash": """\
_graphzoo() {
    local IFS=$'\\n' words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=($(graphzoo _complete "${words[@]}" 2>/dev/null))
}
complete -o default -F _graphzoo graphzoo
""",
    "zsh": """\
#compdef graphzoo
_graphzoo() {
    local -a found
    found=("${(@f)$(graphzoo _complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -a found || _files
}
compdef _graphzoo graphzoo
""",
    "fish": """\
complete -c graphzoo -a '(graphzoo _complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
""",
}
_HINTS = {
    "bash": 'eval "$(graphzoo completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(graphzoo completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "graphzoo completion fish | source   # in ~/.config/fish/config.fish",
}
_TRAINING = ("fit", "validate", "test")
# Commands that name a model and a data set without options.
_PAIRS = ("reproduce", "search")
_TAKE_OPTIONS = (*_TRAINING, *_PAIRS, "compare")  # those of `graphzoo fit`
_RUNS = ("fit", "predict", "export", "plot", "results", "test", "validate")
Parsers = Callable[[str], Parser | None]
"""The parser of a command; None for those that Lightning reads, and for words that are not a command."""


def completion_parser() -> Parser:
    """The options."""
    parser = Parser(
        "completion",
        "SHELL",
        "Print a script that lets the Tab key complete names and options in a shell.",
        "\n".join(_HINTS.values()),
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=", ".join(SCRIPTS))
    return parser


def completion_main(argv: list[str]) -> int:
    """Print the script of a shell."""
    sys.stdout.write(SCRIPTS[completion_parser().read(argv).shell])
    return 0


def complete_main(argv: list[str], commands: Sequence[str], parsers: Parsers) -> int:
    """Print the words that fit in place of the last one, one a line; nothing lets the shell offer files."""
    words = candidates(argv or [""], commands, parsers)
    sys.stdout.write("".join(word + "\n" for word in words))
    return 0


def candidates(words: Sequence[str], commands: Sequence[str], parsers: Parsers) -> list[str]:
    """The words that fit in place of the last one, which may be empty."""
    if len(words) > 2 and "=" in words[-2:]:  # bash cuts `--model=kn` into three words and wants the last one
        at = len(words) - 1 - list(reversed(words)).index("=")
        return candidates([*words[:at], "" if words[-1] == "=" else words[-1]], commands, parsers)
    *before, last = words
    if not before:
        return [name for name in commands if name.startswith(last)]
    command = before[0]
    if command not in commands:
        return []
    asked = parsers(command)
    actions = asked.actions if asked else []
    option, equals, typed = last.partition("=")
    if equals and option.startswith("--"):
        offered = _choices(actions, option) or _values(option[2:], words)
        return [f"{option}={name}" for name in offered if name.startswith(typed)]
    if last.startswith("-"):
        return [name for name in _options(command, actions) if name.startswith(last)]
    previous = before[-1]
    if previous.startswith("--") and "=" not in previous and previous not in _flags(actions):
        names = _choices(actions, previous) or _values(previous[2:], words)
    else:
        names = _positional(command, before[1:], actions)
    return [name for name in names if name.startswith(last)]


def _values(option: str, words: Sequence[str]) -> list[str]:
    """Names that an option takes."""
    if option == "model":
        return model_names()
    if option == "matmul_precision":
        return list(MATMUL_PRECISIONS)
    if option in ("data", "trainer", "logger"):
        return [preset.name for preset in list_presets(option)]
    if option == "space":
        return [preset.name for preset in list_presets("search")]
    model = value_of("--model", words)
    if option in ("recipe", "ablation"):
        if words[0] in _PAIRS and len(words) > 1:
            model = words[1]
        names = [preset.name.rpartition("/")[2] for preset in list_presets(option, model or None)]
        return [*names, "none"] if option == "recipe" else names
    if option == "ckpt_path":
        return ["best", "last", *_runs()]
    return []


def _choices(actions: Sequence[argparse.Action], option: str) -> list[str]:
    """The fixed choices of an option."""
    choices = [action.choices or () for action in actions if option in action.option_strings]
    return [str(choice) for some in choices for choice in some]


def _positional(command: str, before: Sequence[str], actions: Sequence[argparse.Action]) -> list[str]:
    flags = _flags(actions)
    place, takes_value = 0, False
    for word in before:
        option = word.startswith("-")
        place += not option and not takes_value
        takes_value = option and "=" not in word and word not in flags
    if command in _PAIRS:
        return _values(("model", "data")[place], before) if place < 2 else []
    if command == "list":
        return list(KINDS)
    if command == "download":
        return _values("data", before)
    if command in _RUNS:
        return _runs()
    return [choice for action in actions if not action.option_strings for choice in action.choices or ()]


def _flags(actions: Sequence[argparse.Action]) -> set[str]:
    """Options that take no value."""
    ours = {f"--{name}" for flag in FLAGS for name in (flag, flag.replace("_", "-"))}
    return ours | {name for action in actions if action.nargs == 0 for name in action.option_strings}


def _runs() -> list[str]:
    """Run directories below the current folder, newest first."""
    runs = [path.parent for path in RUNS.glob("*/*/config.yaml")]
    return [str(path) for path in sorted(runs, key=lambda path: path.name, reverse=True)]


def _options(command: str, actions: Sequence[argparse.Action]) -> list[str]:
    """Options of a command, and those of `graphzoo fit` where it takes them too."""
    own = [name for action in actions for name in action.option_strings if name.startswith("--")]
    flags = [name.replace("_", "-") for name, text in FLAGS.items() if command == "fit" or text[:4] != "fit:"]
    ours = [f"--{name}" for name in (*OPTIONS, *flags, *LIGHTNING)]
    return [*own, *(name for name in ours if command in _TAKE_OPTIONS and name not in own)]
