import copy
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from graphzoo.encoders import GALiT
from graphzoo.errors import UsageError
from graphzoo.layers import NoiseStream, dropout
from graphzoo.layers.noise import seeded_noise
from graphzoo.types import GraphSpec


def draw(generator):
    return torch.rand(4, generator=generator).tolist()


def test_each_pass_has_other_noise_and_a_seed_repeats_it():
    stream = NoiseStream(3)
    counted = [draw(stream.generator(None, "cpu")) for _ in range(3)]
    assert counted[0] != counted[1] != counted[2] != counted[0]
    named = draw(stream.generator(5, "cpu"))
    assert named == draw(stream.generator(5, "cpu")) != draw(stream.generator(6, "cpu"))
    assert int(stream.draws) == 3  # draws with a given seed are not counted


def test_roles_and_seeds_do_not_share_noise():
    """One number as a count, as a noise seed, in evaluation and under another stream's seed: four draws."""
    stream = NoiseStream(0)
    found = {
        tuple(draw(generator))
        for generator in (
            stream.generator(None, "cpu"),  # count 0
            stream.generator(0, "cpu"),
            stream.fixed_generator("cpu"),
            NoiseStream(1).generator(0, "cpu"),
        )
    }
    assert len(found) == 4


def test_evaluation_noise_is_fixed():
    stream = NoiseStream(2)
    before = draw(stream.fixed_generator("cpu"))
    stream.generator(None, "cpu")
    assert draw(stream.fixed_generator("cpu")) == before == draw(NoiseStream(2).fixed_generator("cpu"))


def test_state_dicts_and_copies_continue_the_stream():
    stream = NoiseStream(3)
    stream.generator(None, "cpu")
    resumed = NoiseStream(3)
    resumed.load_state_dict(stream.state_dict())
    twin = copy.deepcopy(stream)
    following = draw(stream.generator(None, "cpu"))
    assert draw(resumed.generator(None, "cpu")) == following == draw(twin.generator(None, "cpu"))


def test_the_global_random_state_is_not_changed():
    state = torch.get_rng_state()
    stream = NoiseStream(0)
    dropout(torch.ones(100), 0.5, stream.generator(None, "cpu"), True)
    stream.fixed_generator("cpu")
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_has_the_given_rate_and_keeps_the_mean(p):
    x = torch.full((400, 501), 2.0, requires_grad=True)
    out = dropout(x, p, NoiseStream(0).generator(None, "cpu"), True)
    dropped = (out == 0).double()
    # Five standard errors of a binomial share.
    assert abs(dropped.mean().item() - p) < 5 * (p * (1 - p) / x.numel()) ** 0.5
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 2 / (1 - p)), rtol=1e-3, atol=0)
    out.sum().backward()
    torch.testing.assert_close(x.grad, out.detach() / 2)
    # One random word gives four entries; neighbours must be independent nevertheless.
    pairs = (dropped.flatten()[:-1] * dropped.flatten()[1:]).mean().item()
    assert abs(pairs - p * p) < 5 * (p * p * (1 - p * p) / x.numel()) ** 0.5 * 2


def test_dropout_that_does_nothing_returns_its_input():
    x = torch.ones(3)
    assert dropout(x, 0.5, None, False) is x
    assert dropout(x, 0.0, None, True) is x


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5])
def test_dropout_refuses_other_probabilities(p):
    with pytest.raises(ValueError, match=f"below 1, got {p}"):
        dropout(torch.ones(3), p, None, False)


def test_dropout_without_a_generator_is_refused():
    with pytest.raises(ValueError, match="needs a generator"):
        dropout(torch.ones(3), 0.5, None, True)


def test_keys_differ_and_need_not_be_in_the_state_dict():
    stream = NoiseStream(3, persistent=False)
    keys = [int(stream.key()) for _ in range(3)]
    assert len(set(keys)) == 3 and int(stream.draws) == 3
    assert not stream.state_dict() and int(copy.deepcopy(stream).key()) not in keys
    assert int(NoiseStream(3).key()) == keys[0]


@pytest.mark.parametrize("draw_again", [NoiseStream.key, lambda stream: stream.generator(None, "cpu")])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputed_noise_needs_a_seed(draw_again, use_reentrant):
    stream = NoiseStream(0)

    def noisy(x):
        draw_again(stream)
        return x.sin()

    x = torch.ones(3, requires_grad=True)
    out = checkpoint(noisy, x, use_reentrant=use_reentrant)
    with pytest.raises(UsageError, match="Give the call noise_seed"):
        out.sum().backward()


def test_recomputed_noise_with_a_seed_is_the_same():
    encoders = [GALiT(GraphSpec(30, in_channels=8), hidden_channels=8) for _ in range(2)]
    encoders[1].load_state_dict(encoders[0].state_dict())
    x, edge_index = torch.randn(30, 8), torch.randint(30, (2, 60))
    plain = encoders[0](x, edge_index, noise_seed=3)
    kept = checkpoint(encoders[1], x, edge_index, noise_seed=3, use_reentrant=False)
    for out in (plain, kept):
        out.square().sum().backward()
    for one, other in zip(*(encoder.parameters() for encoder in encoders), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_one_thread_at_a_time_borrows_the_global_noise():
    """Two threads that overlap would each restore the state that the other one has set."""
    before, inside = torch.get_rng_state(), threading.Event()
    leave = threading.Event()

    def borrow(first):
        with seeded_noise(torch.Generator().manual_seed(1)):
            if first:
                inside.set()
                leave.wait(10)

    one = threading.Thread(target=borrow, args=(True,))
    two = threading.Thread(target=borrow, args=(False,))
    one.start()
    inside.wait(10)
    two.start()
    two.join(0.2)
    assert two.is_alive()  # it waits for the first
    leave.set()
    one.join(10)
    two.join(10)
    assert torch.equal(torch.get_rng_state(), before)
