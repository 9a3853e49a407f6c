"""Pictures of the models of real runs show what the encoder computes."""

import contextlib
import io
import shlex
from dataclasses import replace

import pytest
import torch
import yaml

import graphzoo
from graphzoo.cli import main
from graphzoo.errors import UsageError
from graphzoo.inference import KGModel
from graphzoo.report.build import build_report
from graphzoo.report.content import Note, Options, Picture, TableBlock
from graphzoo.report.curve_figures import depth_pictures
from graphzoo.report.models.attention import attention_maps
from graphzoo.report.models.choose import model_blocks
from graphzoo.report.models.knowformer import attended_blocks
from graphzoo.report.models.sample import sample_of
from graphzoo.runs.changes import changed_settings, repeat_command
from graphzoo.runs.find import find_records
from graphzoo.runs.groups import group_records
from graphzoo.runs.results_file import config_hash


def record_of(run):
    return find_records([run])[0]


def pictures(blocks):
    return {block.name: block for block in blocks if isinstance(block, Picture)}


@pytest.fixture(scope="module")
def graph(real_runs):
    return graphzoo.load(real_runs.galit).graph


def test_a_sample_has_every_class_and_neighbours(graph):
    whole = sample_of(graph, 1000)
    assert whole.is_whole and whole.nodes.tolist() != sorted(whole.nodes.tolist())
    assert whole.classes.tolist() == sorted(graph.y.tolist())
    dense = torch.zeros(60, 60, dtype=torch.bool)
    dense[graph.edge_index[0], graph.edge_index[1]] = True
    dense = dense | dense.t()
    assert torch.equal(whole.linked, dense[whole.nodes][:, whole.nodes])
    part = sample_of(graph, 15)
    assert not part.is_whole and torch.bincount(part.classes).tolist() == [5, 5, 5]
    assert torch.equal(part.linked, dense[part.nodes][:, part.nodes])
    drawn = torch.randperm(60, generator=torch.Generator().manual_seed(1))[:15]
    assert part.linked.sum() > 1.5 * dense[drawn][:, drawn].sum()
    assert torch.equal(part.nodes, sample_of(graph, 15).nodes)
    assert not torch.equal(part.nodes, sample_of(graph, 15, seed=1).nodes)
    same = part.same_class()
    assert same.sum() == 3 * 5 * 4 and not same.diagonal().any()


@pytest.mark.parametrize("name", ["nodeformer", "galit"])
def test_rows_of_an_attention_map_have_mean_one(real_runs, name):
    """Weights of a row sum to 1 and are drawn in units of their mean 1 / N."""
    model = graphzoo.load(getattr(real_runs, name))
    x = model.transform(model.graph.x, model.graph.feature_names)
    maps = attention_maps(model.task.encoder, x, model.graph, sample_of(model.graph, 60))
    assert len(maps) == 2
    for weights in maps:
        torch.testing.assert_close(weights.mean(1), torch.ones(60, dtype=torch.float64), atol=1e-5, rtol=0)
        assert (weights.mean(0) - 1).abs().max() > 1e-4  # columns do not sum to 1
    some = sample_of(model.graph, 12)
    found = attention_maps(model.task.encoder, x, model.graph, some)
    rows = model.task.encoder.attention(x, model.graph.edge_index, some.nodes)
    for weights, expected in zip(found, rows, strict=True):
        torch.testing.assert_close(
            weights, 60 * expected.double().mean(0)[:, some.nodes], atol=1e-4, rtol=1e-4
        )


def test_the_attention_of_a_users_encoder_is_shown(real_runs, graph):
    class Own:
        def attention(self, x, edge_index, queries):
            return torch.arange(60.0).expand(1, 2, len(queries), 60) / sum(range(60))

    some = sample_of(graph, 12)
    [weights] = attention_maps(Own(), graph.x, graph, some)
    expected = (60 * some.nodes.double() / sum(range(60))).expand(12, 12)
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=1e-6)


def test_nodeformer_has_pictures_of_input_and_latent_graph(real_runs):
    blocks = model_blocks(record_of(real_runs.nodeformer), Options(), "g1")
    names = [f"g1-{name}" for name in ("input-graph-map", "attention-map-1", "attention-map-2")]
    names += [f"g1-{name}" for name in ("input-graph-edges", "latent-graph-1", "latent-graph-2")]
    assert list(pictures(blocks)) == names
    table = blocks[-1]
    assert isinstance(table, TableBlock) and len(table.rows) == 10
    heaviest = [float(row[2]) for row in table.rows]
    assert heaviest == sorted(heaviest, reverse=True)


def test_galit_has_ranks_in_picture_and_table(real_runs):
    blocks = model_blocks(record_of(real_runs.galit), Options(), "g1")
    table = next(block for block in blocks if isinstance(block, TableBlock))
    rank, highest = int(table.rows[0][1]), int(table.rows[0][3])
    assert rank <= highest == 8 + 1  # one head of width 8, and the constant term
    assert [row[3] for row in table.rows[1:]] == ["60", "60"]
    assert f"attention P {rank}" in pictures(blocks)["g1-ranks"].alt


def test_the_attended_entities_are_those_of_the_encoder(real_runs):
    model = graphzoo.load(real_runs.kg)
    # A training fact, whose edges must be hidden as in training.
    head, relation, tail = model.graph.train[5].tolist()
    fact = (model.graph.entities[head], model.graph.relations[relation], model.graph.entities[tail])
    [picture] = model_blocks(record_of(real_runs.kg), Options(facts=(fact,)), "g1")
    messages = model._default.messages
    source, target = messages.edge_index
    there = (source == head) & (target == tail) & (messages.edge_type == relation)
    back = (source == tail) & (target == head) & (messages.edge_type == relation + len(model.graph.relations))
    assert there.sum() == back.sum() == 1
    ids = [torch.tensor([number]) for number in (head, relation, tail)]
    encoder, mask = model.task.query_encoder, ~(there | back)
    weights = encoder.attention(messages, *ids, edge_mask=mask, noise_seed=0)[-1, :, 0].double()
    own = float(weights[tail])
    weights[tail] = 0
    best = weights.topk(10)
    shares = best.values * (len(weights) - 1) / (1 - own)
    names = [
        model.graph.entity_labels.get(model.graph.entities[i], model.graph.entities[i]) for i in best.indices
    ]
    listed = ", ".join(f"{name} {share:.2f}" for name, share in zip(names, shares.tolist(), strict=True))
    assert listed in picture.alt and f"{100 * own:.0f}%" in picture.caption
    texts = {"entity_labels": {fact[0]: "that one"}, "relation_labels": {fact[1]: "does so with"}}
    [picture] = attended_blocks(KGModel(model.task, replace(model.graph, **texts)), (fact,), "g1")
    assert picture.title == "(that one, does so with, ?)"


def test_without_a_given_fact_some_of_the_test_split_are_shown(real_runs):
    blocks = model_blocks(record_of(real_runs.kg), Options(), "g1")
    titles = [picture.title for picture in pictures(blocks).values()]
    assert len(titles) == 3 and len({title.split(", ")[1] for title in titles}) == 3
    assert titles == [
        picture.title for picture in pictures(model_blocks(record_of(real_runs.kg), Options(), "g1")).values()
    ]


def test_facts_with_unknown_names_are_refused(real_runs):
    with pytest.raises(UsageError, match="(?s)viruss.*virus"):
        model_blocks(record_of(real_runs.kg), Options(facts=(("viruss", "causes", "fungus"),)), "g1")
    with pytest.raises(UsageError, match="(?s)not a model of facts.*--fact"):
        model_blocks(record_of(real_runs.galit), Options(facts=(("a", "b", "c"),)), "g1")


def test_pencil_has_a_depth_curve(real_runs):
    shallow, deep = (record_of(run) for run in (real_runs.shallow, real_runs.deep))
    groups = group_records([shallow, deep])
    [picture] = depth_pictures(groups)
    first, second = (record.tested["test/mrr"] for record in (shallow, deep))
    assert f"pencil on {shallow.data_name}, layers and mrr: 1: {first:.4g}, 2: {second:.4g}." in picture.alt
    assert depth_pictures(groups[:1]) == []
    note, code = model_blocks(shallow, Options(), "g1")
    assert "has 1 layer. " in note.text
    assert code.text.endswith("--model.encoder.num_layers=2")


def test_the_advice_for_a_depth_curve_is_shown_only_without_one(real_runs):
    """With the curve the advice would be superfluous."""
    groups = group_records(find_records([real_runs.shallow, real_runs.deep]))
    both = build_report(groups)
    assert [section.title for section in both.sections[:3]] == ["Results", "Depth", "Learning curves"]
    assert [block.name for block in both.sections[1].blocks] == ["depth"]
    for report, count in ((both, 0), (build_report(groups[:1]), 1)):
        notes = [block for section in report.sections for block in section.blocks if isinstance(block, Note)]
        assert sum("is given runs of other depths" in note.text for note in notes) == count


@pytest.mark.parametrize("name", ["kg", "galit", "deep"])
def test_the_command_of_a_report_has_the_settings_of_the_run(real_runs, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    record = record_of(getattr(real_runs, name))
    words = shlex.split(repeat_command(record))
    assert words[:2] == ["graphzoo", "fit"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main([*words[1:], "--print_config"]) == 0
    assert config_hash(yaml.safe_load(text.getvalue())) == record.hash == record.result["config_hash"]
    assert "trainer.max_epochs" in changed_settings(record)


def test_a_sample_follows_edges_between_classes():
    """The sample must not favour edges within a class: this graph has none, but its sample has edges."""
    from graphzoo.datasets import NodeGraph

    there = torch.arange(39)
    edges = torch.cat([torch.stack([there, there + 1]), torch.stack([there + 1, there])], 1)
    edges = edges[:, (40 * edges[0] + edges[1]).argsort()]
    path = NodeGraph("path", torch.eye(40), edges, torch.arange(40) % 2, ("even", "odd"))
    sample = sample_of(path, 10)
    assert sample.linked.sum() >= 2 * 6 and not (sample.linked & sample.same_class()).any()


def test_a_checkpoint_other_than_the_tested_one_is_refused(real_runs):
    """The run may be trained further since its test, or replaced by another one."""
    record = record_of(real_runs.galit)
    other = replace(record, result={**record.result, "checkpoint_step": 10**6})
    with pytest.raises(UsageError, match="the checkpoint that was tested is no longer there"):
        model_blocks(other, Options(), "g1")
