"""Links judged by one and by several real processes: every figure has the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
_PROCESS = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.plugins.environments import LightningEnvironment
from link_graphs import make_link_graph
from graphzoo.datamodules import LinkDataModule
from graphzoo.encoders import GALiT, PENCIL
from graphzoo.tasks import HeuristicEstimation, LinkPrediction

world_size, kind = int(sys.argv[1]), sys.argv[2]
graph = make_link_graph(own_negatives=5 if kind == "own" else 0)
data = LinkDataModule(batch_size=64, eval_batch_size=7, depth=1, num_neighbors=12, max_nodes=26)
data._load = lambda download: graph
small = dict(hidden_channels=16, num_layers=1, num_heads=2, ffn_channels=16)
if kind == "rmse":
    task = HeuristicEstimation(lambda spec: PENCIL(spec, **small), heuristic="cn")
elif kind == "nodes":
    task = LinkPrediction(lambda spec: GALiT(spec, hidden_channels=8))
else:
    task = LinkPrediction(lambda spec: PENCIL(spec, **small))
seed_everything(0, verbose=False)
trainer = Trainer(
    accelerator="cpu", devices=world_size, strategy="ddp" if world_size > 1 else "auto", logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    use_distributed_sampler=False,
)
figures = trainer.validate(task, datamodule=data, verbose=False)[0]
with open(f"{sys.argv[3]}-{trainer.global_rank}", "w") as file:
    json.dump({name: float(value).hex() for name, value in figures.items()}, file)
"""


def figures(tmp_path: Path, kind: str, world_size: int) -> list[dict[str, str]]:
    """What each process logs."""
    script = tmp_path / f"{kind}.py"
    script.write_text(_PROCESS)
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    out = tmp_path / f"{kind}-{world_size}"
    command = [sys.executable, str(script), str(world_size), kind, str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(Path(f"{out}-{rank}").read_text()) for rank in range(world_size)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pool", "own", "nodes", "rmse"])
def test_two_processes_log_the_bits_of_one(tmp_path, kind):
    (alone,) = figures(tmp_path, kind, 1)
    assert ("val/rmse" if kind == "rmse" else "val/mrr") in alone
    assert figures(tmp_path, kind, 2) == [alone, alone]
