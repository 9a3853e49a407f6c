"""Wrong command lines: status 2, at most six lines, and the remedy in them."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.own import SMALL

from graphzoo.cli.options import refuse_options
from graphzoo.cli.reproduce import reproduce_parser
from graphzoo.cli.search import search_parser
from graphzoo.runs.directory import choose_run_directory
from graphzoo.training.plan import draw_seed

RUN = "fit --model knowformer --data umls --trainer smoke"

# Command line -> part of the error message.
WRONG = {
    "fti": "Did you mean: fit?",
    "--model knowformer fit": "the command comes first",
    "list dta": "Did you mean: data?",
    "download": "required: NAME",
    "doctor twice": "doctor takes no 'twice'",
    "reproduce": "needs a model and a data set",
    "search": "needs a model and a data set",
    "export": "required: RUN, --out",
    "dashboard": "required: --project",
    "download fb15k": "Did you mean: fb15k237",
    "download kg": "your own files",
    "download nodes": "your own files",
    "download umls links": "your own files",
    "fit --model galit --data nodes": "--data.path",
    "fit --model galit --data coar": "Did you mean: cora",
    "fit --model galit --data umls": "Models for it: knowformer",
    "reproduce galit cora --splits a": "--splits takes numbers",
    "reproduce knowformer": "needs a model and a data set",
    "reproduce knowformer umls --output-dir x": "Did you mean: --out?",
    "reproduce knowformer umls --splits 0-3": "umls has one split: leave --splits 0-3 out",
    "reproduce knowformer umls --seeds 0 --in-process --model.lrr=1": "Did you mean: --model.lr?",
    "search knowformer umls --splits 0-3": "umls has one split",
    "reproduce knowformer umls --seeds a": "--seeds takes numbers",
    "reproduce knowformer umls --out broken.yaml": "--out broken.yaml is a file; give a folder",
    "search galit cora --out broken.yaml": "--out broken.yaml is a file; give a folder",
    "compare --data cora --out broken.yaml": "--out broken.yaml is a file; give a folder",
    "reproduce knowformer umls --seeds=": "--seeds takes numbers",
    "reproduce knowformer umls --in-process=1": "--in-process takes no value",
    "reproduce knowformer umls --seed 1": "reproduce sets --seed itself",
    "reproduce knowformer umls --seeds 3-1": "the range 3-1 runs backwards; write 1-3",
    "reproduce knowformer umls --trainer.fast_dev_run": "cannot use --trainer.fast_dev_run",
    "reproduce knowformer umls --trainer.fast_dev_run=true": "leaves no results",
    "reproduce knowformer umls --trainer.limit_test_batches 0": "a row needs its test",
    "reproduce knowformer umls --trainer.limit_test_batches=0.0": "a row needs its test",
    "reproduce knowformer umls --trainer.limit_test_batches=0e0": "a row needs its test",
    "reproduce knowformer umls --print_config": "cannot use --print_config",
    "reproduce knowformer umls --model.help": "cannot use --model.help",
    "reproduce knowformer umls --recipe umls-demo --seeds 0 --out broken-row": "missing or damaged",
    "reproduce knowfromer umls": "Did you mean: knowformer, knowformer-any, nodeformer?",
    "fit": "--data NAME",
    "fit --data umls": "There are: knowformer",
    "fit --model knowformer": "needs a data set",
    "fit knowformer umls": "--model knowformer --data umls",
    "fit --model knowfromer --data umls": "Did you mean: knowformer, knowformer-any, nodeformer?",
    "fit --model knowformer --data unls": "Did you mean: umls?",
    "fit --model knowformer --data kg": "--data.path",
    "fit --model knowformer --data .": "or --data nodes with --data.path .",
    "fit --model knowformer --data umls --recipe umls-dmeo": "Did you mean: umls-demo",
    "fit --model knowformer --data umls --trainer gpus": "Did you mean: gpu",
    "fit --model knowformer --data umls --logger wandbb": "Did you mean: wandb?",
    "fit --model knowformer --data umls --seed -1": "--seed",
    "fit --model knowformer --data": "--data needs a value",
    "fit --model knowformer --data umls --optimizer SGDD": "Did you mean: SGD",
    "fit --model knowformer --data umls --trainer.callbacks+=WarmupEmaAveraging": "WarmupEMAWeightAveraging",
    "fit --model knowformer --data umls --trainer.callbacks+=EMAWeightAveraging": "--trainer.callbacks=null",
    "fit --model knowformer --data umls --optimizer SGD --lr_scheduler StepRL": "Did you mean: StepLR",
    "fit --model knowformer --data umls --optimizer SGD --lr_scheduler StepLR": "needs --lr_scheduler.step",
    "fit --model knowformer --data umls --optimizer SGD --optimizer.lrr 1": "Did you mean: --optimizer.lr",
    "fit --modle knowformer --data umls": "Did you mean: --model?",
    "fit --trianer.max_epochs 3 --model knowformer --data umls": "--trainer.max_epochs",
    "fit -m knowformer -d umls": "unknown option -m; options begin with two dashes: --model",
    "fit -x": "unknown option -x; options begin with two dashes",
    f"{RUN} --epochs 3": "Did you mean: --trainer.max_epochs?",
    f"{RUN} --epocs 3": "Did you mean: --trainer.max_epochs?",
    f"{RUN} --lr 3": "Did you mean: --model.lr?",
    f"{RUN} --batch-size 3": "Did you mean: --data.batch_size?",
    f"{RUN} --hidden_channels=3": "Did you mean: --model.encoder.hidden_channels?",
    f"{RUN} --gpus 2": "Did you mean: --trainer.devices?",
    f"{RUN} --wandb": "Did you mean: --logger wandb?",
    f"{RUN} --trainer.max_epochs": "--trainer.max_epochs needs a value",
    f"{RUN} --config": "--config needs a value",
    f"{RUN} --trainer.max_epochs -1 5": "'5' belongs to no option: each option takes one value",
    f"{RUN} --model.weight_decay -0.1 --model.lr": "--model.lr needs a value",
    "fit -config=unknown_key.yaml": "options begin with two dashes: --config",
    "reproduce knowformer umls --no-test": "reproduce cannot use --no-test",
    f"{RUN} --model.lr": "--model.lr needs a value",
    f"{RUN} --data.batch_size --seed 1": "--data.batch_size needs a value",
    f"{RUN} --model.lr -1e-5": "needs an equals sign: --model.lr=-1e-5",
    f"{RUN} --data.batch_size 8 --trainer.max_epochs 4 8": "'8' belongs to no option: each option",
    f"{RUN} --trainer.max_epochs 3 --no-test true": "'true' belongs to no option",
    f"{RUN} --config unknown_key.yaml broken.yaml": "--config FILE --config FILE",
    "fit --model knowformer --data kg --data.path=a b c": 'list: --data.path "[FILE,FILE]"',
    "fit -config unknown_key.yaml": "options begin with two dashes: --config",
    f"{RUN} --device cpu": "Did you mean: --trainer.accelerator?",
    f"{RUN} --data.batch_size=": "--data.batch_size is empty: give it a value",
    "fit --model knowformer --data kg --data.path=": "--data.path is empty",
    "fit --model knowformer --data kg --data.path a.tsv,b.tsv": 'several files are a list: "[train.tsv,',
    "fit --model knowformer --data kg --data.path a.tsv b.tsv": 'list: --data.path "[FILE,FILE]"',
    "test --ckpt_path https://example.org/best.ckpt": "local files only",
    "test --ckpt_path s3://bucket/best.ckpt": "local files only",
    "test --ckpt_path best": "--run_dir",
    "test --ckpt_path nowhere/best.ckpt": "no such file",
    f"{RUN} --trainer.max_epoch 3": "Did you mean: --trainer.max_epochs",
    f"{RUN} --model.lrr 3": "Did you mean: --model.lr?",
    f"{RUN} --model.hidden_channels 3": "Did you mean: --model.encoder.hidden_channels?",
    f"{RUN} --model.encoder.hiden_channels 3": "Did you mean: --model.encoder.hidden_channels?",
    f"{RUN} --model.init_args.encoder.init_args.num_heds 3": "num_heads",
    f"{RUN} --data.batch_siz 3": "Did you mean: --data.batch_size",
    f"{RUN} --model.lr abc": "--model.lr: expected float, got 'abc'",
    f"{RUN} --data.later_neighbourhoods {{1:50}}": "'{1:50}' does not fit\nWrite a space after each colon",
    f"{RUN} --data.later_neighbourhoods={{1:50}}": "--data.later_neighbourhoods: '{1:50}' does not fit",
    f"{RUN} --model.encoder.num_layers abc": "--model.encoder.num_layers: expected int",
    f"{RUN} --model.loss foo": "'ce', 'filtered_ce', 'bce'",
    f"{RUN} --trainer.precision foo": "bf16-mixed",
    f"{RUN} --trainer.accelerator foo": "cpu",
    f"{RUN} --trainer.callbacks+=EarlyStoping": "Did you mean: EarlyStopping?",
    f"{RUN} --trainer.callbacks EarlyStoping": "Did you mean: EarlyStopping",
    f"{RUN} --trainer.callbacks+=EarlyStopping --trainer.callbacks.patence=2": "--trainer.callbacks.patience",
    f"{RUN} --trainer.logger=WandLogger": "WandbLogger",
    f"{RUN} --model.encoder graphzoo.encoders.KnowFromer": "Did you mean: KnowFormer, KnowFormerAny, Node",
    f"{RUN} --model graphzoo.Nope": "graphzoo has no 'Nope'",
    f"{RUN} --model not_installed.Nope": "not_installed",
    f"{RUN} --config nofile.yaml": "nofile.yaml",
    f"{RUN} --config broken.yaml": "broken.yaml, line 2",
    f"{RUN} --config object.yaml": "object.yaml, line 1: not valid YAML",
    f"{RUN} --config bomb.yaml": "expands to more than 100,000 values",
    f"{RUN} --config=bomb.yaml": "expands to more than 100,000 values",
    f"{RUN} -c bomb.yaml": "expands to more than 100,000 values",
    f"{RUN} -c=bomb.yaml": "expands to more than 100,000 values",
    f"{RUN} --config doubling.yaml": "may expand to thousands of times their length",
    f"{RUN} --config deep.yaml": "nested more than 100 deep",
    f"{RUN} --config itself.yaml": "an anchor contains itself",
    f"{RUN} --config unknown_key.yaml": "Did you mean: model?",
    f"{RUN} --model.lr ${{model.init_args.nope}}": "nope",
    # Values of the right type that the classes refuse.
    f"{RUN} --model.encoder.hidden_channels 0": "hidden_channels",
    f"{RUN} --model.lr=-1": "lr must be above 0",
    f"{RUN} --data.batch_size 0": "batch_size must be at least 1",
    f"{RUN} --trainer.devices 0": "devices",
    f"{RUN} --trainer.check_val_every_n_epoch 0": "check_val_every_n_epoch must be at least 1",
    "fit --model knowformer --data umls --data.neighbourhood many": (
        "--data.neighbourhood: expected int or one of 'auto', got 'many'"
    ),
    f"{RUN} --model.lr null": "--model.lr: expected float, got null",
    f"{RUN} --data.batch_size null": "--data.batch_size: expected int, got null",
    f"{RUN} --model.encoder.num_layers null": "--model.encoder.num_layers: expected int",
    f"{RUN} --trainer.accumulate_grad_batches 0": "accumulate_grad_batches must be at least 1",
    "fit --model knowformer --data kg --data.path nowhere": "nowhere",
    "fit --model knowformer --data wn18rr --data.root nowhere --data.download=false": "put it at",
    "fit --model knowformer --data umls --run_dir occupied": "never overwritten",
    "fit --model knowformer --data umls --run_dir foreign": "it holds notes.txt",
    "fit --model knowformer --data umls --run_dir .": "is not a run directory",
    "fit --model knowformer --data umls --run_dir broken.yaml": "is a file",
    "test --data umls --ckpt_path truncated.ckpt": "damaged",
    "test --data umls --model knowformer --ckpt_path empty.ckpt": "(0 bytes)",
    "test --ckpt_path empty.ckpt": "Add --data NAME",
}


# Faults in docs/reliability.md; other command lines are variants of these.
FAULTS = {
    "fti": ("a command that does not exist", "refused with the nearest command"),
    "fit --model galit --data umls": (
        "a model that does not suit the task of the data",
        "refused with the models that do",
    ),
    "fit --model knowfromer --data umls": (
        "an unknown model, data set or recipe",
        "refused with the nearest names",
    ),
    "test --ckpt_path https://example.org/best.ckpt": (
        "a URL in place of a checkpoint",
        "refused; only local files are read",
    ),
    f"{RUN} --trainer.max_epoch 3": (
        "an option that does not exist",
        "refused with the nearest option; abbreviations are not accepted",
    ),
    f"{RUN} --model.lr abc": ("a value of the wrong type", "refused with option, expected type and value"),
    f"{RUN} --model.lr=-1": ("a value out of range", "refused with option and range"),
    f"{RUN} --model.encoder graphzoo.encoders.KnowFromer": (
        "a class path that does not exist",
        "refused with the nearest class",
    ),
    f"{RUN} --config broken.yaml": ("a configuration that is not YAML", "refused with file and line"),
    f"{RUN} --config object.yaml": ("YAML with a python/object tag", "refused with its line; no code runs"),
    f"{RUN} --config bomb.yaml": ("YAML whose anchors expand to a thousand million values", "refused"),
    f"{RUN} --config doubling.yaml": (
        "YAML whose `${...}` references double the text in every line",
        "refused",
    ),
    f"{RUN} --config deep.yaml": (
        "YAML with five thousand levels",
        "refused at once, without a recursion error",
    ),
    f"{RUN} --config itself.yaml": ("YAML with an anchor that contains itself", "refused"),
    f"{RUN} --model.lr ${{model.init_args.nope}}": (
        "an interpolation of an unknown key",
        "refused with the key",
    ),
    "fit --model knowformer --data wn18rr --data.root nowhere --data.download=false": (
        "missing data that must not be downloaded",
        "the message has the address, the place of the file and the remedy",
    ),
    "fit --model knowformer --data umls --run_dir occupied": (
        "the run directory holds another run",
        "refused; a run is never overwritten",
    ),
    "fit --model knowformer --data umls --run_dir foreign": (
        "the run directory holds other files",
        "refused with the name of the first file",
    ),
    "test --data umls --model knowformer --ckpt_path empty.ckpt": (
        "an empty checkpoint",
        "refused; the message says that the file is empty",
    ),
}


def short(line):
    """The wrong part of a command line."""
    for usual in (RUN, "fit --model knowformer --data umls", "fit --model knowformer"):
        if line.startswith(f"{usual} "):
            return line.removeprefix(f"{usual} ")
    return line


LINES = [
    pytest.param(line, id=short(line), marks=[pytest.mark.fault(*FAULTS[line])] if line in FAULTS else [])
    for line in WRONG
]


@pytest.fixture
def files(workplace):
    (workplace / "broken.yaml").write_text("model: [1,\n")
    (workplace / "object.yaml").write_text("trainer: !!python/object/apply:os.mkdir ['runs']\n")
    anchors = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    (workplace / "bomb.yaml").write_text("\n".join(["a0: &a0 [x]", *anchors]) + "\n")
    doubled = [f"  a{i}: ${{.a{i - 1}}}${{.a{i - 1}}}" for i in range(1, 30)]
    (workplace / "doubling.yaml").write_text("\n".join(["trainer:", "  a0: x", *doubled]) + "\n")
    (workplace / "deep.yaml").write_text("trainer: " + "[" * 5000 + "\n")
    (workplace / "itself.yaml").write_text("trainer: &a\n  callbacks: [*a]\n")
    (workplace / "unknown_key.yaml").write_text("modle:\n  x: 1\n")
    (workplace / "truncated.ckpt").write_bytes(b"PK\x03\x04 and no more")
    (workplace / "empty.ckpt").touch()
    (workplace / "occupied").mkdir()
    (workplace / "occupied" / "config.yaml").write_text("# graphzoo 0.1.0\n")
    (workplace / "broken-row/seed-0").mkdir(parents=True)
    (workplace / "broken-row/seed-0/results.json").write_text("{")
    (workplace / "foreign").mkdir()
    (workplace / "foreign" / "notes.txt").touch()


IN_A_FILE = {
    "seed_everything: three": "mine.yaml: seed_everything: 'three' does not fit\nExpected bool or int",
    "model: {lr: fast}": "mine.yaml: model.lr: expected float, got 'fast'",
    "model: {init_args: {lr: fast}}": "mine.yaml: model.lr: expected float, got 'fast'",
    "trainer: {accelerator: [1]}": "mine.yaml: trainer.accelerator: '[1]' does not fit",
    "model: {encoder: {num_layer: 3}}": (
        "mine.yaml: unknown setting model.encoder.num_layer\nDid you mean: model.encoder.num_layers, "
        "model.encoder.num_value_layers, model.encoder.num_query_layers?\n"
    ),
    "trainer: {max_epoch: 8}": (
        "mine.yaml: unknown setting trainer.max_epoch\nDid you mean: trainer.max_epochs, "
        "trainer.min_epochs, trainer.max_steps?\n"
    ),
    "model: {encoder: {class_path: graphzoo.encoders.KnowFomer}}": (
        "mine.yaml: model.encoder.class_path: 'graphzoo.encoders.KnowFomer' does not fit\n"
        "graphzoo.encoders has no 'KnowFomer'. Did you mean: KnowFormer"
    ),
    "trainer: {callbacks: [{class_path: lightning.pytorch.callbacks.Timer, init_args: {verbose: many}}]}": (
        "mine.yaml: trainer.callbacks.verbose: expected bool, got 'many'"
    ),
    "trainer: {callbacks: [{class_path: graphzoo.callbacks.BestChekpoint}]}": (
        "mine.yaml: trainer.callbacks: 'graphzoo.callbacks.BestChekpoint' does not fit\n"
        "graphzoo.callbacks has no 'BestChekpoint'. Did you mean: BestCheckpoint"
    ),
    "trainer: {callbacks: [{class_path: Timer}, {class_path: EarlyStoping}]}": (
        "mine.yaml: trainer.callbacks: 'EarlyStoping' does not fit\nDid you mean: EarlyStopping"
    ),
    "trainer: {callbacks: [Timer, EarlyStoping]}": (
        "mine.yaml: trainer.callbacks: 'EarlyStoping' does not fit\nDid you mean: EarlyStopping"
    ),
    "trainer: {callbacks: [{class_path: Timer, init_args: {patience: 1}}, {class_path: EarlyStopping}]}": (
        "mine.yaml: unknown setting trainer.callbacks.patience\n--help-all lists all options"
    ),
    "trainer: {callbacks: EarlyStopping}": (
        "mine.yaml: trainer.callbacks: 'EarlyStopping' does not fit\nIt needs trainer.callbacks.monitor"
    ),
    "trainer: {callbacks: [{class_path: EarlyStopping, init_args: 3}]}": (
        "mine.yaml: trainer.callbacks: 'EarlyStopping' does not fit\nIt needs trainer.callbacks.monitor"
    ),
    "trainer: {callbacks: [{class_path: torch.optim.Adam}]}": (
        "mine.yaml: trainer.callbacks: 'torch.optim.Adam' does not fit\nExpected Callback"
    ),
    "optimizer: {class_path: torch.optim.lr_scheduler.StepLR}": (
        "mine.yaml: optimizer: 'torch.optim.lr_scheduler.StepLR' does not fit\nExpected Optimizer"
    ),
    "trainer: {callbacks: [{class_path: EarlyStopping, monitor: val/mrr}]}": (
        "mine.yaml: trainer.callbacks.class_path does not fit: arguments of a class belong under init_args"
    ),
    "lr_schedular: {class_path: StepLR}": (
        "mine.yaml: unknown setting lr_schedular\nDid you mean: lr_scheduler"
    ),
    "trainer: {callbacks: [{class_path: EarlyStopping}]}": (
        "mine.yaml: trainer.callbacks: 'EarlyStopping' does not fit\nIt needs trainer.callbacks.monitor"
    ),
    "trainer: {callbacks: [{class_path: Timer}, {class_path: EarlyStopping, init_args: {monitr: x}}]}": (
        "mine.yaml: unknown setting trainer.callbacks.monitr\nDid you mean: trainer.callbacks.monitor"
    ),
    "optimizer: {class_path: torch.optim.Adam, init_args: {weight_deca: 0.1}}": (
        "mine.yaml: unknown setting optimizer.weight_deca\nDid you mean: optimizer.weight_decay"
    ),
    "seed: 3": "mine.yaml: unknown setting seed\nDid you mean: seed_everything, model.seed, data.seed",
    "data: {later_neighbourhoods: {3: a}}": "mine.yaml: data.later_neighbourhoods: expected int, got 'a'",
    "optimizer: Adm": "mine.yaml: optimizer: 'Adm' does not fit\nDid you mean: Adam",
    "model: gcn": "mine.yaml: model: 'gcn' does not fit\nExpected LightningModule",
    "model: {init_args: 3}": "mine.yaml: model: \"{'init_args': 3}\" does not fit",
    "model: {encoder: 5}": "mine.yaml: model.encoder: expected import path or a subclass spec, but got 5",
    "model: {encoder: [a, b]}": "mine.yaml: model.encoder: expected import path or a subclass spec",
    "model: {encoder: {class_path: 7}}": "mine.yaml: model.encoder: \"{'class_path': 7}\" does not fit\nGive",
}


@pytest.mark.parametrize("content", IN_A_FILE)
def test_a_wrong_setting_in_a_file_is_refused(cli, workplace, content):
    """The message has file, full name and value of the setting."""
    (workplace / "mine.yaml").write_text(content + "\n")
    line = RUN.split() + ["--config", "mine.yaml"]
    result = cli(*line)
    assert result.status == 2 and f"graphzoo: {IN_A_FILE[content]}" in result.err, result.err


TWICE = {  # the same key with a right and a wrong value
    "--config wrong.yaml --config right.yaml": "wrong.yaml: model.lr: expected float, got 'fast'",
    "--config wrong.yaml --model.lr 0.1": "wrong.yaml: model.lr: expected float, got 'fast'",
    "--config wrong.yaml --optimizer Adam --optimizer.lr 0.1": "wrong.yaml: model.lr: expected float",
    "--config both.yaml": "both.yaml: model.lr: expected float, got 'fast'",
    "--config right.yaml --model.lr fast": "--model.lr: expected float, got 'fast'",
    # Also in presets that are found by name.
    "--optimizer {class_path:torch.optim.Adam,init_args:{lr:fast}}": "lr: 'fast' does not fit",
    "--model.encoder {class_path:graphzoo.encoders.KnowFormer,init_args:{num_layers:many}}": (
        "num_layers: expected int, got 'many'"
    ),
    "--config right.yaml --model.encoder.class_path=graphzoo.encoders.Nobody": (
        "--model.encoder.class_path: 'graphzoo.encoders.Nobody' does not fit"
    ),
}


@pytest.mark.parametrize("words", TWICE)
def test_a_wrong_value_in_one_of_two_places_is_named_with_its_place(cli, workplace, words):
    (workplace / "wrong.yaml").write_text("model: {lr: fast}\n")
    encoder = "{class_path: graphzoo.encoders.KnowFormer}"
    (workplace / "right.yaml").write_text(f"model: {{lr: 0.1, encoder: {encoder}}}\n")
    optimizer = "{class_path: torch.optim.Adam, init_args: {lr: 0.1}}"
    (workplace / "both.yaml").write_text(f"optimizer: {optimizer}\nmodel: {{lr: fast}}\n")
    result = cli(*RUN.split(), *(word.replace(":", ": ") if "{" in word else word for word in words.split()))
    assert result.status == 2 and f"graphzoo: {TWICE[words]}" in result.err, result.err


@pytest.mark.parametrize("line", LINES)
def test_wrong_command_lines_are_refused(cli, files, line, workplace):
    result = cli(*line.split())
    lines = result.err.splitlines()
    assert result.status == 2, result.err
    assert 1 <= len(lines) <= 6, result.err
    assert WRONG[line] in result.err
    assert "Traceback" not in result.err
    assert not (workplace / "runs").exists(), "a run that never began leaves nothing behind"


@pytest.mark.fault(
    "a wrong option, in a folder with the user's files", "no file of the user is removed or overwritten"
)
@pytest.mark.parametrize(
    "more",
    ["--model.lrr=1", "--model.lr=-1", "--run_dir=kept --model.lr=-1", "--run_dir=.", "--run_dir=kept"],
)
@pytest.mark.parametrize("child", [False, True])
def test_errors_remove_no_files_of_the_user(cli, workplace, monkeypatch, more, child):
    for folder in (workplace, workplace / "kept"):
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text("mine: 1\n")
        (folder / "notes.txt").write_text("mine\n")
    if child:  # like Lightning's further processes
        monkeypatch.setenv("LOCAL_RANK", "1")
        monkeypatch.setenv("GRAPHZOO_RUN_DIR", str(workplace / "kept"))
        more += " --model.lr=-1"
    assert cli(*RUN.split(), *more.split()).status == 2
    for folder in (workplace, workplace / "kept"):
        assert (folder / "config.yaml").read_text() == "mine: 1\n"
        assert (folder / "notes.txt").exists()


def test_a_run_that_fails_before_training_removes_only_its_file(fit):
    Path("run/wandb").mkdir(parents=True)
    Path("run/wandb/mine.txt").touch()
    broken = ["--trainer.callbacks+=helpers.own.BreakBegin", "--run_dir=run"]
    fit(*broken, status=1)
    assert [path.name for path in Path("run").iterdir()] == ["wandb"] and Path("run/wandb/mine.txt").exists()
    fit(*broken[:1], "--run_dir=new", status=1)
    assert not Path("new").exists()


@pytest.mark.fault("a run fails before training starts", "it removes its own files and folders only")
def test_a_run_that_fails_before_training_removes_the_folders_that_it_made(fit):
    broken = "--trainer.callbacks+=helpers.own.BreakBegin"
    fit(broken, status=1)
    assert not Path("runs").exists()
    Path("runs/knowformer-kg").mkdir(parents=True)
    fit(broken, status=1)
    assert Path("runs/knowformer-kg").exists(), "an empty folder of the user stays"
    Path("runs/knowformer-kg").rmdir()
    Path("runs/notes.txt").touch()
    fit(broken, status=1)
    assert [path.name for path in Path("runs").iterdir()] == ["notes.txt"]
    fit(broken, "--run_dir=one/two/run", status=1)
    assert not Path("one").exists()


@pytest.mark.fault(
    "--debug with a wrong argument, setting, file or name", "the same short message as without --debug"
)
@pytest.mark.parametrize(
    "line",
    [
        "fti",
        "doctor x",
        "clean x",
        "list x",
        "download x",
        "completion x",
        "results x",
        "plot x",
        "dashboard x",
        "export x",
        "predict --x",
        "predict --ckpt_path=x",
        "reproduce knowformer x",
        "reproduce knowformer umls --seeds 0 --in-process --model.lrr=1",
        "search galit x",
        "fit x",
        "validate --x",
        "test --data x",
        f"{RUN} --model.lrr=1",
        "fit --model knowformer --data kg --data.path nowhere --run_dir run",
    ],
)
def test_debug_does_not_change_messages_about_wrong_commands(cli, line):
    words = line.split()
    without = cli(*words)
    assert without.status == 2 and "Traceback" not in without.err, without.err
    for place in (0, 1, len(words)):
        with_it = cli(*words[:place], "--debug", *words[place:])
        assert (with_it.status, with_it.err) == (2, without.err)


def test_debug_shows_the_traceback(fit):
    """For an error of a class about its arguments, the traceback shows its place."""
    with pytest.raises(ValueError, match="size must be odd, got 2") as caught:
        fit("--trainer.callbacks+=helpers.own.Picky", "--trainer.callbacks.size=2", "--debug")
    assert len(caught.traceback) > 3


def test_debug_shows_the_traceback_of_other_errors(fit):
    with pytest.raises(TypeError, match="broken on purpose") as caught:
        fit(
            "--trainer.callbacks+=helpers.own.BreakStep",
            "--trainer.callbacks.kind=TypeError",
            "--debug",
        )
    assert len(caught.traceback) > 3


def test_debug_continues_the_same_row(cli, tiny_kg):
    """It is not a setting: the command with it continues the same row."""
    command = ["reproduce", "knowformer", "kg", f"--data.path={tiny_kg}", *SMALL, "--trainer.max_epochs=1"]
    command += ["--seeds=0", "--in-process"]
    assert cli(*command).status == 0
    again = cli(*command, "--debug")
    assert again.status == 0 and "finished before" in again.err, again.err


def test_a_failed_run_is_status_1_with_the_step_and_the_layer(fit):
    result = fit("--trainer.callbacks+=helpers.own.BreakLoss", "--trainer.callbacks.step=5", status=1)
    assert "the loss is nan" in result.err and "step 5" in result.err
    assert "the weights of encoder." in result.err
    assert "best.ckpt" in result.err and "last.ckpt" in result.err, (
        "the checkpoints of the first epoch are good"
    )
    assert len(result.err.splitlines()) <= 6


def test_nan_scores_are_status_1_with_the_good_checkpoints(fit):
    callbacks = "=null", "+=helpers.own.BreakScores", ".epoch=1"
    result = fit(*(f"--trainer.callbacks{words}" for words in callbacks), status=1)
    assert "scores after step" in result.err and "last.ckpt" in result.err, result.err
    assert len(result.err.splitlines()) <= 6


@pytest.mark.fault(
    "a callback of the user raises an error in training",
    "status 1 and the error in one line; --debug shows the traceback",
)
@pytest.mark.parametrize("kind", ["ValueError", "FileNotFoundError", "TypeError"])
def test_errors_during_training_are_status_1(fit, kind):
    options = ["--trainer.callbacks+=helpers.own.BreakStep", f"--trainer.callbacks.kind={kind}"]
    result = fit(*options, status=1)
    assert f"{kind}: broken on purpose" in result.err and "--debug" in result.err


OUTSIDE = {
    "torchrun": {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"},
    "slurm": {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_JOB_NAME": "train"},
}


@pytest.mark.parametrize("launcher", OUTSIDE)
def test_processes_started_from_outside_share_folder_and_seed(cli, monkeypatch, launcher):
    for name, value in OUTSIDE[launcher].items():
        monkeypatch.setenv(name, value)
    result = cli(*RUN.split())
    assert result.status == 2 and "--run_dir DIR" in result.err and len(result.err.splitlines()) <= 6
    result = cli(*RUN.split(), "--run_dir=run", "--seed=true")
    assert result.status == 2 and "--seed 1" in result.err
    Path("run").mkdir()
    Path("run/config.yaml").write_text("# graphzoo 0.1.0\n")  # the first process began earlier
    assert choose_run_directory("a", "b", wanted=Path("run")) == Path("run")
    assert not Path("runs").exists()


def test_lightnings_processes_have_folder_and_seed_of_the_first(monkeypatch):
    for name, value in {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "PL_GLOBAL_SEED": "7"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GRAPHZOO_RUN_DIR", "/first")
    assert choose_run_directory("a", "b") == Path("/first")
    assert draw_seed() == 7


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("fit --modle x", "Did you mean: --model?"),
        ("fit --no-tst", "Did you mean: --no-test, --trust?"),
        ("fit --trianer.max_epochs 3", "Did you mean: --trainer.max_epochs?"),
        ("validate --typo", "`graphzoo validate --help` shows the options."),
        ("test --foo.bar 1", "`graphzoo test --help` shows the options."),
        ("fit --model knowfromer --data umls", "Did you mean: knowformer, knowformer-any, nodeformer?"),
        ("compare --data unls", "Did you mean: umls?"),
        ("fit --model galit --data.path xyzzy", "Add --data kg (triples), "),
        ("download xyzzy", "There are: "),
        ("fit --model knowformer --data umls --recipe xyzzy", "There are: "),
        ("search xyzzy umls", "Some models: galit, "),
        ("fit --model galit --data cora --trainer xyzzy", "There are: bf16, "),
    ],
)
def test_a_wrong_name_is_an_error_of_two_lines(cli, line, remedy):
    """The message has the problem and a remedy."""
    result = cli(*line.split())
    _, second = result.err.splitlines()
    assert result.status == 2 and second.startswith(remedy), result.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("reproduce knowformer umls --seedz 1", "unknown option --seedz\nDid you mean: --seeds?"),
        ("reproduce knowformer umls --splitz=1", "unknown option --splitz\nDid you mean: --splits?"),
        ("reproduce knowformer umls --in-proces", "unknown option --in-proces\nDid you mean: --in-process?"),
        ("reproduce knowformer umls --no-tes", "unknown option --no-tes\nSee graphzoo reproduce --help"),
        ("reproduce knowformer umls --modl x", "unknown option --modl\nSee graphzoo reproduce --help"),
        (
            "reproduce knowformer umls --epocs 3",
            "unknown option --epocs\nDid you mean: --trainer.max_epochs?",
        ),
        (
            "reproduce knowformer umls --epochs 3",
            "unknown option --epochs\nDid you mean: --trainer.max_epochs?",
        ),
        ("reproduce knowformer umls --run-dir x", "reproduce sets --run_dir itself; leave --run-dir out"),
        ("reproduce knowformer umls --ckpt x", "reproduce sets --ckpt_path itself; leave --ckpt out"),
        ("reproduce --all rows.txt --in-proces", "unknown option --in-proces\nDid you mean: --in-process?"),
        ("reproduce --all rows.txt", "rows.txt, line 1: unknown option --seedz\nDid you mean: --seeds?"),
        ("search galit cora --trialz 3", "unknown option --trialz\nDid you mean: --trials?"),
        ("search galit cora --minuts 3", "unknown option --minuts\nDid you mean: --minutes?"),
        ("search galit cora --no-tst", "unknown option --no-tst\nDid you mean: --no-test, --trust?"),
        (
            "compare --data umls --trainer.max_time 00:00:05:00",
            "compare sets --trainer.max_time of each run itself\n"
            "Give the time for all runs together: --minutes",
        ),
        ("compare --data umls --minuts 3", "unknown option --minuts\nDid you mean: --minutes?"),
        ("compare --data umls --loger=csv", "unknown option --loger\nDid you mean: --logger?"),
    ],
)
def test_commands_that_pass_options_on_suggest_those_that_they_accept(cli, line, message):
    """Suggestions are their own options first, and no options of fit that they refuse."""
    Path("rows.txt").write_text("galit cora --seedz 0\n")
    result = cli(*line.split())
    assert (result.status, result.err) == (2, f"graphzoo: {message}\n")


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("--model.encoder.hiden", "--model.encoder.hidden_channels"),
        ("--model.init_args.encoder.init_args.hiden", "--model.encoder.hidden_channels"),
        ("--model.hiden", "--model.encoder.hidden_channels, --data.hide"),
        ("--data.num_layers", "--model.encoder.num_layers"),
        ("--data.batch", "--data.batch_size, --data.path"),
        ("--model.lrr", "--model.lr"),
    ],
)
def test_the_nearest_option_is_of_the_same_group(cli, option, near):
    """Else an option of another group is suggested if it has exactly this name."""
    result = cli(*RUN.split(), option, "3")
    assert (result.status, result.err) == (2, f"graphzoo: unknown option {option}\nDid you mean: {near}?\n")


def test_a_limit_of_the_test_that_is_no_number_is_left_to_fit():
    """`fit` reports a value that is not a number; an empty value is not zero."""
    refuse_options(["--trainer.limit_test_batches="], "reproduce", splits=False)
    refuse_options(["--trainer.limit_test_batches", "some"], "reproduce", splits=False)


def test_debug_is_passed_on_to_fit():
    for parser, words in ((reproduce_parser(), ["galit", "cora"]), (search_parser(), ["galit", "cora"])):
        rest = parser.read_some([*words, "--debug", "--model.lr=1"])[1]
        assert rest == ["--model.lr=1", "--debug"]
        assert parser.read_some([*words, "--model.lr=1"])[1] == ["--model.lr=1"]


_WARNS = """
import warnings
from graphzoo.cli import commands
from graphzoo.datasets.files.text import warn

def work(arguments):
    warnings.formatwarning = lambda *_: "as Lightning has it\\n"  # which a command imports late
    warn("facts.csv: 1 duplicate triple dropped")
    warnings.warn("of another library")
    return 0

commands._dispatch = work
commands.main(["list"])
warn("for a caller in Python")
"""


def test_a_warning_about_data_is_one_line():
    err = subprocess.run([sys.executable, "-c", _WARNS], capture_output=True, text=True, check=True).stderr
    first, *others = err.splitlines()
    assert first == "warning: facts.csv: 1 duplicate triple dropped"
    assert others == ["as Lightning has it"] * 2
