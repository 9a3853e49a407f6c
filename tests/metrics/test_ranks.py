"""Ranks, compared with cases by hand and a loop, and the memory-bounded form with the dense one."""

import logging

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from graphzoo.errors import OutOfMemoryError
from graphzoo.metrics import filtered_ranks, rank_targets, ranks

TIES = ("optimistic", "realistic", "pessimistic")


def ranks_of(scores, target, known=(), **kwargs):
    mask = torch.zeros(1, len(scores), dtype=torch.bool)
    mask[0, list(known)] = True
    return filtered_ranks(torch.tensor([scores]), torch.tensor([target]), mask, **kwargs).item()


@pytest.mark.parametrize(
    ("scores", "target", "known", "expected"),
    [
        ([3.0, 1.0, 2.0], 0, [], (1, 1, 1)),
        ([3.0, 1.0, 2.0], 2, [], (2, 2, 2)),
        ([3.0, 1.0, 2.0], 2, [0], (1, 1, 1)),
        ([2.0, 2.0, 2.0, 5.0], 1, [], (2, 3, 4)),
        ([2.0, 2.0, 2.0, 5.0], 1, [2], (2, 2.5, 3)),
        ([2.0, 2.0, 2.0, 5.0], 1, [0, 2, 3], (1, 1, 1)),
        ([0.0, -0.0], 0, [], (1, 1.5, 2)),
    ],
)
def test_by_hand(scores, target, known, expected, query_batch):
    assert tuple(ranks_of(scores, target, known, ties=ties) for ties in TIES) == expected
    batch = query_batch([(0, 0)], [(0, target)], [(0, entity) for entity in (*known, target)])
    optimistic, pessimistic = rank_targets(torch.tensor([scores]), batch)
    assert (optimistic.item(), pessimistic.item()) == (expected[0], expected[2])


def test_counts_are_not_those_of_a_byte(query_batch):
    scores = torch.zeros(1, 1000)
    scores[0, :600] = 1.0
    optimistic, pessimistic = rank_targets(scores, query_batch([(0, 0)], [(0, 999)], [(0, 999)]))
    assert (optimistic.item(), pessimistic.item()) == (601, 1000)


def test_realistic_is_the_default_and_float32():
    result = filtered_ranks(torch.zeros(2, 5), torch.tensor([0, 4]), torch.zeros(2, 5, dtype=torch.bool))
    assert result.dtype == torch.float32
    assert result.tolist() == [3.0, 3.0]


@given(
    num_entities=st.integers(1, 12),
    data=st.data(),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
)
@settings(max_examples=150)
def test_definition_in_a_loop(num_entities, data, dtype, query_batch):
    values = st.integers(-3, 3).map(lambda v: v / 4)
    row = data.draw(st.lists(values, min_size=num_entities, max_size=num_entities))
    target = data.draw(st.integers(0, num_entities - 1))
    known = data.draw(st.sets(st.integers(0, num_entities - 1)))
    rivals = [row[n] for n in range(num_entities) if n != target and n not in known]
    best = 1 + sum(value > row[target] for value in rivals)
    worst = best + sum(value == row[target] for value in rivals)

    scores = torch.tensor([row], dtype=dtype)
    mask = torch.tensor([[n in known and n != target for n in range(num_entities)]])
    found = [filtered_ranks(scores, torch.tensor([target]), mask, ties=ties).item() for ties in TIES]
    assert found == [best, (best + worst) / 2, worst]
    batch = query_batch([(0, 0)], [(0, target)], [(0, entity) for entity in known])
    optimistic, pessimistic = rank_targets(scores, batch)
    assert (optimistic.item(), pessimistic.item()) == (best, worst)


@pytest.mark.parametrize("seed", range(5))
def test_rank_targets_agrees_with_filtered_ranks(seed, random_batch, filter_masks):
    scores, batch = random_batch(seed)
    optimistic, pessimistic = rank_targets(scores, batch)
    assert optimistic.dtype == pessimistic.dtype == torch.int64
    for ties, result in (("optimistic", optimistic), ("pessimistic", pessimistic)):
        mask = filter_masks(batch, scores.shape[1])
        expected = filtered_ranks(scores[batch.target_row], batch.target, mask, ties=ties)
        assert torch.equal(result.float(), expected)


def test_everything_filtered_is_rank_one(random_batch):
    scores, batch = random_batch(0)
    optimistic, pessimistic = rank_targets(scores, batch)
    first_row = batch.target_row == 0
    assert first_row.sum() > 3
    assert (pessimistic[first_row] == 1).all()
    assert (optimistic[first_row] == 1).all()


def test_known_answers_may_be_unsorted_and_repeated(query_batch):
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    batch = query_batch([(0, 0), (1, 0)], [(0, 3), (1, 0)], [])
    batch.known_row = torch.tensor([1, 0, 0, 1, 0])
    batch.known_entity = torch.tensor([3, 1, 1, 3, 0])
    optimistic, pessimistic = rank_targets(scores, batch)
    assert optimistic.tolist() == pessimistic.tolist() == [2, 3]
    batch.known_row, batch.known_entity = torch.tensor([0, 0, 0]), torch.tensor([0, 1, 1])  # sorted
    assert rank_targets(scores, batch)[0].tolist() == [2, 4]


@pytest.mark.parametrize("max_bytes", [1, 500, 5_000, 10**9])
def test_chunk_size_changes_no_bit(max_bytes, random_batch):
    scores, batch = random_batch(3, num_queries=20, num_entities=50)
    for result, expected in zip(
        rank_targets(scores, batch, max_bytes=max_bytes), rank_targets(scores, batch), strict=True
    ):
        assert torch.equal(result, expected)


def test_working_memory_stays_below_the_bound(monkeypatch, random_batch):
    sizes = []
    original = ranks._in_chunks

    def spy(total, size, work):
        sizes.append((total, size))
        original(total, size, work)

    monkeypatch.setattr(ranks, "_in_chunks", spy)
    scores, batch = random_batch(3, num_queries=20, num_entities=50)
    rank_targets(scores, batch, max_bytes=96 * 50 * 2)
    (total, all_entities), (_, known_entities) = sizes
    # 9 bytes per target and entity: a float32 score, a boolean and an int32.
    assert all_entities == 96 * 50 * 2 // (50 * 9) < total
    assert known_entities == 2  # all 50 entities are known answers of the first query


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_halves_the_chunk_and_goes_on(monkeypatch, caplog, error, random_batch):
    scores, batch = random_batch(4, num_queries=30, num_entities=40)
    expected = rank_targets(scores, batch)
    original = ranks._in_chunks

    def in_little_memory(total, size, work):
        def limited(start, stop):
            if stop - start > 5:
                raise error
            work(start, stop)

        original(total, size, limited)

    monkeypatch.setattr(ranks, "_in_chunks", in_little_memory)
    with caplog.at_level(logging.WARNING, logger="graphzoo"):
        found = rank_targets(scores, batch)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert "out of memory" in caplog.text


def test_other_errors_and_too_little_memory_for_one_target_are_raised():
    def fail(start, stop):
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        ranks._in_chunks(10, 5, fail)

    def never_enough(start, stop):
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(OutOfMemoryError, match="with one of 10 targets at a time"):
        ranks._in_chunks(10, 5, never_enough)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite_have_no_rank(bad, random_batch):
    scores, batch = random_batch(1)
    scores[4, 2] = bad
    with pytest.raises(
        ValueError,
        match=r"1 of 161 scores are NaN or infinite .*, the first in row 4 \(head 4, relation 1\)",
    ):
        rank_targets(scores, batch)
    with pytest.raises(ValueError, match="first in row 4"):
        filtered_ranks(scores, torch.zeros(7, dtype=torch.int64), torch.zeros(7, 23, dtype=torch.bool))


def test_filtered_ranks_refuses_wrong_arguments():
    scores, target, mask = torch.rand(2, 4), torch.tensor([1, 3]), torch.zeros(2, 4, dtype=torch.bool)
    masked = mask.clone()
    masked[1, 3] = True
    with pytest.raises(ValueError, match=r"target of row 1 \(entity 3\) is masked"):
        filtered_ranks(scores, target, masked)
    with pytest.raises(ValueError, match="ties must be one of realistic, .*, got 'mean'"):
        filtered_ranks(scores, target, mask, ties="mean")
    with pytest.raises(ValueError, match=r"target must lie in 0\.\.3, got 1\.\.4"):
        filtered_ranks(scores, torch.tensor([1, 4]), mask)
    with pytest.raises(ValueError, match="target must be int64"):
        filtered_ranks(scores, target.int(), mask)
    with pytest.raises(ValueError, match=r"target must be \[2\]"):
        filtered_ranks(scores, target[:1], mask)
    with pytest.raises(ValueError, match="filter_mask must be torch.bool"):
        filtered_ranks(scores, target, mask.float())
    with pytest.raises(ValueError, match=r"scores must be \[B, N\]"):
        filtered_ranks(scores[0], target, mask)
    with pytest.raises(ValueError, match="floating point"):
        filtered_ranks(scores.long(), target, mask)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("head", torch.zeros(3, dtype=torch.int64), "7 rows"),
        ("target_row", torch.zeros(1, dtype=torch.int64), "target_row"),
        ("known_row", torch.zeros(1, dtype=torch.int64), "known_row"),
        ("target", 23, r"target must lie in 0\.\.22"),
        ("known_entity", -1, r"known_entity must lie in 0\.\.22"),
        ("target_row", 7, r"target_row must lie in 0\.\.6"),
    ],
)
def test_rank_targets_refuses_wrong_arguments(field, value, message, random_batch):
    scores, batch = random_batch(2)
    if isinstance(value, int):
        getattr(batch, field)[-1] = value
    else:
        setattr(batch, field, value)
    with pytest.raises(ValueError, match=message):
        rank_targets(scores, batch)


def test_no_targets_give_no_ranks(query_batch):
    batch = query_batch([(0, 0)], [], [(0, 1)])
    optimistic, pessimistic = rank_targets(torch.rand(1, 3), batch)
    assert optimistic.shape == pessimistic.shape == (0,)
    with pytest.raises(ValueError, match="max_bytes"):
        rank_targets(torch.rand(1, 3), batch, max_bytes=0)


def test_a_batch_without_queries(query_batch):
    """A process may get such a batch at the end, if the other processes have the last queries."""
    optimistic, pessimistic = rank_targets(torch.empty(0, 5), query_batch([], [], []))
    assert optimistic.shape == pessimistic.shape == (0,)
    assert optimistic.dtype == pessimistic.dtype == torch.int64
