"""`graphzoo completion SHELL`: names and options by the Tab key. Standard library only.

The scripts ask `graphzoo _complete WORDS...` for what may stand in place of the last word.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from graphzoo.catalog.presets import KINDS, list_presets
from graphzoo.catalog.tasks import model_names
from graphzoo.errors import UsageError, suggestion
from graphzoo.runs.checkpoints import RUNS
from graphzoo.training.options import FLAGS, LIGHTNING, OPTIONS

__all__ = ["candidates", "complete_main", "completion_main"]

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
USAGE = "usage: graphzoo completion bash|zsh|fish\n\n" + "\n".join(_HINTS.values())
_TRAINING = ("fit", "validate", "test")
# Commands that name a model and a data set without options.
_PAIRS = ("reproduce", "search")
_RUNS = ("predict", "export", "plot", "results")


def completion_main(argv: list[str]) -> int:
    """Print the script of a shell.

    Args:
        argv: The shell's name.

    Raises:
        UsageError: for another word.
    """
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE + "\n")
        return 0
    if len(argv) != 1 or argv[0] not in SCRIPTS:
        hint = suggestion(argv[0], SCRIPTS) if argv else ""
        raise UsageError(f"completion needs the name of a shell: bash, zsh or fish\n{hint}".rstrip())
    sys.stdout.write(SCRIPTS[argv[0]])
    return 0


def complete_main(argv: list[str], commands: Mapping[str, Callable[[list[str]], int]]) -> int:
    """Print what may stand in place of the last word, one a line; nothing lets the shell offer files.

    Args:
        argv: The words after `graphzoo`, the last one perhaps empty.
        commands: What the commands do; they are asked for their options.
    """
    found = candidates(argv or [""], commands)
    sys.stdout.write("".join(word + "\n" for word in found))
    return 0


def candidates(words: Sequence[str], commands: Mapping[str, Callable[[list[str]], int]]) -> list[str]:
    """What may stand in place of the last of the words.

    Args:
        words: The words after `graphzoo`, the last one perhaps empty.
        commands: Commands by name.
    """
    if len(words) > 2 and "=" in words[-2:]:  # bash cuts `--model=kn` into three words and wants the last one
        at = len(words) - 1 - list(reversed(words)).index("=")
        return candidates([*words[:at], "" if words[-1] == "=" else words[-1]], commands)
    *before, last = words
    if not before:
        return [name for name in commands if name.startswith(last)]
    command = before[0]
    option, equals, typed = last.partition("=")
    if equals and option.startswith("--"):
        offered = _values(option[2:], words) or _choices(command, option, commands)
        return [f"{option}={name}" for name in offered if name.startswith(typed)]
    if last.startswith("-"):
        return [name for name in _options(command, commands) if name.startswith(last)]
    previous = before[-1]
    asks = previous.startswith("--") and "=" not in previous and previous not in _flags()
    if asks:
        names = _values(previous[2:], words) or _choices(command, previous, commands)
    else:
        names = _positional(command, before[1:])
    return [name for name in names if name.startswith(last)]


def _values(option: str, words: Sequence[str]) -> list[str]:
    """Names that an option takes."""
    if option == "model":
        return model_names()
    if option in ("data", "trainer", "logger"):
        return [preset.name for preset in list_presets(option)]
    if option == "space":
        return [preset.name for preset in list_presets("search")]
    model = _value_of("--model", words)
    if option in ("recipe", "ablation"):
        if words[0] in _PAIRS and len(words) > 1:
            model = words[1]
        found = [preset.name.rpartition("/")[2] for preset in list_presets(option, model or None)]
        return [*found, "none"] if option == "recipe" else found
    if option == "ckpt_path":
        return ["best", "last", *_runs()]
    return []


def _choices(command: str, option: str, commands: Mapping[str, Callable[[list[str]], int]]) -> list[str]:
    """What a command's help names for an option, `--to safetensors|torch.export` or `--known {mark,drop}`."""
    if command in _TRAINING or command not in commands:  # their help imports torch
        return []
    word = r"[a-z][\w.-]*"
    found = re.search(
        rf"(?<![\w-]){re.escape(option)} (?:\{{({word}(?:,{word})*)\}}|({word}(?:\|{word})+))",
        _help(command, commands),
    )
    return re.split(r"[,|]", found[1] or found[2]) if found else []


def _help(command: str, commands: Mapping[str, Callable[[list[str]], int]]) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        commands[command](["--help"])
    return text.getvalue()


def _positional(command: str, before: Sequence[str]) -> list[str]:
    flags = _flags()
    place, takes_value = 0, False
    for word in before:
        option = word.startswith("-")
        place += not option and not takes_value
        takes_value = option and "=" not in word and word not in flags
    if command in _PAIRS and place < 2:
        return _values(("model", "data")[place], before)
    if command == "list":
        return list(KINDS)
    if command == "download":
        return _values("data", before)
    if command == "completion":
        return list(SCRIPTS)
    return _runs() if command in _RUNS else []


def _flags() -> set[str]:
    """Options that take no value."""
    return {f"--{name}" for flag in FLAGS for name in (flag, flag.replace("_", "-"))} | {
        "--in-process",
        "--yes",
        "--commands",
        "--published",
    }


def _runs() -> list[str]:
    """Run directories below the current folder, newest first."""
    found = [path.parent for path in RUNS.glob("*/*/config.yaml")]
    return [str(path) for path in sorted(found, key=lambda path: path.name, reverse=True)]


def _options(command: str, commands: Mapping[str, Callable[[list[str]], int]]) -> list[str]:
    """Options of a command; of those that are no training command, what their help names."""
    flags = [name.replace("_", "-") for name, text in FLAGS.items() if command == "fit" or text[:4] != "fit:"]
    ours = [f"--{name}" for name in (*OPTIONS, *flags, *LIGHTNING)]
    if command in _TRAINING or command not in commands:
        return ours if command in _TRAINING else []
    found = dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][\w.-]*", _help(command, commands)))
    return list(found) + [name for name in ours if command in _PAIRS and name not in found]


def _value_of(option: str, words: Sequence[str]) -> str:
    for position, word in enumerate(words[:-1]):
        if word == option:
            return words[position + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return ""
