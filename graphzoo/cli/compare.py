"""`graphzoo compare --data DATA`: which model for a graph, found in minutes on the validation split."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphzoo.catalog.classes import find_plugin
from graphzoo.catalog.presets import Preset, list_presets
from graphzoo.catalog.settings import flatten, read_settings, words_of
from graphzoo.catalog.tasks import PERCENT, TASKS, TaskInfo, check_task, function_of, model_names
from graphzoo.catalog.weights import WEIGHTS
from graphzoo.cli.options import Parser, at_least, out_folder, refuse_options
from graphzoo.cli.row import data_paths
from graphzoo.errors import UsageError, suggestion
from graphzoo.runs.checkpoints import RUNS
from graphzoo.runs.directory import name_of_data, several_processes
from graphzoo.runs.lock import LOCK, RunLock
from graphzoo.runs.results_file import read_results, write_results
from graphzoo.runs.series import claim
from graphzoo.runs.tables import shown_setting, spread
from graphzoo.system.progress import is_watched, progress
from graphzoo.system.regular_files import read_regular
from graphzoo.system.shown import cell, console, say, tell
from graphzoo.system.units import duration
from graphzoo.training.options import config_files, split_options
from graphzoo.training.plan import find_data, make_plan
from graphzoo.training.start import one_device, run_here, settings_of

if TYPE_CHECKING:
    import pandas as pd

    from graphzoo.search.compare import Comparison, Row
    from graphzoo.search.facts import Fact

# Settings that scores must share to be comparable; recipes may change them to follow a paper.
_PROTOCOL = ("data.split", "data.protocol", "model.metric")


def compare_parser() -> Parser:
    """The options; all others are for `graphzoo fit`."""
    parser = Parser(
        "compare",
        "--data DATA [options] [options of fit]",
        "Train several models and baselines on a graph, and choose the one with the best validation score. "
        "After an interruption, the same command continues.",
    )
    add = parser.add_argument
    add("--data", metavar="DATA", required=True, help="data set, or kg, nodes or links with --data.path PATH")
    time_of_all = "minutes for all trials together; the test comes after (default 10)"
    add("--minutes", type=at_least(0.01), default=10.0, metavar="M", help=time_of_all)
    only = "try only these models, which may be your own; names with a comma need `;` between them"
    add("--models", metavar="A,B", help=only)
    add("--in-process", action="store_true", help="run everything in one process; faster for short runs")
    add("--no-test", action="store_true", help="do not test the chosen model")
    add(
        "--out",
        type=out_folder,
        metavar="DIR",
        help="folder of runs, table and picture (default: in runs/compare)",
    )
    return parser


def compare_main(argv: list[str]) -> int:
    """Compare models on one graph.

    The exit status is 0, 1 if no model could be evaluated, or that of a trial that was stopped or of a test
    that failed.
    """
    return _run(argv)[0]


def compare(
    data: Any,
    *,
    path: str | Path | None = None,
    minutes: float = 10.0,
    models: Sequence[str] | None = None,
    out: str | Path | None = None,
    options: Sequence[str] = (),
) -> pd.DataFrame:
    """Compare models on one graph, as `graphzoo compare` does.

    Args:
        data: A data set, or "nodes", "links" or "kg" with a `path`; or a graph in memory, as `graphzoo.fit`
            takes it.
        path: Own files.
        minutes: Time for all trials together; reading the data and testing the best model take more.
        models: Try only these models: a list, or a text as for `--models`.
        out: Folder of the runs, the table and the picture; an interrupted comparison in it is continued.
        options: Further words for `graphzoo fit`, such as "--trainer.max_epochs=20".

    Returns:
        A row per model, the best first: `model`, `score` on validation, `deviation` over seeds, `margin` (the
        deviation, or the error of the score), `runs`, `seconds`, `gib`, `note`, `settings`. `attrs` has
        `advice`, the `winner` (a run directory or shipped weights), its `test` metrics and the graph's
        `facts`.

    Raises:
        UsageError: for unknown data, models or options.
        RuntimeError: if no model could be evaluated, the comparison was stopped, or the test failed.
    """
    import pandas as pd

    words = ["--minutes", str(minutes)]
    if isinstance(data, str):
        words += ["--data", data] + ([] if path is None else [f"--data.path={path}"])
        words += [] if out is None else ["--out", str(out)]
    elif path is not None:
        raise UsageError("data is a graph in memory, and path names a file: give one of the two")
    else:
        words += _kept(data, None if out is None else Path(out))
    if models is not None:
        words += ["--models", models if isinstance(models, str) else ";".join(models) + ";"]
    status, outcome = _run([*words, *options])
    if status:
        raise RuntimeError("the comparison stopped, could evaluate no model, or its test failed: see above")
    table = pd.DataFrame(outcome.pop("models"))
    table.attrs.update(outcome)
    return table


def _kept(data: Any, out: Path | None) -> list[str]:
    """Write a graph in memory into the comparison's folder, named by its hash; the words that give it."""
    from graphzoo.datasets.in_memory import given_data

    given = given_data(data, "")
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "data.npz"
        given.write(made)
        name = f"data-{hashlib.sha256(read_regular(made)).hexdigest()[:8]}"
        folder = out or RUNS / "compare" / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (path := folder / f"{name}.npz").exists():
            given.write(path)
    words = ["--data", given.kind, f"--data.path={path}", "--out", str(folder)]
    return words + (["--data.directed=true"] if given.is_directed else [])


def _run(argv: list[str]) -> tuple[int, dict[str, Any]]:
    """The exit status of a comparison, and what it found as plain values."""
    began = time.monotonic()
    args, rest = compare_parser().read_some(argv)
    if several_processes():
        raise UsageError("compare starts its runs itself: run it without torchrun or srun")
    refuse_options(rest, "compare", splits=False)
    preset = find_data(args.data)
    with contextlib.ExitStack() as held:
        comparison, description, facts = _open(args, preset, rest, held)
        return _compare(args, comparison, description, facts, TASKS[preset.header["task"]], began)


def _compare(
    args: argparse.Namespace,
    comparison: Comparison,
    description: str,
    facts: list[Fact],
    task: TaskInfo,
    began: float,
) -> tuple[int, dict[str, Any]]:
    """Run the trials and the winner's test, and print the results."""
    say("; ".join(f"{name} {value}" for name, value in facts) + "\n")
    chosen = f"compared by {comparison.monitor} on {comparison.num_valid:,} samples"
    budget, before = 60 * args.minutes, comparison.seconds
    after = "" if args.no_test else "; the test of the best comes after"
    tell(f"{len(comparison.models)} models, {chosen}; {duration(budget)} for all trials{after}\n")
    with progress("comparing", max(1.0, comparison.left(budget))) as passed:
        status = comparison.work(budget, partial(_announce, passed), passed)
    rows = comparison.rows()
    if status:
        return _stopped(status)
    if not rows or rows[0].score is None:
        _show(comparison, rows)
        tell(f"No model could be evaluated; see the logs in {comparison.folder / 'runs'}\n")
        _tell_failed(comparison)
        return 1, {}
    status, tested = (0, {}) if args.no_test else _test(comparison, rows[0])
    if status in (130, 143):
        return _stopped(status)
    _show(comparison, rows)
    outcome = _finish(comparison, rows, description, facts, tested, task)
    took = f"{time.monotonic() - began:.0f} s, {comparison.seconds - before:.0f} s of it for trials"
    tell(f"{took}; table, picture and runs: {comparison.folder}\n")
    _tell_failed(comparison)
    if status:
        tell("The test failed. Run the same command to try it again, or add --no-test\n")
    return status, outcome


def _tell_failed(comparison: Comparison) -> None:
    if failed := comparison.failed():
        tell(f"{', '.join(failed)} failed. Run the same command to try again\n")


def _stopped(status: int) -> tuple[int, dict[str, Any]]:
    tell("stopped. Run the same command to continue.\n")
    return status, {}


def _open(
    args: argparse.Namespace, preset: Preset, rest: list[str], held: contextlib.ExitStack
) -> tuple[Comparison, str, list[Fact]]:
    """The comparison in its folder, whose lock is taken; a description and the facts of the graph."""
    from graphzoo.search.compare import Comparison, command_of
    from graphzoo.search.facts import fingerprints, load_data

    task = preset.header.get("task", "")
    row = TASKS.get(task)
    if row is None or not row.compared:
        raise UsageError(f"compare has no models for {args.data}: its task is {task or 'unknown'}")
    models = _models(args.models, row.compared, preset)
    data = ["--data", args.data, *one_device(rest)]
    # a model that is trained, whose configuration has the data's settings
    first = next(name for name in row.compared if command_of(name, [])[:2] == ["fit", "--model"])
    plan = make_plan("fit", ["--model", first, "--recipe", "none", *data])
    _refuse_limits(config_files(plan.arguments))
    protocol = _protocol(plan.model, data)
    words = [*data, *protocol]
    settings = settings_of("fit", ["--model", plan.model, *words])
    datamodule = load_data(settings)
    if not datamodule.num_tested and not args.no_test:
        args.no_test = True
        tell("the data have no test samples, so no model is tested\n")
    name = name_of_data(plan.data, getattr(datamodule, "path", None))
    folder = args.out or RUNS / "compare" / name
    lock = RunLock(folder, "--out")
    lock.take()
    held.callback(lock.release)
    others = {each.name for each in folder.iterdir() if not each.match("data-*.npz")}
    others -= {"command.json", LOCK}
    if others and not (folder / "command.json").is_file():
        raise UsageError(f"{folder} holds other files\nGive an empty or new folder with --out DIR")
    record = {"options": data, "models": models, "data": fingerprints(datamodule)}
    record["protocol"] = protocol  # trials of another one cannot be compared with what follows
    configs = _configs(models, words)
    claim(folder, record, configs=configs, begun=(folder / "trials.jsonl").is_file(), what="trials")
    monitor = row.monitor
    if monitor == "auto":  # the data have a metric of their own
        metric = settings["model"].get("init_args", {}).get("metric")
        monitor = function_of(row.class_path).monitor_of(metric, datamodule.graph)  # type: ignore[attr-defined]
    comparison = Comparison(
        folder, words, models, monitor=monitor, mode=row.mode, num_valid=datamodule.num_valid,
        in_process=args.in_process,
    )  # fmt: skip
    facts, description = function_of(row.facts)(datamodule)
    return comparison, description, facts


def _configs(models: Sequence[str], words: Sequence[str]) -> list[str]:
    """The configuration files that the trials of all models read, presets included."""
    from graphzoo.search.compare import command_of

    found: list[str] = []
    for model in models:
        command, *rest = command_of(model, words)
        with contextlib.suppress(UsageError):  # its trial will tell
            found += config_files(make_plan(command, rest).arguments)
    return found


def _refuse_limits(files: Sequence[str]) -> None:
    """Refuse files for all models that limit the time of a run, as `refuse_options` does with words."""
    for file in files:
        settings = flatten(read_settings(Path(file)))
        if any(name.startswith("trainer.max_time") and value for name, value in settings.items()):
            raise UsageError(
                f"{file} sets trainer.max_time, which compare sets of each run itself\n"
                "Leave it out, and give the time for all runs together: --minutes"
            )


def _protocol(model: str, data: list[str]) -> list[str]:
    """Words for the split, the protocol and the metric of all models, unless the user named a recipe."""
    if any(word.partition("=")[0] == "--recipe" for word in data):
        return []
    settings = flatten(settings_of("fit", ["--model", model, *data, "--recipe", "none"]))
    return words_of({name: settings[name] for name in _PROTOCOL if name in settings})


def _models(given: str | None, known: tuple[str, ...], data: Preset) -> list[str]:
    if given is None:
        return [*known]
    split = given.split(";" if ";" in given or given in known else ",")
    names = [name.strip() for name in split if name.strip()]
    if not names:
        raise UsageError("--models names no model\nLeave it out to try all that suit the data, or name some")
    others = [_other(name, known, data) for name in names if name not in known]
    return [*(name for name in known if name in names), *dict.fromkeys(others)]


def _other(name: str, known: tuple[str, ...], data: Preset) -> str:
    """A model that is tried when asked for: another preset, the user's own too, or a plug-in."""
    preset = next((each for each in list_presets("model") if each.name == name), None)
    if preset is None and (plugin := find_plugin(name)) is not None:
        return plugin.name
    if preset is None:
        others = f"Models: {'; '.join(known)}"
        if "." in name:
            others = "A class is tried under a name: write a preset (GRAPHZOO_CONFIGS), or register a plug-in"
        hint = suggestion(name, [*known, *model_names()]) or others
        raise UsageError(f"compare has no model {name!r} for these data\n{hint}")
    check_task(data, preset)
    if name in WEIGHTS:
        raise UsageError(f"the weights of {name} are for other data\nModels: {'; '.join(known)}")
    return name


def _announce(passed: Callable[..., None], what: str, left: float) -> None:
    """Name the next trial: in the one bar where somebody looks, else in a line."""
    if is_watched():
        passed(0, what)
    else:
        time_left = f"{left / 60:.1f} minutes" if left >= 60 else f"{max(0, left):.0f} s"
        tell(f"{what} ({time_left} left)\n")


def _show(comparison: Comparison, rows: list[Row]) -> None:
    """The table: models, the best first."""
    from rich.table import Table

    short = comparison.monitor.removeprefix("val/")
    table = Table(title=cell("on validation; the best settings of each model"), title_justify="left")
    for column in ("model", PERCENT.get(short, short), "runs", "seconds", "GiB", "settings"):
        table.add_column(column, justify="left" if column in ("model", "settings") else "right")
    for row in rows:
        score = "" if row.score is None else spread(short, row.score, row.deviation)
        said = row.note if row.score is None else _settings(row)
        gib = f"{row.gib:.1f}" if row.gib else ""
        table.add_row(*map(cell, [row.model, score, row.tried, f"{row.seconds:.0f}", gib, said]))
    console().print(table)


def _settings(row: Row) -> str:
    changed = row.trials[0].settings
    words = [f"{name.rpartition('.')[2]} {shown_setting(value)}" for name, value in changed.items()]
    return ", ".join(words + ([row.note] if row.note else [])) or "its own"


def _test(comparison: Comparison, row: Row) -> tuple[int, dict[str, float]]:
    """The exit status of the winner's test, and its metrics; the split is looked at once."""
    from graphzoo.search.compare import command_of

    place = comparison.test_place(row.trials[0])
    if not (place / "results.json").is_file():
        shutil.rmtree(place, ignore_errors=True)  # of a test that was stopped
        if command_of(row.model, [])[0] == "validate":
            words = ["test", *command_of(row.model, comparison.data)[1:]]
        else:
            words = ["test", "--ckpt_path", str(comparison.place(row.trials[0]))]
            loggers = split_options(comparison.data)[0].get("logger")  # config.yaml's need --trust
            given = [f"--logger={loggers}"] if loggers else []
            words += _trusting(row.model, comparison.place(row.trials[0])) or given
        tell(f"testing {row.model}\n")
        if status := run_here([*words, "--run_dir", str(place), "--quiet"]):
            return status, {}
    return 0, dict(read_results(place / "results.json")["metrics"])


def _trusting(model: str, run: Path) -> list[str]:
    """`--trust` for a run of this comparison whose encoder is a class of the user's own."""
    encoder = str(flatten(read_settings(run / "config.yaml")).get("model.encoder.class_path", ""))
    # `is_trusted` would also trust a class that only this process has imported
    return [] if encoder.startswith("graphzoo.") or find_plugin(model) else ["--trust"]


def _finish(
    comparison: Comparison,
    rows: list[Row],
    description: str,
    facts: list[Fact],
    tested: dict[str, float],
    task: TaskInfo,
) -> dict[str, Any]:
    """Say what to do, and write the table, the picture and what was found."""
    from graphzoo.search.compare import STOPPED, command_of, draw
    from graphzoo.search.facts import sentence

    models: list[dict[str, Any]] = [
        {
            "model": row.model, "score": row.score, "deviation": row.deviation, "margin": row.margin,
            "runs": row.tried, "seconds": row.seconds, "gib": row.gib, "note": row.note,
            "settings": row.trials[0].settings if row.trials else {},
        }
        for row in rows
    ]  # fmt: skip
    transformers = [each.name for each in list_presets("model") if each.header.get("family") == "transformer"]
    short = comparison.monitor.removeprefix("val/")
    scored = [row | {"is_cut": row["note"].startswith(STOPPED)} for row in models if row["score"] is not None]
    advice = sentence(scored, description, transformers, percent=short in PERCENT)
    if untried := [row.model for row in rows if not row.tried]:
        faster = "" if comparison.in_process else " --in-process starts trials faster."
        advice += f" Not tried, as time ran out: {', '.join(untried)}.{faster}"
    say(f"{advice}\n")
    winner = rows[0]
    has_run = command_of(winner.model, [])[0] == "fit"
    run = str(comparison.place(winner.trials[0])) if has_run else winner.model
    if f"test/{short}" in tested:
        figure = f"{PERCENT.get(short, short)} {spread(short, tested[f'test/{short}'], None)}"
        say(f"{winner.model} on the test split: {figure}\n")
    if has_run or not winner.model.startswith("heuristic."):
        trusting = _trusting(winner.model, Path(run)) if has_run else []
        say(f"{_predicting(run, comparison.data, task, trusting)}\n")
    described = {
        "data": comparison.data, "monitor": comparison.monitor, "facts": dict(facts), "advice": advice,
        "winner": run, "test": tested, "models": models,
    }  # fmt: skip
    write_results(comparison.folder / "compare.json", described)
    draw(comparison, comparison.folder / "compare.png")
    return described


def _predicting(winner: str, data: Sequence[str], task: TaskInfo, trusting: Sequence[str] = ()) -> str:
    """A command that asks the winner, a run or weights of the package."""
    words = ["graphzoo", "predict", winner]
    if winner in WEIGHTS:
        words = [*words[:2], "--model", winner, "--data.path", *(data_paths(data) or [data[1]])]
    words += [f"--{task.options[0]}", "FILE"] if task.needed else ["--out", "labels.csv"]
    return shlex.join([*words, *trusting])
