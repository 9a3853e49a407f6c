"""Private names of other libraries that graphzoo uses still exist."""

import argparse
import inspect
from datetime import timedelta

import pytest
import torch
from jsonargparse import _common
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.strategies import DDPStrategy
from optuna import Study, Trial
from rich.console import Console
from torch_geometric.nn.models import Polynormer

USED = {
    "training/lightning_cli.py": [
        (LightningCLI, "_parse_ckpt_path"),
        (LightningCLI, "_add_configure_optimizers_method_to_model"),
        (LightningCLI, "_get"),
        (LightningCLI, "_parser"),
        (LightningCLI, "_instantiate_trainer"),
        (LightningCLI, "_prepare_subcommand_kwargs"),
    ],
    "training/dry_run.py": [(Trainer, "_run_sanity_check"), (_FitLoop, "_should_accumulate")],
    "callbacks/best_checkpoint.py": [(ModelCheckpoint, "_save_checkpoint")],
    "callbacks/resumed_loops.py": [
        (_FitLoop, "_iteration_based_training"),
        (_TrainingEpochLoop, "update_lr_schedulers"),
    ],
    "callbacks/training_end.py": [(_TrainingEpochLoop, "_num_ready_batches_reached")],
    "system/processes.py": [(torch.distributed.distributed_c10d, "_abort_process_group")],
    "training/unchanged.py": [(_common, "get_parsing_setting")],
    "callbacks/diagnostics.py and nan_guard.py": [(torch, "_foreach_norm")],
    "ops/eager.py": [(torch._C, "_len_torch_dispatch_stack")],
    "layers/attention.py": [(torch, "_softmax_backward_data")],
    "datasets/node/unpickle.py": [(torch._utils, "_rebuild_tensor_v2")],
}
WRITTEN = {  # attributes set by a method of the class
    "training/lightning_cli.py": [(LightningCLI, "_subcommand_parsers")],
    "training/settings.py": [(DDPStrategy, "_start_method")],
    "checkpoints/checks.py": [(LightningModule, "_trainer"), (WeightAveraging, "_average_model")],
    "callbacks/best_checkpoint.py": [(Trainer, "_checkpoint_connector")],
    "callbacks/resumed_loops.py": [(_FitLoop, "_restarting")],
    "callbacks/training_end.py": [(_FitLoop, "_can_stop_early")],
    "search/study.py": [(Study, "_storage"), (Trial, "_trial_id")],
    "system/progress.py": [(Console, "_live_stack")],
    "encoders/pyg_transformers.py": [(Polynormer, "_global")],
    "callbacks/wandb_run.py": [(WandbLogger, "_project"), (WandbLogger, "_wandb_init")],
}


@pytest.mark.parametrize(("owner", "name"), [row for rows in USED.values() for row in rows])
def test_a_private_function_exists(owner, name):
    assert callable(getattr(owner, name, None)), f"{owner.__name__}.{name} is gone: see {USED}"


@pytest.mark.parametrize(("owner", "name"), [row for rows in WRITTEN.values() for row in rows])
def test_a_private_attribute_is_set(owner, name):
    assert f"self.{name}" in inspect.getsource(owner), f"{owner.__name__}.{name} is gone: see {WRITTEN}"


def test_the_trainer_has_the_time_between_validations():
    trainer = Trainer(val_check_interval=timedelta(minutes=2), logger=False, barebones=True)
    assert trainer._val_check_time_interval == 120.0


def test_the_loop_saves_the_number_of_its_batches():
    loop = Trainer(logger=False, barebones=True).fit_loop.epoch_loop
    assert loop.on_save_checkpoint() == {"_batches_that_stepped": 0}


def test_the_launcher_of_processes_exists():
    from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

    assert callable(_SubprocessScriptLauncher.kill)


def test_a_parser_has_its_options():
    parser = argparse.ArgumentParser()
    assert "--help" in parser._option_string_actions and parser._actions[0].option_strings == ["-h", "--help"]
