"""Tables that a test writes to the run directory, for every task."""

import logging

import pytest
from helpers import process_jobs
from lightning.pytorch import Trainer

from graphzoo.analysis import Evaluation
from graphzoo.callbacks import EvaluationFiles

TABLES = {
    "kg": ["relations", "ranks", "worst", "best"],
    "nodes": ["classes", "confusion", "embedding", "worst", "best"],
    "nodes-auroc": ["classes"],
    "links-pool": ["scores", "hits", "worst", "best"],
    "links-own": ["scores", "hits", "worst", "best"],
    "links-rmse": ["estimates"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    process_jobs.write_data(folder)
    return folder


def evaluate(job, data, run):
    task, datamodule = process_jobs._MAKE[job](data, 1)
    quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar")}
    trainer = Trainer(
        accelerator="cpu", callbacks=[EvaluationFiles(run)], enable_model_summary=False, **quiet
    )
    (figures,) = trainer.test(task, datamodule=datamodule, verbose=False)
    return figures, datamodule


@pytest.mark.parametrize("job", TABLES)
def test_every_task_writes_its_tables(data, tmp_path, job):
    figures, datamodule = evaluate(job, data, tmp_path / "run")
    found = Evaluation.load(tmp_path / "run" / "evaluation" / "test")
    assert found.figures == figures and found.split == "test"
    assert [table.name for table in found.tables] == TABLES[job]
    assert all(len(table.data) for table in found.tables)
    if job == "kg":
        worst = found.table("worst").data
        assert set(worst["relation"]) == {"grandparent"} and set(worst["head"].str[0]) == {"a"}
        ranks = found.table("ranks").data
        assert ranks["head"].sum() == ranks["tail"].sum() == len(datamodule.triples("test"))
        assert figures["test/head_tail_gap"] == figures["test/mrr_tail"] - figures["test/mrr_head"]
    if job == "nodes":
        cells = found.table("confusion").data
        right = cells.nodes[cells["true"] == cells["predicted"]].sum() / cells.nodes.sum()
        assert right == figures["test/acc"]
        assert len(found.table("embedding").data) == datamodule.split.test.numel()
        assert set(found.table("embedding").data["node"]) == {str(n) for n in datamodule.split.test.tolist()}
    if job.startswith("links-p"):
        curve = found.table("hits").data.set_index("k").hits
        assert curve[10] == figures["test/hits@10"]
        ends = found.table("best").data[["source", "target"]].to_numpy().tolist()
        links = [[str(end) for end in link] for link in datamodule.graph.test.positive.tolist()]
        assert all(link in links for link in ends)
    if job == "links-rmse":
        rows = found.table("estimates").data
        assert ((rows.predicted - rows.target) ** 2).mean() ** 0.5 == pytest.approx(figures["test/rmse"])


def test_tables_that_cannot_be_written_are_a_warning(data, tmp_path, caplog):
    (tmp_path / "run").write_text("a file in the place of the folder")
    with caplog.at_level(logging.WARNING):
        figures, _ = evaluate("nodes", data, tmp_path / "run")
    assert "test/acc" in figures and "were not written" in caplog.text
