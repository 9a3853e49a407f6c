"""`fit --dry-run` estimates time and memory and writes nothing; `--quiet`; the first lines of a run."""

import dataclasses
import sys
from types import FunctionType, SimpleNamespace

import pytest
import torch

from graphzoo.callbacks import run_length
from graphzoo.callbacks.summary import RunSummary, describe_run
from graphzoo.system import memory as memory_module
from graphzoo.system.units import counted, duration, size
from graphzoo.tasks import KGCompletion, room
from graphzoo.tasks import base as base_module
from graphzoo.tasks import room as room_module
from graphzoo.tasks.room import SMALLER_MODEL
from graphzoo.training import dry_run
from graphzoo.training.dry_run import limited_memory
from graphzoo.training.plan import Plan, make_plan


def dry(fit, *options, status=0, epochs=3):
    return fit("--dry-run", *options, status=status, epochs=epochs)


def shown(result):
    """The printed table as a dictionary, with continued lines joined."""
    found, last = {}, ""
    for line in result.out.splitlines():
        cells = [cell.strip() for cell in line[1:-1].replace("│", "|").split("|")]
        if len(cells) == 2:
            last = cells[0] or last
            found[last] = f"{found.get(last, '')} {cells[1]}".strip()
    return found


@pytest.mark.parametrize("task", ["fit", "fit_nodes", "fit_links"])
def test_sizes_times_and_memory_are_shown_and_nothing_is_written(request, workplace, task):
    fit = request.getfixturevalue(task)
    before = sorted(workplace.rglob("*"))
    result = dry(fit)
    assert sorted(workplace.rglob("*")) == before, "a dry run writes nothing"
    found = shown(result)
    assert [name for name in found if name != "features"] == [
        "device", "graph", "model", "training", "first step", "a step", "training, an epoch", "validation",
        "test", "the whole run", "peak memory",
    ]  # fmt: skip
    assert found["device"] == "cpu, precision 32-true"
    assert "parameters" in found["model"] and "at most 3 epochs" in found["training"]
    assert "for 3 epochs and the test" in found["the whole run"]
    assert " available to the process, so far" in found["peak memory"]
    assert "writes no run; downloads and caches are kept" in result.out and "epoch 1/" not in result.out


@pytest.mark.parametrize("logger", ["mlflow", "wandb,tensorboard"])
def test_loggers_write_nothing(fit, workplace, logger):
    for package in logger.split(","):
        pytest.importorskip(package)
    before = sorted(workplace.rglob("*"))
    assert "writes no run" in dry(fit, f"--logger={logger}").out
    assert sorted(workplace.rglob("*")) == before


def test_steps_and_parameters_are_those_of_the_run(fit, results):
    found = shown(dry(fit, "--data.micro_batch_size=4"))
    fit("--run_dir=run", "--data.micro_batch_size=4", epochs=3)
    real = results("run")
    steps = real["steps"] // 3
    assert found["training, an epoch"].endswith(f" in {steps} steps")
    whole = found["the whole run"]
    assert " for 3 epochs and" in whole, "micro-batches before the first step are not progress"
    assert f"{steps} steps an epoch, each in 4 parts" in found["training"]
    assert found["model"] == f"KnowFormer, {real['num_parameters']:,} parameters"


def test_without_a_test_none_is_shown(fit):
    assert shown(dry(fit, "--no-test"))["the whole run"].endswith(" for 3 epochs")


def test_the_estimate_is_steps_times_time(fit, monkeypatch):
    """Each reading of the clock is a second later, so the time of a step does not depend on the machine."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(dry_run.time, "perf_counter", lambda: float(next(ticks)))
    found = shown(dry(fit, "--trainer.check_val_every_n_epoch=3", epochs=6))
    step = float(found["a step"].split(" s")[0])
    epoch, steps = found["training, an epoch"].split(" in ")
    assert float(epoch.split(" ")[0]) == pytest.approx(step * int(steps.split()[0]))
    validation, batches = found["validation"].split(" in ")
    assert float(validation.split(" ")[0]) % int(batches.split()[0]) == 0
    whole = found["the whole run"]
    expected = 6 * step * int(steps.split()[0]) + 2 * float(validation.split(" ")[0])
    expected += float(found["test"].split(" ")[0])
    assert whole.startswith(duration(expected)), (whole, found)


def test_validations_after_so_many_batches_are_counted_with_micro_batches(fit, monkeypatch):
    """Each reading of the clock is a second later."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(dry_run.time, "perf_counter", lambda: float(next(ticks)))
    often = ["--trainer.check_val_every_n_epoch=null", "--trainer.val_check_interval=2"]
    found = shown(dry(fit, *often, "--data.micro_batch_size=4", "--no-test", epochs=5))
    steps = 5 * int(found["training, an epoch"].split(" in ")[1].split()[0])
    step, validation = (float(found[name].split(" ")[0]) for name in ("a step", "validation"))
    assert found["the whole run"].startswith(duration(steps * step + steps // 2 * validation)), found


@pytest.mark.parametrize("limit", [[], ["--trainer.limit_val_batches=2"]])
def test_queries_in_reverse_are_counted_once_per_relation(fit, monkeypatch, limit):
    """The clock counts scored queries, so the estimate must be the number of queries in a validation."""
    num_queries = []
    score = KGCompletion._score_in_parts

    def counting(self, graph, head, *rest, **options):
        num_queries.append(head.numel())
        return score(self, graph, head, *rest, **options)

    monkeypatch.setattr(KGCompletion, "_score_in_parts", counting)
    options = ["--model.reverse_weight=0.5", "--data.eval_batch_size=4", *limit]
    fit("--run_dir=run", "--no-test", *options, epochs=1)
    really = sum(num_queries)
    monkeypatch.setattr(dry_run.time, "perf_counter", lambda: float(sum(num_queries)))
    line = shown(dry(fit, *options))["validation"]
    assert line.endswith(f", {really:,} questions") and line.startswith(duration(really)), (line, really)


def test_memory_is_measured_with_the_largest_later_neighbourhoods(fit, monkeypatch):
    seen = []
    ask = KGCompletion.sample_losses

    def noting(self, batch):
        seen.append(1 if batch.graph is None else batch.graph.num_nodes)
        return ask(self, batch)

    monkeypatch.setattr(KGCompletion, "sample_losses", noting)
    monkeypatch.setattr(dry_run, "peak_memory_gib", lambda device: float(max(seen)))
    near = ["--data.micro_batch_size=4", "--data.neighbourhood=4", "--data.later_neighbourhoods={1: 7, 2: 5}"]
    found = shown(dry(fit, *near))
    assert found["peak memory"].startswith("7.0 GiB") and set(seen) == {4, 7} and seen[-1] == 7
    assert found["queries"].startswith("trained in neighbourhoods of 4 entities, 7 from epoch 2 on, 5 from")


def test_what_cannot_fit_is_refused(fit, workplace, monkeypatch):
    monkeypatch.setattr(memory_module, "available_bytes", lambda device: 1000)
    result = dry(fit, status=2)
    assert "available on cpu" in result.err and "Take a smaller" in result.err
    assert "(weights, gradients and Adam's two moments alone) needs at least" in result.err
    assert "--model.encoder.hidden_channels or --model.encoder.num_layers" in result.err
    assert len(result.err.splitlines()) <= 6 and not list(workplace.glob("runs*"))


def test_a_step_that_runs_out_of_memory_names_the_remedy(fit, workplace):
    breaks = ["--trainer.callbacks+=helpers.own.RunOut", "--trainer.callbacks.step=1"]
    result = dry(fit, *breaks, status=1)
    assert "out of memory" in result.err and "Take a smaller --data.micro_batch_size" in result.err
    assert "Resume with" not in result.err and "Start again" not in result.err
    assert not list(workplace.glob("runs*"))


def test_allocations_beyond_the_available_memory_fail(monkeypatch):
    if torch.cuda.is_available():
        pytest.skip("no limit beside a GPU")
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
    monkeypatch.setattr(dry_run, "available_bytes", lambda device: used + 2**30)
    with limited_memory():
        torch.empty(2**26, dtype=torch.uint8)  # fits
        with pytest.raises(RuntimeError, match="allocate memory"):
            torch.empty(2**32, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    torch.empty(2**32, dtype=torch.uint8)  # pages that are not touched need no memory


def test_a_limit_of_the_user_is_never_raised(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(dry_run.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(dry_run, "available_bytes", lambda device: 2**50)
    before, soft = resource.getrlimit(resource.RLIMIT_AS), 2**46
    resource.setrlimit(resource.RLIMIT_AS, (soft, before[1]))
    try:
        with limited_memory():
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == soft
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_the_required_memory_is_that_of_weights_gradients_and_moments(fit, monkeypatch):
    calls = []
    monkeypatch.setattr(room, "refuse_what_cannot_fit", lambda *arguments: calls.append(arguments))
    weights = int(shown(dry(fit))["model"].split(", ", 1)[1].split()[0].replace(",", ""))
    encoder, whole = (arguments[0] for arguments in calls)
    assert 0 < encoder < whole == 16 * weights, "first the encoder, then with the decoder"
    calls.clear()
    dry(fit, "--trainer.precision=64-true")
    assert [arguments[0] for arguments in calls] == [2 * encoder, 32 * weights]
    calls.clear()
    module = torch.nn.Linear(3, 2)  # a user's module, whose optimiser is unknown
    module.bias.requires_grad_(False)
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cpu")))
    room.refuse_untrainable(trainer, module)
    assert calls[0][0] == 4 * (6 + 2 + 6) and "(weights and gradients alone)" in calls[0][2]


@pytest.mark.parametrize("options", [["--dry-run"], ["--run_dir=run"]])
def test_a_too_large_model_is_refused_before_it_is_built(fit, workplace, options, monkeypatch):
    def build(task, spec):
        raise AssertionError("nothing is built")

    monkeypatch.setattr(base_module.Task, "build", build)
    result = fit(*options, "--model.encoder.hidden_channels=4000000", status=2)
    assert "available on cpu" in result.err and " parameters (weights, gradients and Adam's" in result.err
    assert result.err.splitlines()[-1] == SMALLER_MODEL and len(result.err.splitlines()) <= 6
    assert "batch" not in result.err and not list(workplace.iterdir())


def test_an_encoder_that_fails_on_the_meta_device_is_built(fit, monkeypatch):
    """An encoder that computes with its weights in `__init__` cannot be made on the meta device."""
    drawn, on_meta = torch.nn.Linear.reset_parameters, []

    def looking(self):
        drawn(self)
        on_meta.append(self.weight.is_meta)
        float(self.weight.detach().sum())  # fails on the meta device

    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", looking)
    assert "peak memory" in shown(dry(fit))
    assert on_meta[0] and not on_meta[-1]


@pytest.mark.parametrize("where", ["building", "moments", "weights"])
def test_running_out_of_memory_for_weights_does_not_blame_the_batch(fit, monkeypatch, where):
    def run_out(*_, **__):
        torch.empty(1 << 60, dtype=torch.uint8)

    options = []
    if where == "building":
        monkeypatch.setattr(base_module.Task, "build", run_out)
    elif where == "moments":
        # The function must seem to be in the module that allocates the moments.
        ours = FunctionType(run_out.__code__, vars(sys.modules["torch.optim.adam"]))
        monkeypatch.setattr(torch.optim.Adam, "_init_group", ours)
    else:
        options = ["--trainer.callbacks+=helpers.own.RunOut", "--trainer.callbacks.step=1"]
        monkeypatch.setattr(room_module, "available_bytes", lambda device: 1000)
    result = dry(fit, *options, status=1)
    assert "out of memory" in result.err and SMALLER_MODEL in result.err
    assert "batch" not in result.err and len(result.err.splitlines()) <= 6


@pytest.mark.parametrize("least", ["epochs=500", "steps=5000"])
def test_a_minimum_length_does_not_lengthen_the_dry_run(fit, least):
    result = dry(fit, f"--trainer.min_{least}", epochs=1000)
    assert int(shown(result)["a step"].rpartition(" ")[2]) < 20


@pytest.mark.parametrize("no_step", ["--trainer.limit_train_batches=0", "--trainer.max_steps=0"])
def test_no_step_to_time_is_refused(fit, workplace, no_step):
    result = dry(fit, no_step, status=2)
    assert "no step to time" in result.err and "Give a larger" in result.err
    assert len(result.err.splitlines()) <= 6 and not list(workplace.glob("runs*"))


def test_a_finished_run_has_no_step_to_time(fit, cli):
    fit("--run_dir=run", epochs=2)
    result = cli("fit", "--ckpt_path", "run", "--dry-run")
    assert result.status == 2 and "no step to time: training already ends at epoch 2" in result.err


def test_a_resumed_run_says_what_is_left(fit, cli, workplace):
    fit("--run_dir=run", epochs=1)
    before = sorted(workplace.rglob("*"))
    for options, left in {
        ("--trainer.max_epochs=2",): "1 epoch",
        ("--trainer.max_epochs=5",): "4 epochs",
        ("--trainer.max_epochs=-1", "--trainer.max_steps=10"): "6 steps",
    }.items():
        result = cli("fit", "--ckpt_path", "run", "--dry-run", *options)
        found = shown(result)
        assert result.status == 0, result.err
        assert f" for {left} and the test" in found["still to go"] and "the whole run" not in found
        assert "validation" in found
    assert sorted(workplace.rglob("*")) == before


def test_a_run_stopped_within_an_epoch_says_the_steps_left(fit, cli):
    stop = [f"--trainer.callbacks.{name}={value}" for name, value in {"epoch": 1, "batch": 1}.items()]
    fit("--run_dir=run", "--trainer.callbacks+=helpers.own.SendSignal", *stop, epochs=3, status=143)
    result = cli("fit", "--ckpt_path", "run", "--dry-run", "--trust")
    assert result.status == 0, result.err
    found = shown(result)
    per_epoch = int(found["training, an epoch"].split(" in ")[1].split()[0])
    assert f" for {2 * per_epoch - 2} steps and the test" in found["still to go"], found


def test_max_time_limits_the_estimate(fit, cli):
    limit = "--trainer.max_time=00:01:00:00"
    found = shown(dry(fit, limit, epochs=10**9))["the whole run"]
    assert found.startswith("60.0 min, when --trainer.max_time ends it (without it ")
    assert "for 1,000,000,000 epochs)" in found
    assert shown(dry(fit, limit, epochs=-1))["the whole run"].startswith("60.0 min, when --trainer.max_time")
    assert "max_time" not in shown(dry(fit, limit))["the whole run"]


@pytest.mark.parametrize(
    "callback", ["LearningRateMonitor", "DeviceStatsMonitor", "TQDMProgressBar", "RichProgressBar"]
)
def test_callbacks_that_need_a_logger_or_a_bar_are_left_out(fit, callback):
    assert "peak memory" in shown(dry(fit, f"--trainer.callbacks+={callback}"))


@pytest.mark.parametrize("interval", ["00:00:01:00", "{minutes: 1}", "00:00:00:00"])
def test_validations_at_intervals_of_time_are_counted(fit, interval, monkeypatch):
    every = [f"--trainer.val_check_interval={interval}", "--trainer.check_val_every_n_epoch=null"]
    ticks = iter(range(10**6))
    monkeypatch.setattr(dry_run.time, "perf_counter", lambda: float(next(ticks)))
    found = shown(dry(fit, *every, epochs=10))
    step = float(found["a step"].split(" s")[0])
    often = step if interval == "00:00:00:00" else 60
    steps = 10 * int(found["training, an epoch"].split(" in ")[1].split()[0])
    once = float(found["validation"].split(" ")[0])
    validations = steps * step // often
    tested = once  # as long as a validation of the whole graph
    assert found["the whole run"].startswith(duration(steps * step + validations * once + tested))


def test_a_wrong_time_is_refused(fit):
    assert "is not a time" in dry(fit, "--trainer.val_check_interval=soon", status=2).err


@pytest.mark.parametrize("command", ["reproduce", "search"])
@pytest.mark.parametrize("flag", ["--dry-run", "--dry_run"])
def test_commands_of_many_runs_refer_to_the_dry_run_of_fit(cli, workplace, command, flag):
    result = cli(command, "knowformer", "umls", flag)
    assert result.status == 2 and "graphzoo fit --dry-run" in result.err
    assert len(result.err.splitlines()) <= 6 and not list(workplace.iterdir())


@pytest.mark.parametrize("command", ["test", "validate"])
def test_other_commands_refuse_a_dry_run(cli, command):
    result = cli(command, "--model=knowformer", "--data=umls", "--dry-run")
    assert result.status == 2 and "--dry-run is an option of fit" in result.err


def test_quiet_prints_only_the_result(fit):
    result = fit("--run_dir=run", "--quiet", "--trainer.enable_progress_bar=true")
    assert "epoch 1/" not in result.out and "device" not in result.out and "writes run" not in result.err
    assert "mrr" in result.out.lower() and "results: run/results.json" in result.err


def test_a_run_begins_with_device_graph_model_and_training(fit):
    result = fit("--run_dir=run", "--trainer.enable_progress_bar=true")
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["device", "graph", "model", "training"]
    assert "train triples" in lines[1] and lines[4].startswith("epoch 1/")


def test_long_published_trainings_on_a_cpu_name_a_recipe_for_cpus(tmp_path, monkeypatch):
    def for_cpu(data, *options, model="knowformer", seconds=7200, device="cpu", **known):
        plan = make_plan("fit", ["--model", model, "--data", data, *options])
        return dataclasses.replace(plan, **known).for_cpu(seconds, device)

    assert for_cpu("fb15k237", "--seed=1").startswith("--recipe fb15k237-local: mrr=0.")
    assert for_cpu("fb15k237", "--data.root", "x", "--data.num_workers=2"), "the same data"
    assert not for_cpu("fb15k237", "--data.neighbourhood=500")
    assert for_cpu("wn18rr-v1").startswith("--recipe wn18rr-v1-local: "), "before wn18rr-v1-cpu"
    heart = for_cpu("citeseer-link", "--recipe=citeseer-link-heart", model="pencil")
    assert heart.startswith("--recipe citeseer-link-heart-cpu: mrr=0.")
    assert not for_cpu("fb15k237", seconds=7199) and not for_cpu("fb15k237", device="cuda")
    assert not for_cpu("umls", "--recipe", "fb15k237"), "it is for other data"
    assert not for_cpu("fb15k237", "--recipe", "fb15k237-local") and not for_cpu("yago310")
    assert not for_cpu("fb15k237", "--trainer.max_time", "00:05:00:00"), "cut by its user"
    assert not for_cpu("fb15k237", checkpoint=tmp_path) and not for_cpu("fb15k237", weights="w")
    own = tmp_path / "recipe" / "knowformer" / "umls-local.yaml"
    own.parent.mkdir(parents=True)
    monkeypatch.setenv("GRAPHZOO_CONFIGS", str(tmp_path))
    for measured, is_named in (("not tested yet", False), ("mrr=0.9 [a] [/b]", True)):
        own.write_text(f"# data: umls\n# measured: {measured}\nmodel: {{}}\n")
        assert bool(for_cpu("umls")) == is_named


@pytest.mark.parametrize(
    ("options", "hours", "shown"),
    [
        ((), (3, 1, 1), "--trainer.max_time 00:02:00:00 ends the training after two hours"),
        ((), (1, 40, 20), "--data.test_both false tests under one protocol only, in about 2.0 h"),
        (("--data.test_both=true",), (1, 40, 20), "--no-test ends the run with the training"),
        ((), (1, 40, 1), "--no-test ends the run with the training"),
        ((), (50, 40, 20), "--trainer.max_time"),
        (("--trainer.max_epochs=9",), (3, 1, 1), None),
        ((), (1.9, 1.9, 20), None),
    ],
)  # fmt: skip
def test_a_setting_that_shortens_what_takes_longest_is_named(options, hours, shown):
    plan = make_plan("fit", ["--model=knowformer", "--data=kg", "--data.path=x", *options])
    training, test, cost = hours
    line = plan.shorter(training * 3600.0, test * 3600.0, cost, "cpu")
    assert line is None if shown is None else line[1].startswith(shown)
    assert plan.shorter(9e9, 0, 1, "cuda") is None and plan.shorter(0, 9e9, 1, "cuda")
    published = make_plan("fit", ["--model=knowformer", "--data=fb15k237"])
    assert published.shorter(9e9, 0, 1, "cpu")[0] == "for a CPU"


def test_a_run_and_a_dry_run_print_the_recipe_for_cpus(fit, monkeypatch):
    monkeypatch.setattr(Plan, "for_cpu", lambda plan, seconds, device: f"[/b] {plan.command} {device}")
    monkeypatch.setattr(run_length, "_TIMED", 0.0)
    monkeypatch.setattr(RunSummary, "_remaining", lambda *_: "about a day")
    assert shown(dry(fit))["for a CPU"] == "[/b] fit cpu"
    lines = fit("--trainer.enable_progress_bar=true").out.splitlines()
    printed = [line for line in lines if line.startswith(("still to go", "for a CPU"))]
    assert printed == ["still to go about a day", "for a CPU   [/b] fit cpu"]


def test_formats_of_times_and_sizes():
    assert [duration(s) for s in (0.2345, 75, 119, 120, 7200, 90_000, 200_000)] == [
        "0.234 s", "75 s", "119 s", "2.0 min", "2.0 h", "25.0 h", "2.3 d",
    ]  # fmt: skip
    assert [size(n) for n in (0, 2**20 * 3, 2**30 * 5.4)] == ["0 MiB", "3 MiB", "5.4 GiB"]


@pytest.mark.parametrize(
    "batches, parts, max_epochs, max_steps, line",
    [
        (20, 1, 3, -1, "20 steps an epoch, at most 3 epochs"),
        (4, 4, 1, -1, "1 step an epoch, each in 4 parts, at most 1 epoch"),
        (20, 1, -1, 5, "20 steps an epoch, at most 5 steps"),
        (20, 1, 3, 5, "20 steps an epoch, at most 3 epochs or 5 steps"),
        (float("inf"), 1, 3, -1, "epochs of unknown length, at most 3 epochs"),
        (
            float("inf"),
            2,
            -1,
            -1,
            "epochs of unknown length, each step in 2 parts, "
            "without an end: set --trainer.max_epochs or --trainer.max_time",
        ),
    ],
)
def test_the_line_of_training(capsys, batches, parts, max_epochs, max_steps, line):
    graph = SimpleNamespace(describe_graph=lambda: {"entities": 1200, "valid triples": 1})
    trainer = SimpleNamespace(
        datamodule=graph, world_size=1, strategy=SimpleNamespace(root_device="cpu"), precision="32-true",
        num_training_batches=batches, accumulate_grad_batches=parts, max_epochs=max_epochs,
        max_steps=max_steps, callbacks=[], early_stopping_callbacks=[],
    )  # fmt: skip
    model = torch.nn.Linear(2, 1)
    assert dict(describe_run(trainer, model))["training"] == line
    assert dict(describe_run(trainer, model))["graph"] == "1,200 entities, 1 valid triple"
    RunSummary().on_train_start(trainer, model)
    assert capsys.readouterr().out.splitlines()[-1] == f"training    {line}"


def test_counts_of_one_are_singular(fit):
    # Not limit_val_batches=1, which jsonargparse reads as int or float depending on earlier calls.
    found = shown(dry(fit, "--data.eval_batch_size=1000", "--trainer.limit_train_batches=2", epochs=1))
    assert found["validation"].endswith(" in 1 batch") and " for 1 epoch and" in found["the whole run"]
    half = shown(dry(fit, "--trainer.max_steps=1"))
    assert " for 1 step and the test" in half["the whole run"] and "median" not in half["a step"]
    assert counted(1000, "epoch") == "1,000 epochs"


def test_own_triples_show_the_time_of_the_whole_run(cli, tiny_kg):
    """The number of epochs follows from the size of the graph, also in a dry run."""
    done = cli(
        "fit", "--dry-run", "--model", "knowformer", "--data", "kg", "--data.path", tiny_kg,
        "--model.encoder.hidden_channels=8", "--model.encoder.num_heads=2",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "for 20 epochs" in done.out and "without an end" not in done.out
    training = "batches of 64 queries, at most 20 epochs, ends after 4 validations without a better val/mrr"
    assert shown(done)["training"].endswith(training)


def test_a_part_of_the_triples_is_shown_and_a_given_length_has_no_early_end(fit):
    line = shown(dry(fit, "--data.batch_size=16", "--trainer.limit_train_batches=2"))["training"]
    assert line.endswith("batches of 16 queries, an epoch has 50 % of the training data, at most 3 epochs")
