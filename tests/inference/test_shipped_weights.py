"""Weights that graphzoo ships: they answer on any graph, and training can begin with them."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from lightning.pytorch import Trainer

import graphzoo
from graphzoo.catalog import weights
from graphzoo.cli import main
from graphzoo.datamodules import KGDataModule
from graphzoo.datasets import from_triples
from graphzoo.encoders import KnowFormer, KnowFormerAny
from graphzoo.errors import GraphzooDataWarning, UsageError
from graphzoo.tasks import KGCompletion

NAME = "knowformer-any"
RECORDED = {"mrr": 0.8857, "hits@10": 0.9834}


@pytest.fixture
def family(tmp_path, monkeypatch):
    """Facts with eight known grandmothers, and one whose grandchild must be inferred."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"ann{i}\tmother_of\tbob{i}\nbob{i}\tfather_of\tcleo{i}\nann{i}\tgrandmother_of\tcleo{i}\n"
        for i in range(8)
    ]
    (tmp_path / "family").mkdir()
    (tmp_path / "family" / "train.tsv").write_text(
        "".join(rows) + "dora\tmother_of\temil\nemil\tfather_of\tfay\n"
    )
    return tmp_path / "family"


def trainer(folder, **settings):
    return Trainer(
        default_root_dir=folder, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", **settings,
    )  # fmt: skip


def test_a_rule_is_found_in_own_facts(family):
    model = graphzoo.load(NAME, data=str(family))
    answers = model.predict(head="dora", relation="grandmother_of", k=3)
    assert answers["tail"][0] == "fay" and answers["score"][0] > answers["score"][1] + 0.5
    assert model.predict(tail="fay", relation="grandmother_of", k=1)["head"][0] == "dora"


def test_names_do_not_matter(family, tmp_path):
    other = tmp_path / "numbers"
    other.mkdir()
    rows = [line.split("\t") for line in (family / "train.tsv").read_text().splitlines()]
    names = {name: f"n{(7 * i) % 101}" for i, name in enumerate(sorted({n for row in rows for n in row}))}
    (other / "train.tsv").write_text("".join("\t".join(map(names.get, row)) + "\n" for row in reversed(rows)))
    scores = graphzoo.load(NAME, data=str(family)).score([("dora", "grandmother_of", "fay")])
    renamed = graphzoo.load(NAME, data=str(other)).score(
        [tuple(map(names.get, ("dora", "grandmother_of", "fay")))]
    )
    assert float(renamed[0]) == pytest.approx(float(scores[0]), abs=1e-4)


def test_a_model_answers_on_another_graph_with_other_relations(family):
    model = graphzoo.load(NAME, data="umls")
    answers = model.predict(head="dora", relation="grandmother_of", k=1, graph=str(family))
    assert answers["tail"][0] == "fay"
    paths = model.explain("dora", "grandmother_of", "fay", graph=str(family))
    assert "emil" in str(paths)
    with pytest.raises(UsageError, match="grandmother_of"):
        model.predict(head="dora", relation="grandmothr_of", k=1, graph=str(family))


def test_the_command_accepts_the_name_instead_of_a_run(family, capsys):
    (family.parent / "q.tsv").write_text("head\trelation\ttail\ndora\tgrandmother_of\t?\n")
    for option in ("--model", "--ckpt_path"):
        words = ["predict", option, NAME, "--data.path", "family", "--queries", "q.tsv", "--out", "a.csv"]
        assert main([*words, "--overwrite"]) == 0
        assert pd.read_csv("a.csv")["tail"][0] == "fay"
    assert main(["predict", "--queries", "q.tsv"]) == 2
    assert "either RUN" in (said := capsys.readouterr().err) and NAME in said
    assert main(["predict", "--model", NAME, "--queries", "q.tsv"]) == 2
    assert "--data.path" in capsys.readouterr().err


def test_the_weights_have_the_recorded_scores(tmp_path, monkeypatch):
    """UMLS is part of the package, and the weights were not trained on it."""
    monkeypatch.chdir(tmp_path)
    assert main(["test", "--ckpt_path", NAME, "--data", "umls", "--run_dir", "tested"]) == 0
    metrics = json.loads((tmp_path / "tested" / "results.json").read_text())["metrics"]
    assert metrics["test/mrr"] == pytest.approx(RECORDED["mrr"], abs=2e-3)
    assert metrics["test/hits@10"] == pytest.approx(RECORDED["hits@10"], abs=4e-3)


def test_the_card_has_the_kept_scores():
    root = Path(__file__).resolve().parents[2]
    with (root / "benchmarks" / "results" / "zero_shot.csv").open(encoding="utf-8") as file:
        kept = {row["data"]: row for row in csv.DictReader(file)}
    card = (root / "graphzoo" / "weights" / NAME / "README.md").read_text(encoding="utf-8")
    lines = card.partition("| graph | MRR |")[2].partition("\n\n")[0].splitlines()[2:]
    shown = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in lines}
    inductive = [row for name, row in kept.items() if re.search(r"-v\d$", name)]
    means = [f"{sum(float(row[key]) for row in inductive) / 12:.4f}" for key in ("mrr", "hits@10")]
    assert len(inductive) == 12 and shown.pop("mean of the twelve inductive graphs") == means
    anchors = {name: row for name, row in kept.items() if row["ultra_mrr"]}
    assert (
        shown == {name: [row["mrr"], row["hits@10"], row["ultra_mrr"]] for name, row in anchors.items()}
        and len(shown) == 6
    )


def test_a_damaged_file_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"not these")
    monkeypatch.setattr(weights, "_FOLDER", tmp_path)
    weights._check.cache_clear()
    with pytest.raises(UsageError, match="not the file"):
        graphzoo.load(NAME, data="umls")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="No such file"):
        graphzoo.load(NAME, data="umls")
    weights._check.cache_clear()


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    with pytest.raises(UsageError, match="holds no checkpoint: "):
        graphzoo.load(NAME, data="umls")


def test_a_training_begins_with_the_weights(family, tmp_path):
    data = KGDataModule(path=str(family))
    model = KGCompletion(KnowFormerAny, start_from=NAME)
    before = trainer(tmp_path).validate(model, data, verbose=False)[0]
    loaded = graphzoo.load(NAME, data=str(family)).task.state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())
    assert before["val/mrr"] > 0
    assert "start_from" not in model.hparams


def test_fine_tuning_is_a_run_of_its_own_that_resumes(family, capsys):
    words = ["--data", "kg", "--data.path", "family", "--recipe", "none", "--run_dir", "tuned"]
    assert main(["fit", "--ckpt_path", NAME, *words, "--trainer.max_epochs", "1"]) == 0
    first = torch.load("tuned/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    start = graphzoo.load(NAME, data=str(family)).task.state_dict()
    moved = max(
        float((first[name] - start[name]).abs().max()) for name in start if start[name].is_floating_point()
    )
    assert 0 < moved < 0.1
    assert main(["fit", "--ckpt_path", "tuned", "--trainer.max_epochs", "2"]) == 0
    assert torch.load("tuned/checkpoints/last.ckpt", weights_only=True)["epoch"] == 1
    model = graphzoo.load("tuned")
    assert model.predict(head="dora", relation="grandmother_of", k=1)["tail"][0] == "fay"
    capsys.readouterr()

    assert main(["export", "tuned", "--to", "torch.export", "--out", "program"]) == 0
    card = Path("program/README.md").read_text().split("```python\n")[1].split("```")[0]
    shown = "print(answers[0], *sorted(scores[0].tolist())[:-4:-1])"
    code = f"import sys; sys.modules['graphzoo'] = None\n{card}\n{shown}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, relation = re.findall(r"index\('(.*)'\)", card)
    answers = model.predict(head=head, relation=relation, k=3)
    first, *scores = done.stdout.split()  # the other answers may be tied
    assert first == answers["tail"][0]
    assert [*map(float, scores)] == pytest.approx(answers["score"].tolist(), abs=1e-4)


def test_the_weights_are_refused_without_data_or_for_other_tasks(capsys):
    assert main(["fit", "--ckpt_path", NAME]) == 2
    assert "--data NAME" in capsys.readouterr().err
    assert main(["fit", "--ckpt_path", NAME, "--data", "cora"]) == 2
    assert f"model {NAME} (a query encoder) cannot be used on cora" in capsys.readouterr().err


def test_a_test_of_the_weights_can_be_plotted(family, capsys):
    assert main(["plot", NAME]) == 2
    assert f"Evaluate it: graphzoo test --ckpt_path {NAME} --data NAME" in capsys.readouterr().err
    words = ["--data=kg", "--data.path=family", "--trainer.accelerator=cpu", "--logger=csv", "--run_dir=run"]
    assert main(["test", "--ckpt_path", NAME, *words]) == 0
    assert main(["plot", "run", "--no-model"]) == 0
    assert NAME in Path("report.html").read_text()


def test_relation_vectors_need_the_same_relations(family, tmp_path):
    """Weights of KnowFormer can only be trained further on a graph with the same relations."""
    data = KGDataModule(path=str(family))
    model = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=1, num_heads=2))
    fit = trainer(tmp_path, max_epochs=1)
    fit.fit(model, data)
    fit.save_checkpoint(tmp_path / "run" / "checkpoints" / "best.ckpt")
    data.save_artifacts(tmp_path / "run" / "graph")
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "shared")]) == 0
    start = {"start_from": str(tmp_path / "shared")}
    again = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=1, num_heads=2), **start)
    trainer(tmp_path).validate(again, data, verbose=False)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in again.state_dict().items())
    other = tmp_path / "others"
    other.mkdir()
    (other / "train.tsv").write_text((family / "train.tsv").read_text().replace("father_of", "uncle_of"))
    again = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=1, num_heads=2), **start)
    with pytest.raises(UsageError, match="other relations"):
        trainer(tmp_path).validate(again, KGDataModule(path=str(other)), verbose=False)
    narrow = KGCompletion(
        lambda spec: KnowFormer(spec, hidden_channels=4, num_layers=1, num_heads=2), **start
    )
    message = (
        "shared does not fit: .*\nSettings of the encoder: hidden_channels is 8 there, 4 here\nGive those of"
    )
    with pytest.raises(UsageError, match=message):
        trainer(tmp_path).validate(narrow, data, verbose=False)
    other = KGCompletion(
        lambda spec: KnowFormerAny(spec, hidden_channels=8, num_layers=1, num_heads=2), **start
    )
    for _ in range(2):  # a second attempt does not go on with random weights
        with pytest.raises(UsageError, match="It has a graphzoo.encoders.KnowFormer, but this is a graphzoo"):
            trainer(tmp_path).validate(other, data, verbose=False)


def test_exported_weights_are_neither_tested_nor_trained_on_another_split(family, tmp_path, caplog):
    def knowformer(**start):
        return KGCompletion(
            lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=1, num_heads=2), **start
        )

    data, model = KGDataModule(path=str(family)), knowformer()
    fit = trainer(tmp_path, max_epochs=1)
    fit.fit(model, data)
    fit.save_checkpoint(tmp_path / "run" / "checkpoints" / "best.ckpt")
    data.save_artifacts(tmp_path / "run" / "graph")
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "shared")]) == 0
    for step in ("test", "fit"):
        again = knowformer(start_from=str(tmp_path / "shared"))
        with pytest.raises(UsageError, match="another split of these triples"):
            getattr(trainer(tmp_path, max_epochs=1), step)(
                again, KGDataModule(path=str(family), split_index=1)
            )
    caplog.clear()
    trainer(tmp_path, max_epochs=1).fit(knowformer(start_from=str(tmp_path / "shared")), data)
    assert "these are not the data that the model was trained on" not in caplog.text
    with (family / "train.tsv").open("a") as file:  # with another fact, another split is drawn
        file.write("ann1\tmother_of\tbob2\n")
    again = knowformer(start_from=str(tmp_path / "shared"))
    trainer(tmp_path, max_epochs=1).test(again, KGDataModule(path=str(family)), verbose=False)
    assert caplog.text.count("these are not the data that the model was trained on") == 1
    Trainer(logger=False, enable_progress_bar=False).test(
        graphzoo.load(NAME, data=str(family)).task, KGDataModule(path=str(family)), verbose=False
    )
    # The shipped weights were not trained on these triples, so there is no second message.
    assert caplog.text.count("these are not the data that the model was trained on") == 1


def test_exported_weights_are_trained_with_other_settings_of_their_encoder(family, tmp_path):
    model = KGCompletion(lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=1, num_heads=2))
    data, fit = KGDataModule(path=str(family)), trainer(tmp_path, max_epochs=1)
    fit.fit(model, data)
    fit.save_checkpoint(tmp_path / "run" / "checkpoints" / "best.ckpt")
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "shared")]) == 0
    words = ["fit", "--ckpt_path", str(tmp_path / "shared"), "--data", "kg", "--data.path", str(family)]
    words += ["--trainer", "smoke", "--no-test", "--run_dir", str(tmp_path / "more")]
    assert main([*words, "--model.encoder.dropout", "0.25"]) == 0
    encoder = yaml.safe_load((tmp_path / "more" / "config.yaml").read_text())["model"]["init_args"]["encoder"]
    assert encoder["class_path"].endswith("KnowFormer")
    assert (encoder["init_args"]["dropout"], encoder["init_args"]["hidden_channels"]) == (0.25, 8)


def test_odd_facts_give_a_warning(family):
    with (family / "train.tsv").open("a") as file:
        file.write("dora\tmother_of\temil\n")
    with pytest.warns(GraphzooDataWarning, match="1 duplicate triple in train dropped"):
        graphzoo.load(NAME, data=str(family))


def test_queries_may_come_from_a_table(family):
    model = graphzoo.load(NAME, data=[(0, 0, 1), (1, 0, 2), (2, 0, 3)])
    rows = pd.DataFrame({"head": [0, None], "tail": [None, 2]})  # pandas stores floats
    answers = model.predict(head=rows["head"], relation=0, tail=rows["tail"], k=1)
    alone = [model.predict(head="0", relation="0", k=1), model.predict(tail="2", relation="0", k=1)]
    assert answers["score"].tolist() == pytest.approx([each["score"][0] for each in alone])
    query = {"head": ["0", "?"], "relation": "0", "tail": [pd.NA, "2"], "k": 1}
    pd.testing.assert_frame_equal(model.predict(**query), answers)
    assert model.predict(head=torch.tensor([0]), relation=0, k=1)["head"].tolist() == ["0"]
    assert model.predict("0", "0", candidates="3")["tail"].tolist() == ["3"]


def test_facts_in_every_form_are_a_graph(family, tmp_path):
    model, facts = graphzoo.load(NAME, data=str(family)), [(0, 0, 1), (1, 0, 2)]
    expected = model.predict("0", "0", k=2, graph=facts)
    from_triples(facts).save(tmp_path / "facts.npz")
    for graph in (torch.tensor(facts), {"train": facts}, str(tmp_path / "facts.npz")):
        pd.testing.assert_frame_equal(model.predict("0", "0", k=2, graph=graph), expected)
    facts.append((0, 0, 7))
    assert "7" in model.predict("0", "0", k=9, graph=facts)["tail"].tolist()
