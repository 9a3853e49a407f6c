"""Metrics, report, export and notebook view of every trained model."""

import json
import math
import multiprocessing
import os
import shutil
import warnings

import pandas as pd
import pytest
import torch

import graphzoo
from graphzoo.errors import UsageError
from graphzoo.inference import forks
from graphzoo.inference.model import KGModel
from graphzoo.inference.trained import Metrics, Page, table_html


def test_metrics_of_another_step_are_not_shown(copied_run):
    """An epoch may have several validations, so the step counts."""
    file = copied_run / "checkpoints" / "best.ckpt"
    step = torch.load(file, weights_only=True)["global_step"]
    for written, there in ((step, True), (step + 1, False), (None, True)):
        results = {"metrics": {"test/mrr": 0.25}, "checkpoint_epoch": epoch_of(copied_run)}
        results |= {} if written is None else {"checkpoint_step": written}
        (copied_run / "results.json").write_text(json.dumps(results))
        assert bool(graphzoo.load(copied_run).metrics) is there


def test_metrics_of_another_checkpoint_are_not_shown(copied_run):
    results = {"metrics": {"test/mrr": 0.25, "test/hits@10": 0.5}, "checkpoint_epoch": 0}
    path = copied_run / "results.json"
    path.write_text(json.dumps({**results, "checkpoint_epoch": epoch_of(copied_run)}))
    assert graphzoo.load(copied_run).metrics == results["metrics"]
    path.write_text(json.dumps({**results, "checkpoint_epoch": 99}))
    assert graphzoo.load(copied_run).metrics == {}  # results of another checkpoint
    path.write_text("[1]")
    with pytest.raises(UsageError, match=r"results.json is damaged"):
        _ = graphzoo.load(copied_run).metrics
    assert "KGModel" in graphzoo.load(copied_run)._repr_html_()
    path.unlink()
    assert graphzoo.load(copied_run).metrics == {}


def epoch_of(run):
    return torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["epoch"]


def test_a_saved_model_is_like_an_exported_one(copied_run, tmp_path):
    results = {"metrics": {"test/mrr": 0.25, "test/auroc": None}, "checkpoint_epoch": epoch_of(copied_run)}
    (copied_run / "results.json").write_text(json.dumps(results))
    model = graphzoo.load(copied_run)
    assert math.isnan(model.metrics["test/auroc"])  # undefined, for example with a single class
    folder = model.save(tmp_path / "shared", licence="mit")
    assert "mit" in (folder / "README.md").read_text()
    shared = graphzoo.load(folder)
    query = {"head": "virus", "relation": "causes", "k": 3}
    assert shared.predict(**query).equals(model.predict(**query))
    assert shared.metrics == {"test/mrr": 0.25}
    with pytest.raises(UsageError, match="a report needs a run directory"):
        shared.report()


def test_a_changed_model_is_saved_without_metrics(copied_run, tmp_path):
    results = {"metrics": {"test/mrr": 0.25}, "checkpoint_epoch": epoch_of(copied_run)}
    (copied_run / "results.json").write_text(json.dumps(results))
    model = graphzoo.load(copied_run)
    with torch.no_grad():
        for weight in model.task.parameters():
            weight.mul_(0.5)
    shared = graphzoo.load(model.save(tmp_path / "shared"))
    query = {"head": "virus", "relation": "causes", "k": 3}
    pd.testing.assert_frame_equal(shared.predict(**query), model.predict(**query))
    assert not shared.predict(**query).equals(graphzoo.load(copied_run).predict(**query))
    assert shared.metrics == {}, "the scores were those of other weights"
    assert "Its weights were changed after the training." in (tmp_path / "shared/README.md").read_text()
    with pytest.raises(UsageError, match="is exported already\nCopy the folder"):
        shared.save(tmp_path / "again")


def test_a_model_in_another_form_is_saved_or_refused(copied_run, tmp_path):
    results = {"metrics": {"test/mrr": 0.25}, "checkpoint_epoch": epoch_of(copied_run)}
    (copied_run / "results.json").write_text(json.dumps(results))
    model = graphzoo.load(copied_run)
    model.task.double()
    model.task.encoder = torch.compile(model.task.encoder)
    assert graphzoo.load(model.save(tmp_path / "shared")).metrics == results["metrics"], "the same weights"
    model.task.more = torch.nn.Linear(2, 2)
    with pytest.raises(
        UsageError, match="other names or shapes than those of its file: more.bias\nSave them with torch.save"
    ):
        model.save(tmp_path / "again")


def test_a_model_without_a_checkpoint_cannot_be_saved(umls):
    bare = KGModel(umls.task, umls.graph)
    assert bare.metrics == {} and bare.run_dir is None
    for call in (bare.report, lambda: bare.save("folder")):
        with pytest.raises(UsageError, match="not loaded from a file|comes from no file"):
            call()


def test_a_notebook_shows_model_and_metrics(umls):
    shown = umls._repr_html_()
    assert "KnowFormer, " in shown and "knowledge-graph completion" in shown and "umls" in shown
    assert "<td" in Metrics({"test/mrr": 0.5})._repr_html_() and "0.5000" in Metrics({"a": 0.5})._repr_html_()


def test_names_in_a_table_are_escaped():
    shown = table_html("<b>", [("<script>", "a\x1b[2J&")])
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "\x1b" not in shown


def test_a_page_is_shown_in_an_iframe(tmp_path):
    page = Page(tmp_path / "report.html", '<p class="a">1 & 2</p>')
    shown = page._repr_html_()
    assert 'srcdoc="&lt;p class=&quot;a&quot;&gt;1 &amp; 2' in shown and "sandbox" in shown
    assert os.fspath(page) == str(page.path) and repr(page) == f"Page({str(page.path)!r})"


def test_a_report_is_written_and_replaced(run_with_results, tmp_path):
    model = graphzoo.load(run_with_results)
    page = model.report(models=False)
    assert page.path == run_with_results / "report.html" and page.path.read_text() == page.html
    assert "Learning curves" in page.html
    assert model.report(models=False).html  # replaces the report
    assert model.report(tmp_path / "new" / "other.html", models=False).path.is_file()
    with pytest.raises(UsageError, match="name of a report must end in .html"):
        model.report(tmp_path / "other.pdf", models=False)


@pytest.fixture(scope="module")
def run_with_results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    settings = {"max_epochs": 1, "logger": "csv", "quiet": True, "trainer.accelerator": "cpu"}
    settings |= {"model.encoder.hidden_channels": 4, "model.encoder.num_layers": 1, "data.batch_size": 16}
    triples = [(f"a{i}", relation, f"b{i}") for i in range(12) for relation in ("r", "s", "t")]
    yield graphzoo.fit("knowformer", triples, run_dir=folder / "run", **settings).run_dir
    shutil.rmtree(folder)


def _predict_in_child(model, query, queue):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = model if isinstance(model, KGModel) else graphzoo.load(model)
        answers = model.predict(**query)
        torch.ones(1 << 20).sin()  # with several threads, it would not return
        model.predict(**query)
    queue.put((answers.to_json(), torch.get_num_threads(), [str(each.message) for each in caught]))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("loads", [False, True], ids=["the same model", "one that it loads itself"])
def test_a_process_forked_after_loading_predicts_with_one_thread(copied_run, loads, monkeypatch):
    monkeypatch.setattr(forks, "_first", None)  # no test before this one loaded a model
    query = {"head": "virus", "relation": "causes", "k": 3}
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = graphzoo.load(copied_run)
        torch.ones(1 << 20).sin()  # starts threads, which a forked process does not have
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(
            target=_predict_in_child, args=(copied_run if loads else model, query, queue), daemon=True
        )
        child.start()
        answers, threads, (said,) = queue.get(timeout=60)
        assert threads == 1 and "forked after a model was loaded" in said
        assert torch.get_num_threads() == 2 and model.predict(**query).to_json() == answers
    finally:
        torch.set_num_threads(before)


def test_another_thread_may_query_another_graph(copied_run):
    model = graphzoo.load(copied_run)

    class Key:
        def __ne__(self, other):
            model._last = ("other", "made of the other graph")  # like a thread that runs at this point
            return False

    model._last = (Key(), "made of this graph")
    assert model._kept("this", lambda: "made anew") == "made of this graph"
