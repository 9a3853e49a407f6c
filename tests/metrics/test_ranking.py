"""`RankingMetric`: averages by hand, and equal bits for all batch sizes, orders and numbers of processes."""

import math
import subprocess

import pytest
import torch
from helpers.warm_python import python

from graphzoo.metrics import HitsAtK, RankingMetric, group_table, rank_targets, summarize_ranks, tie_share


def ints(*values):
    return torch.tensor(values, dtype=torch.int64)


def random_ranks(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    best = torch.randint(1, 5_000, (count,), generator=generator)
    return best, best + torch.randint(0, 3, (count,), generator=generator), torch.arange(count)


def metric_of(parts, **kwargs):
    metric = RankingMetric(**kwargs)
    for part in parts:
        metric.update(*part)
    return metric


@pytest.mark.parametrize(
    ("ties", "ranks"),
    [("optimistic", [1, 2, 4, 10]), ("realistic", [1, 3, 4, 10.5]), ("pessimistic", [1, 4, 4, 11])],
)
def test_by_hand(ties, ranks):
    metric = metric_of([(ints(1, 2, 4, 10), ints(1, 4, 4, 11), ints(0, 1, 2, 3))], ties=ties)
    values = metric.compute()
    assert list(values) == ["mr", "mrr", "hits@1", "hits@3", "hits@10"]
    assert all(value.dtype == torch.float64 and value.dim() == 0 for value in values.values())
    assert values["mr"].item() == sum(ranks) / 4
    assert values["mrr"].item() == pytest.approx(sum(1 / rank for rank in ranks) / 4, rel=1e-15)
    for k in (1, 3, 10):
        assert values[f"hits@{k}"].item() == sum(rank <= k for rank in ranks) / 4
        single = HitsAtK(k, ties=ties)
        single.update(ints(1, 2, 4, 10), ints(1, 4, 4, 11), ints(0, 1, 2, 3))
        assert torch.equal(single.compute(), values[f"hits@{k}"])
    assert metric.tie_share() == 0.5
    with pytest.raises(ValueError, match="hits must be at least 1"):
        HitsAtK(0)


@pytest.mark.parametrize("num_entities", [1, 2, 7, 100])
def test_constant_scorer_gets_the_middle_rank(num_entities, query_batch):
    batch = query_batch([(0, 0)], [(0, n) for n in range(num_entities)], [])
    optimistic, pessimistic = rank_targets(torch.zeros(1, num_entities), batch)
    values = metric_of([(optimistic, pessimistic, batch.target_index)]).compute()
    assert values["mr"].item() == (num_entities + 1) / 2
    assert values["mrr"].item() == pytest.approx(2 / (num_entities + 1), rel=1e-15)
    assert tie_share(optimistic, pessimistic) == float(num_entities > 1)


def bits(metric):
    return {name: value.item().hex() for name, value in metric.compute().items()}


@pytest.mark.parametrize("sizes", [[1000], [1] * 1000, [333, 333, 334], [999, 1]])
def test_batching_and_order_change_no_bit(sizes):
    ranks = random_ranks(1000)
    expected = bits(metric_of([ranks]))
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(len(sizes)))
    parts = [[column[part] for column in ranks] for part in order.split(sizes)]
    assert bits(metric_of(parts)) == expected


def test_the_sum_is_exact():
    best, worst, _ = random_ranks(1000)
    exact = math.fsum(2 / (a + b) for a, b in zip(best.tolist(), worst.tolist(), strict=True)) / 1000
    assert summarize_ranks(best, worst)["mrr"].hex() == exact.hex()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_merged_processes_have_the_bits_of_one(world_size):
    ranks = random_ranks(101)
    expected = bits(metric_of([ranks]))
    processes = [
        metric_of(
            [[column[start : start + 7] for column in ranks] for start in range(7 * i, 101, 7 * world_size)]
        )
        for i in range(world_size)
    ]
    # A synchronisation concatenates the states of all processes, here beginning with the last process.
    states = [torch.cat(process.rows) for process in reversed(processes)]
    merged = RankingMetric(
        dist_sync_fn=lambda tensor, group=None: states,
        distributed_available_fn=lambda: True,
    )
    merged.update(*(column[:0] for column in ranks))
    assert bits(merged) == expected
    assert torch.equal(merged.ranks()[2], ranks[2])


_PROCESS = """
import sys, torch
from graphzoo.metrics import RankingMetric
rank, rendezvous, ranks = int(sys.argv[1]), sys.argv[2], torch.load(sys.argv[3])
torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=3)
metric = RankingMetric()
if rank == 0:
    metric.update(*ranks)
elif rank == 1:  # an empty batch; the last process never sees any
    metric.update(*(column[:0] for column in ranks))
print({name: value.item().hex() for name, value in metric.compute().items()}, metric.ranks()[2].tolist())
torch.distributed.destroy_process_group()
"""


def test_processes_without_queries_gather_too(tmp_path):
    ranks = random_ranks(50)
    torch.save(ranks, tmp_path / "ranks.pt")
    files = [str(tmp_path / "rendezvous"), str(tmp_path / "ranks.pt")]
    processes = [
        subprocess.Popen([python(), "-c", _PROCESS, str(rank), *files], stdout=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    expected = f"{bits(metric_of([ranks]))} {list(range(50))}\n"
    assert [process.communicate(timeout=120)[0] for process in processes] == [expected] * 3


def test_a_repeated_target_counts_once_and_different_ranks_are_an_error():
    metric = metric_of([(ints(1, 5), ints(1, 5), ints(0, 1)), (ints(5), ints(5), ints(1))])
    assert metric.compute()["mr"].item() == 3
    metric.update(ints(6), ints(6), ints(1))
    with pytest.raises(ValueError, match=r"target 1 was ranked twice .*\[5, 5\] and \[6, 6\]"):
        metric.compute()
    metric.reset()
    metric.update(ints(2), ints(2), ints(0))
    assert metric.compute()["mr"].item() == 2


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_wrong_ranks_and_settings_are_refused():
    metric = RankingMetric()
    with pytest.raises(ValueError, match="no ranks to average"):
        metric.compute()
    with pytest.raises(ValueError, match="ranks must be at least 1"):
        metric.update(ints(0), ints(1), ints(0))
    with pytest.raises(ValueError, match="ranks must be at least 1"):
        metric.update(ints(2), ints(1), ints(0))
    with pytest.raises(ValueError, match="one length; optimistic"):
        metric.update(ints(1, 2), ints(1), ints(0))
    with pytest.raises(ValueError, match="pessimistic is torch.float32"):
        metric.update(ints(1), torch.ones(1), ints(0))
    with pytest.raises(ValueError, match="ties must be one of"):
        RankingMetric(ties="average")
    with pytest.raises(ValueError, match="hits must be at least 1"):
        RankingMetric(hits=[0])


def test_table_per_relation_and_direction():
    triples = torch.tensor([[0, 1, 2], [3, 0, 1], [1, 1, 0]])
    # Tail queries of the three triples are 0..2, head queries 3..5; triple 1 has no head query.
    metric = metric_of([(ints(1, 2, 3, 8, 10), ints(1, 2, 3, 8, 12), ints(0, 1, 2, 3, 5))])
    rows = {
        (row["relation"], row["direction"]): row
        for row in metric.table(triples, ["loves", "knows", "unused"])
    }
    assert list(rows) == [
        ("all", "both"),
        ("all", "tail"),
        ("all", "head"),
        ("loves", "both"),
        ("loves", "tail"),
        ("knows", "both"),
        ("knows", "tail"),
        ("knows", "head"),
    ]
    assert {key: row["count"] for key, row in rows.items() if key[1] == "both"} == {
        ("all", "both"): 5,
        ("loves", "both"): 1,
        ("knows", "both"): 4,
    }
    assert rows["knows", "tail"]["mr"] == 2
    assert rows["knows", "head"]["mr"] == (8 + 11) / 2
    assert rows["knows", "head"]["tie_share"] == 0.5
    assert rows["loves", "both"]["mrr"] == 0.5
    assert rows["all", "both"]["mr"] == metric.compute()["mr"].item()


def test_tie_rule_and_hits_of_the_metric_are_those_of_its_table():
    metric = metric_of([(ints(1), ints(7), ints(0))], ties="pessimistic", hits=[2, 7])
    assert metric.compute() == {"mr": 7, "mrr": 1 / 7, "hits@2": 0, "hits@7": 1}
    row = metric.table(torch.tensor([[0, 0, 1]]), ["r"])[0]
    assert (row["mr"], row["hits@2"], row["hits@7"]) == (7, 0, 1)


def test_each_part_of_the_index_has_its_own_figures():
    metric = metric_of([(ints(1, 2, 5), ints(1, 2, 5), ints(0, 3, 4))])
    first, empty, last = metric.compute_parts([0, 1, 3])
    assert first["mr"] == 1 and empty is None and last["mr"] == 3.5


def test_table_refuses_an_index_outside_the_split():
    triples = torch.tensor([[0, 0, 1]])
    with pytest.raises(ValueError, match=r"index must lie in 0\.\.1 for 1 triples, got 2\.\.2"):
        group_table(ints(1), ints(1), ints(2), triples, ["r"])
    with pytest.raises(ValueError, match="one shape"):
        group_table(ints(1, 2), ints(1), ints(0), triples, ["r"])
    with pytest.raises(ValueError, match=r"optimistic \[2\] and pessimistic \[1\] differ"):
        summarize_ranks(ints(1, 2), ints(3))
