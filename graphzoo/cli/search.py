"""`graphzoo search MODEL DATA`: searches for settings on the validation split, and records all trials."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import yaml

from graphzoo.catalog.presets import find_preset, list_presets
from graphzoo.catalog.settings import flatten, read_settings, value_of_word, words_of
from graphzoo.catalog.tasks import TASKS
from graphzoo.cli.options import Parser, at_least, check_splits, out_folder, pair_first, refuse_options
from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.directory import several_processes
from graphzoo.runs.published import mean_and_deviation
from graphzoo.runs.results_file import write_results
from graphzoo.runs.series import Run, claim, lasting_words, runs_of
from graphzoo.runs.tables import shown_setting
from graphzoo.search.space import SAMPLERS, Space, nested, read_space
from graphzoo.system.files import write_text_atomically
from graphzoo.system.shown import cell, console, say, tell
from graphzoo.system.units import counted
from graphzoo.training.named_twice import bring_optimizer, read_files
from graphzoo.training.options import OF_OPTIMIZER, config_files, names_optimizer, passes_through
from graphzoo.training.plan import Plan, make_plan
from graphzoo.training.start import one_device, settings_of

if TYPE_CHECKING:
    from optuna.trial import Trial

    from graphzoo.search.study import TrialStudy


# Options of a trial, of which only the validation score is needed.
_LEAN = [
    "--trainer.enable_progress_bar=false",
    "--trainer.enable_checkpointing=false",
    "--trainer.num_sanity_val_steps=0",
]
_SHOWN = 5  # trials in the table
_NO_TEST = ("--no-test", "--no_test")  # not passed on to reproduce
_OF_ENTRIES = ("--trainer.callbacks.", "--trainer.logger.")  # set an argument of the last entry of a list
_FAILURES = 3  # if so many first trials all fail, the fault is in the fixed settings: stop


def search_parser() -> Parser:
    """The options; all others are for `graphzoo fit`."""
    parser = Parser(
        "search",
        "MODEL DATA [options] [options of fit]",
        "Search for the settings with the best validation score, and write them as a recipe. After an "
        "interruption, the same command continues.",
    )
    add, count = parser.add_argument, at_least(1, whole=True)
    add("model", metavar="MODEL", help="model, see `graphzoo list model`")
    add("data", metavar="DATA", help="data set, see `graphzoo list data`")
    add("--trials", type=count, default=50, help="number of trials, with those of earlier calls (default 50)")
    add("--minutes", type=at_least(0.01), metavar="M", help="start no new trial after M minutes")
    add("--seeds", default="0", metavar="0,1", help="train each trial with these seeds (default 0)")
    add("--splits", default="", metavar="0-2", help="train each trial on these splits of the data")
    add(
        "--space",
        default="",
        metavar="NAME|FILE",
        help="search space, see `graphzoo list search` (default: that of the model)",
    )
    drawn = "method that chooses the settings (default tpe)"
    add("--sampler", default="tpe", choices=SAMPLERS, help=drawn)
    seed = "seed of the sampler (default 0)"
    add("--sampler_seed", type=at_least(0, whole=True), default=0, metavar="N", help=seed)
    scored = "score of a trial: its best average over N successive validations (default 1)"
    add("--window", type=count, default=1, metavar="N", help=scored)
    add(
        "--out",
        type=out_folder,
        metavar="DIR",
        help="folder of the search, which several processes may share (default: in runs/search)",
    )
    add("--sweep", type=Path, metavar="FILE", help="only write a sweep for Weights & Biases, without a trial")
    return parser


def search_main(argv: list[str]) -> int:
    """Try settings until the budget is spent; the best become a recipe.

    The first trial has the settings of `graphzoo fit`, as far as they lie in the space. Settings given on the
    command line or in its files are not searched. The same command continues an interrupted search, and
    several processes can share one folder. The exit status is 0, 1 if no trial could be evaluated, or that of
    a run that was stopped.
    """
    args, rest = search_parser().read_some(pair_first("search", argv))
    if several_processes():
        raise UsageError("search runs one process a trial: start it several times with one --out instead")
    refuse_options(rest, "search", splits=bool(args.splits))
    runs = runs_of(args.seeds, args.splits)
    words = ["--model", args.model, "--data", args.data, *rest]
    if passes_through("data", args.data):
        raise UsageError(
            f"search takes a data set by name, and {args.data} is a class or a file\n"
            "See graphzoo list data; for files of your own give kg, links or nodes with --data.path"
        )
    plan = make_plan("fit", words)
    check_splits("fit", plan.data, args.splits, words)
    space = _searched(_space(args.space, plan), rest)
    typed = ["--model", args.model if passes_through("model", args.model) else plan.model]
    typed += ["--data", plan.data, *rest]
    record: dict[str, Any] = {
        "options": typed,
        "runs": [str(run) for run in runs],
        "sampler": [args.sampler, args.sampler_seed],
        "window": args.window,
        **space.describe(),
    }
    quiet = [] if _has_logger(rest) else ["--logger=csv"]
    options = [*typed[:4], *_LEAN, *quiet, *words_of(space.options), *one_device(rest)]
    settings = settings_of("fit", options)
    if absent := space.absent(settings):
        raise UsageError(
            f"{space.path}: {plan.model} on {plan.data} has no option {absent[0]}\n"
            "Is the space for another model? Leave --space out, or write one of your own"
        )
    if args.sweep:
        return _write_sweep(args, plan, space, runs, typed)
    record["data"] = _own_data(settings)
    study, budget = _open_study(args, plan, space, record, space.fitting(settings), len(runs))
    status = _work(study, runs, options, budget, args.minutes, args.window)
    if not study.complete:
        if not status:
            tell(f"No trial could be evaluated so far; see {study.folder / 'trials.csv'}\n")
        return status or 1
    with study.gate:
        _report(study, plan, rest, runs, record, _redrawn(settings))
    return status


def _redrawn(settings: Mapping[str, Any]) -> tuple[str, str]:
    """The split whose training nodes are drawn anew, and the fixed one; empty for any other split."""
    from graphzoo.datasets.node.splits import REDRAWN  # torch

    split = str(settings["data"].get("init_args", {}).get("split"))
    return (split, split.removesuffix(REDRAWN)) if split.endswith(REDRAWN) else ("", "")


def _own_data(settings: Mapping[str, Any]) -> list[str] | None:
    """Fingerprints of own data, which may change; None for others, and where another package reads them."""
    from graphzoo.search.facts import fingerprints, load_data

    data = settings["data"]
    own = data.get("init_args", {}).get("path") and data["class_path"].startswith("graphzoo.")
    return fingerprints(load_data(settings)) if own else None


def _searched(space: Space, rest: list[str]) -> Space:
    """The space without the settings that the command line and its files set or make ineffective."""
    files = read_files(config_files(rest))
    given = {f"set in {file}": set(flatten(settings)) for file, settings in files.items()}
    given["set on the command line"] = set(_options_of(rest)[0])
    if names_optimizer(rest) or bring_optimizer(files):
        given["of the task's own optimiser, which --optimizer replaces"] = set(OF_OPTIMIZER)
    for reason, names in given.items():
        left = space.without(names)
        for name in [name for name in space.choices if name not in left.choices]:
            tell(f"{name} is {reason}: not searched\n")
        space = left
    return space


def _open_study(
    args: argparse.Namespace,
    plan: Plan,
    space: Space,
    record: Mapping[str, Any],
    today: dict[str, Any],
    num_runs: int,
) -> tuple[TrialStudy, int]:
    """The study in its folder, begun or continued, and how many trials it is to have."""
    from graphzoo.search.study import TrialStudy, check_grid, gate_of

    if args.sampler == "grid":
        check_grid(space)
    row = f"{plan.model}-{plan.data}" + (f"-{space.path.stem}" if space.path.stem != plan.model else "")
    folder = args.out or RUNS / "search" / row
    if folder.is_dir() and is_anothers(folder):
        raise UsageError(f"{folder} holds other files\nGive an empty or new folder with --out DIR")
    folder.mkdir(parents=True, exist_ok=True)
    with gate_of(folder):  # several processes may begin at once
        begun = (folder / "study.journal").is_file()
        claim(folder, record, configs=config_files(plan.arguments), begun=begun, what="trials")
        study = TrialStudy(
            folder,
            space,
            direction="maximize" if _mode(plan) == "max" else "minimize",
            sampler=args.sampler,
            seed=args.sampler_seed,
            num_runs=num_runs,
        )
        if orphans := study.take_back_orphans():
            tell(f"{counted(orphans, 'interrupted trial')} to be run again\n")
        if args.sampler == "grid":
            every = study.propose_all(args.trials)
            if every > args.trials:
                tell(f"the first {args.trials:,} of {every:,} combinations; --trials {every} tries all\n")
            return study, min(args.trials, every)
        if not study.trials:
            study.propose(today)
    return study, int(args.trials)


def _write_sweep(
    args: argparse.Namespace, plan: Plan, space: Space, runs: list[Run], typed: list[str]
) -> int:
    """The space as a file for `wandb sweep`, instead of a search."""
    from graphzoo.search.sweep import sweep_of, write_sweep

    for name in ("minutes", "window", "sampler_seed", "out"):
        if getattr(args, name) != search_parser().get_default(name):
            raise UsageError(f"--{name} is for trials of this command; leave it out with --sweep")
    if len(runs) > 1:
        raise UsageError("a trial of a sweep is one run: give --seeds and --splits one number each")
    logged = [] if _has_logger(typed) else ["--logger", "wandb"]
    options = [*typed[:4], *words_of(space.options), *typed[4:], *runs[0].options, "--no-test", *logged]
    name, mode = f"{plan.model}-{plan.data}", _mode(plan)
    sweep = sweep_of(name, space, options, mode=mode, sampler=args.sampler, trials=args.trials)
    write_sweep(args.sweep, sweep)
    say(f"{args.sweep}: {len(space.choices)} options; begin with: wandb sweep {args.sweep}\n")
    return 0


def _has_logger(rest: list[str]) -> bool:
    return any(word.partition("=")[0] == "--logger" for word in rest)


def _mode(plan: Plan) -> str:
    """Whether the largest or the least value is the best."""
    return TASKS[find_preset("data", plan.data).header["task"]].mode


def _work(
    study: TrialStudy, runs: list[Run], options: list[str], budget: int, minutes: float | None, window: int
) -> int:
    """Trial after trial; the exit status."""
    from optuna.trial import TrialState

    from graphzoo.search.trial import TrialFailed, run_trial

    began = time.monotonic()
    while minutes is None or time.monotonic() - began < 60 * minutes:
        with study.next_trial(budget) as trial:
            if trial is None:
                break
            values: list[float] = []
            seconds: list[float] = []
            note, state = "", TrialState.COMPLETE
            twin = study.same_settings(trial)
            try:
                if twin is not None:  # drawn twice: nothing new to learn
                    note = f"the settings of trial {twin.number}"
                    values += twin.user_attrs["values"]
                else:
                    words = [*options, *words_of(trial.params)]
                    for value, taken in run_trial(study.place(trial.number), runs, words, window=window):
                        values.append(value)
                        seconds.append(taken)
                        if study.is_hopeless(values):
                            break
            except TrialFailed as failed:
                if failed.stopped:
                    study.interrupt(trial)
                    tell(f"trial {trial.number}: stopped. Run the same command to continue.\n")
                    return failed.status
                note, state = str(failed), TrialState.FAIL
            except BaseException:
                study.interrupt(trial)
                raise
            if state == TrialState.COMPLETE and len(values) < len(runs):
                state = TrialState.PRUNED
                note = note or f"given up after {len(values)} of {len(runs)} runs"
            trial.set_user_attr("values", values)
            trial.set_user_attr("seconds", round(sum(seconds), 1))
            trial.set_user_attr("note", note)
            if values:
                trial.set_user_attr("mean", fmean(values))
            mean = fmean(values) if state == TrialState.COMPLETE else None
            study.study.tell(trial, mean, state=state)
        _tell(study, trial, budget, values, sum(seconds), note)
        with study.gate:
            study.write_table()
        states = [trial.state for trial in study.trials]
        if len(states) >= _FAILURES and set(states) == {TrialState.FAIL}:
            tell(f"The first {len(states)} trials failed; see {study.place(trial.number)}\n")
            return 1
    return 0


def _tell(
    study: TrialStudy, trial: Trial, budget: int, values: list[float], seconds: float, note: str
) -> None:
    done = sum(trial.state.is_finished() for trial in study.trials)
    line = f"trial {trial.number} ({done} of {budget})"
    if values:
        mean, deviation = mean_and_deviation(values)
        line += f"  {mean:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")
        line += f"  {seconds:.0f} s"
    line += f"  {note}" if note else ""
    best = study.complete[:1]
    line += f"  best {best[0].value:.4f} (trial {best[0].number})" if best else ""
    tell(line + "\n")


def _report(
    study: TrialStudy,
    plan: Plan,
    rest: list[str],
    runs: list[Run],
    record: Mapping[str, Any],
    redrawn: tuple[str, str],
) -> None:
    """The best trials as a table, and the best one as a recipe."""
    from rich.table import Table

    complete, ended = study.complete, [trial for trial in study.trials if trial.state.is_finished()]
    best = complete[0]
    monitor = _monitor(study, best.number, runs[0])
    table = Table(
        title=cell(f"{plan.model} on {plan.data}: best of {len(ended)} trials, {monitor}"),
        title_justify="left",
    )
    shown = complete[:_SHOWN]
    table.add_column("trial")
    for trial in shown:
        table.add_column(str(trial.number), justify="right")
    figures = [mean_and_deviation(trial.user_attrs["values"]) for trial in shown]
    table.add_row(monitor, *(f"{mean:.4f}" for mean, _ in figures))
    if len(runs) > 1:
        table.add_row("std", *("" if deviation is None else f"{deviation:.4f}" for _, deviation in figures))
    table.add_section()
    for name in study.space.choices:
        table.add_row(*map(cell, [name, *(shown_setting(trial.params[name]) for trial in shown)]))
    recipe = study.folder / "best.yaml"
    # redrawn splits are a means of the search: the recipe is for the split itself
    text = _recipe(study, plan, rest, runs, monitor, record["window"], redrawn)
    write_text_atomically(recipe, text)
    seconds = round(sum(trial.user_attrs.get("seconds") or 0.0 for trial in study.trials), 1)
    score = {"trial": best.number, "value": best.value, "values": best.user_attrs["values"]}
    counts = {"trials": len(ended), "complete": len(complete), "seconds": seconds}
    described = {**record, "monitor": monitor, **counts, "best": {**score, "settings": best.params}}
    write_results(study.folder / "search.json", described)
    console().print(table)  # after the files, since the reader of the output may have left
    typed, left_out = _options_of(rest)
    options = {**study.space.options, **typed}
    path = options.get("data.path", options.get("data.init_args.path"))
    words = ["graphzoo", "reproduce", record["options"][1], plan.data, "--recipe", str(recipe)]
    words += [] if path is None else words_of({"data.path": path})
    words += [word for word in lasting_words(left_out) if word not in _NO_TEST]
    words += words_of({"data.split": redrawn[1]}) if redrawn[1] else []
    tell(f"{recipe}: test it once with {shlex.join(words)}\n")


def _recipe(
    study: TrialStudy,
    plan: Plan,
    rest: list[str],
    runs: list[Run],
    monitor: str,
    window: int,
    redrawn: tuple[str, str],
) -> str:
    best, ended = study.complete[0], sum(trial.state.is_finished() for trial in study.trials)
    base = read_settings(Path(plan.recipe_file)) if plan.recipe_file else {}
    typed, left_out = _options_of(rest)
    whole = nested({**study.space.options, **typed, **best.params}, base)
    where = ""
    if redrawn[1]:
        where, whole = f", on split {redrawn[0]}", nested({"data.split": redrawn[1]}, whole)
    each = f"mean of {len(runs)} runs ({runs[0]} to {runs[-1]})" if len(runs) > 1 else f"{runs[0]}"
    chosen_by = monitor if window == 1 else f"{monitor}, best mean of {window} epochs in a row,"
    header = {
        "title": f"{plan.model} on {plan.data}, found by search, which overwrites this file: edit a copy",
        "data": plan.data,
        "measured": "not tested yet",
        "settings": f"trial {best.number}, best of {ended} ({study.sampler}, seed {study.seed}), "
        f"over {study.space.path.name}; {chosen_by} {best.value:.4f}, {each}{where}",
        "space": "; ".join(f"{name} {choice}" for name, choice in study.space.choices.items()),
        "selection": f"best {chosen_by.rstrip(',')}; of a run, the epoch with the best {monitor}",
    }
    if left_out:
        header["options"] = " ".join(left_out)
    lines = [f"# {key}: {value}" for key, value in header.items()]
    return "\n".join(lines) + "\n" + yaml.safe_dump(whole, sort_keys=False)


def _options_of(words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Options of model, data and trainer with their values, by names without `init_args`, and other words."""
    settings: dict[str, Any] = {}
    others: list[str] = []
    position = 0
    while position < len(words):
        name, equals, value = words[position].partition("=")
        position += 1
        if not equals and position < len(words) and not words[position].startswith("--"):
            value, equals = words[position], "="
            position += 1
        group = name[2:].partition(".")[0]
        is_setting = name.startswith("--") and group in ("model", "data", "trainer")
        is_setting &= "." in name and name[-1] != "+" and not name.startswith(_OF_ENTRIES)
        if is_setting:
            # of two names for the same the last one counts
            settings[name[2:].replace(".init_args", "")] = _value(name, value) if equals else True
        elif name not in ("--recipe", "--logger"):
            others.append(name + (f"={value}" if equals else ""))
    return settings, others


def _value(name: str, word: str) -> Any:
    """The value of a typed option; a path stays as it is, since YAML takes 2024_01_15 for a number."""
    value = value_of_word(word)
    return word if name.endswith(("path", "root")) and not isinstance(value, list | None) else value


def _space(name: str, plan: Plan) -> Space:
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise UsageError(f"there is no search space {name!r}")
        return read_space(Path(name))
    if name or any(preset.name == plan.model for preset in list_presets("search")):
        return read_space(find_preset("search", name or plan.model).path)
    raise UsageError(
        f"there is no search space for {plan.model}: add --space FILE\n"
        "It holds `space:` and below it lines such as `model.lr: [0.01, 0.001]`"
    )


def _monitor(study: TrialStudy, number: int, run: Run) -> str:
    path = study.place(number) / run.folder / "validation.json"
    return str(next(iter(json.loads(path.read_text(encoding="utf-8")))))


def is_anothers(folder: Path) -> bool:
    """Whether a folder holds files that are not of a search, even one that another process is starting."""
    names = {path.name for path in folder.iterdir()}
    begins = {name for name in names if name == "lock" or name.startswith(".command.json.")}
    # Looked for after the names: a search writes it before anything but those first files.
    return bool(names - begins) and not (folder / "command.json").is_file()
