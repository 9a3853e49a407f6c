"""`graphzoo fit`, `validate` and `test`: help that fits a screen, and the way to a run."""

from __future__ import annotations

from graphzoo.cli.options import WIDTH
from graphzoo.cli.run_word import run_as_option
from graphzoo.cli.terminal import show
from graphzoo.errors import UsageError
from graphzoo.system.regular_files import read_regular_text


def _run(command: str, argv: list[str]) -> int:
    from graphzoo.training.plan import make_plan

    rest = run_as_option(command, argv)
    if "-h" in rest or "--help" in rest:
        return show(_summary(command, rest))
    if "--help-all" in rest:
        from graphzoo.training.launch import show_help

        return show_help(command)
    if any(token.partition("=")[0].endswith(".help") for token in rest):
        from graphzoo.training.launch import show_class_help

        return show_class_help(command, rest)
    plan = make_plan(command, rest)
    from graphzoo.training.launch import run_plan

    return run_plan(plan)


def fit_main(argv: list[str]) -> int:
    """Train a model, or go on with a run, then test its best checkpoint."""
    return _run("fit", argv)


def validate_main(argv: list[str]) -> int:
    """Evaluate a checkpoint on the validation split."""
    return _run("validate", argv)


def test_main(argv: list[str]) -> int:
    """Evaluate a checkpoint on the test split."""
    return _run("test", argv)


def _settings_of(file: str) -> list[str]:
    """The lines of a configuration file, without comments; the file may come from anywhere."""
    try:
        text = read_regular_text(file, most=_MOST_BYTES).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    return [line for line in text.splitlines() if not line.startswith("#")]


_MOST_BYTES = 1 << 18  # of a configuration file


def _summary(command: str, rest: list[str]) -> str:
    """Help that fits a screen of 24 lines: our options; for a named model or data set theirs follow."""
    from graphzoo.catalog.presets import list_presets
    from graphzoo.training.options import FLAGS, OPTIONS, RARE

    def row(name: str, text: str) -> str:
        return f"  {name:26}{text}"

    def names(kind: str) -> str:
        """As many as fit into the line."""
        known = [preset.name for preset in list_presets(kind)]
        shown, rest = "", f"... ({len(known)}: graphzoo list {kind})"
        for name in known:
            if len(f"{kind:7}{shown}{name}, {rest}") > WIDTH:
                break
            shown += f"{name}, "
        return f"{kind:7}{shown}{rest}"

    is_fit = command == "fit"
    wanted = "--model NAME --data NAME | RUN" if is_fit else "RUN"
    lines = [f"usage: graphzoo {command} {wanted} [options]"]
    values = {"run_dir": "DIR", "seed": "N"}
    shown = {name: text for name, text in OPTIONS.items() if not is_fit or name not in RARE}
    lines += [row(f"--{name} {values.get(name, 'NAME')}", text) for name, text in shown.items()]
    for name, text in FLAGS.items():
        which, colon, rest_of_text = text.partition(": ")
        if not colon or which == command:  # flags of one command alone begin with its name
            lines.append(row(f"--{name.replace('_', '-')}", rest_of_text or text))
    lines += [
        row("--config FILE", "settings in YAML, repeatable; also --print_config"),
        row("--trainer.max_epochs N", "or any other argument of Lightning's Trainer"),
        row("--model.lr, --data.seed", "or any other argument of task and data module"),
        row("--model.encoder.X", "argument of a model; --model NAME --help lists all"),
        *([row("--optimizer NAME", "of torch; also --lr_scheduler, --matmul_precision")] if is_fit else []),
        row("--help-all", "show all options (long, and takes a few seconds)"),
        names("model"),
        names("data"),
    ]
    chosen = [token for token in rest if token not in ("-h", "--help")]
    return "\n".join([*lines, *_of_names(command, chosen)])


def _of_names(command: str, chosen: list[str]) -> list[str]:
    """Help for what a command line names: options of model, task and data, and the settings they bring."""
    from graphzoo.catalog.presets import find_preset
    from graphzoo.cli.option_help import named_options
    from graphzoo.training.options import config_files, passes_through, split_options
    from graphzoo.training.plan import make_plan

    values = split_options(chosen)[0]
    named: dict[str, str] = {
        kind: values[kind]
        for kind in ("model", "data")
        if kind in values and not passes_through(kind, values[kind])
    }
    if not ({"model", "data"} <= set(values) or "ckpt_path" in values or config_files(chosen)):
        return named_options(named)
    if "data" in named:  # help needs no files
        needed = find_preset("data", named["data"]).header.get("requires")
        chosen = [*chosen, f"--{needed}=FOLDER_OR_FILES"] if needed else chosen
    plan = make_plan(command, chosen)
    files = config_files(plan.arguments)
    brought = [f"  {line}" for file in files for line in _settings_of(file)]
    title = f"With these names ({', '.join(plan.used)}) the settings are:"
    return [*named_options(named, files), "", title, *brought]
