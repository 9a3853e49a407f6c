"""NodeFormer's noise: new in each training pass, fixed in evaluation, resumable, from its own stream."""

import copy
import shutil

import pytest
import torch
from helpers.nodeformer_cases import build, graph


def train(encoder, optimizer, x, edge_index, steps):
    losses = []
    for _ in range(steps):
        states, loss = encoder.train().forward_with_auxiliary(x, edge_index)
        loss = loss + states.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("training", [True, False])
def test_the_global_random_state_is_not_changed(training):
    encoder, (x, edge_index) = build(dropout=0.5).train(training), graph()
    state = torch.get_rng_state()
    states, loss = encoder.forward_with_auxiliary(x, edge_index)
    (states.sum() + loss).backward()
    encoder.return_attention(x, edge_index, edge_index)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_global_random_state_does_not_matter():
    encoder, (x, edge_index) = build(dropout=0.5), graph()
    torch.manual_seed(1)
    out = encoder(x, edge_index, noise_seed=4)
    torch.manual_seed(2)
    assert torch.equal(encoder(x, edge_index, noise_seed=4), out)


@pytest.mark.parametrize("source", ["directions", "gumbel", "dropout"])
def test_every_kind_of_noise_is_new_in_each_pass_and_repeated_by_a_seed(source, monkeypatch):
    encoder, (x, edge_index) = build(dropout=0.5 if source == "dropout" else 0.0), graph()
    original = encoder._draw

    def only_the_source(*args):
        projection, gumbel = original(*args)
        if source != "directions":
            projection = torch.ones_like(projection)
        return projection, gumbel if source == "gumbel" else None

    monkeypatch.setattr(encoder, "_draw", only_the_source)
    first, second = encoder(x, edge_index), encoder(x, edge_index)
    assert not torch.equal(first, second)
    named = encoder(x, edge_index, noise_seed=7)
    assert torch.equal(encoder(x, edge_index, noise_seed=7), named)
    assert not torch.equal(encoder(x, edge_index, noise_seed=8), named)


def test_layers_have_different_noise(monkeypatch):
    encoder, (x, edge_index) = build(), graph()
    draws, original = [], encoder._draw
    monkeypatch.setattr(encoder, "_draw", lambda *args: draws.append(original(*args)) or draws[-1])
    encoder(x, edge_index)
    assert not torch.equal(draws[0][0], draws[1][0]) and not torch.equal(draws[0][1], draws[1][1])


def test_evaluation_is_fixed_and_does_not_move_the_stream():
    encoder, (x, edge_index) = build(dropout=0.5).eval(), graph()
    out = encoder(x, edge_index)
    assert torch.equal(encoder(x, edge_index), out)
    assert torch.equal(encoder(x, edge_index, noise_seed=3), out)
    assert int(encoder.noise.draws) == 0
    encoder.train()(x, edge_index)
    assert torch.equal(encoder.eval()(x, edge_index), out)


def test_evaluation_draws_the_same_directions_in_every_precision_and_on_every_device():
    encoder, (x, edge_index) = build(hidden_channels=16).eval(), graph()
    drawn, out = encoder.draw_projections(), encoder(x, edge_index)
    assert [one.dtype for one in copy.deepcopy(encoder).bfloat16().draw_projections()] == [torch.float32] * 2
    elsewhere = copy.deepcopy(encoder).to("meta").draw_projections()  # drawn on the CPU, then moved
    assert all(one.is_meta and one.shape == own.shape for one, own in zip(elsewhere, drawn, strict=True))
    encoder.double()
    assert all(torch.equal(a, b.double()) for a, b in zip(encoder.draw_projections(), drawn, strict=True))
    torch.testing.assert_close(encoder(x.double(), edge_index), out.double(), atol=1e-4, rtol=1e-4)


def test_seeds_give_equal_and_different_runs():
    x, edge_index = graph()
    runs = []
    for seed in (0, 0, 1):
        encoder = build(dropout=0.5, seed=seed)
        optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
        runs.append(train(encoder, optimizer, x, edge_index, 3))
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[2][0]


def test_training_resumed_from_a_checkpoint_equals_uninterrupted_training():
    x, edge_index = graph()
    encoder = build(dropout=0.5)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    train(encoder, optimizer, x, edge_index, 3)
    saved = copy.deepcopy({"encoder": encoder.state_dict(), "optimizer": optimizer.state_dict()})
    resumed = build(dropout=0.5)
    resumed.load_state_dict(saved["encoder"])
    resumed_optimizer = torch.optim.Adam(resumed.parameters(), lr=0.01)
    resumed_optimizer.load_state_dict(saved["optimizer"])
    uninterrupted = train(encoder, optimizer, x, edge_index, 3)
    assert train(resumed, resumed_optimizer, x, edge_index, 3) == uninterrupted
    assert all(torch.equal(a, b) for a, b in zip(encoder.parameters(), resumed.parameters(), strict=True))


def test_bfloat16_autocast_is_close_to_float32():
    """Within 2 % of the norm: bfloat16 has 8 bits, and e^(g / tau) does not amplify its rounding."""
    encoder, (x, edge_index) = build(hidden_channels=16), graph()
    exact, exact_loss = encoder.forward_with_auxiliary(x, edge_index, noise_seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, loss = encoder.forward_with_auxiliary(x, edge_index, noise_seed=1)
        (out.float().sum() + loss).backward()
    assert (out.float() - exact).norm() < 0.02 * exact.norm()
    assert abs(loss.item() - exact_loss.item()) < 0.02 * abs(exact_loss.item())
    assert all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters())


def test_bfloat16_parameters():
    encoder, (x, edge_index) = build(hidden_channels=16), graph()
    exact = encoder.eval()(x, edge_index)
    out = encoder.bfloat16()(x.bfloat16(), edge_index)
    assert out.dtype == torch.bfloat16
    assert (out.float() - exact).norm() < 0.05 * exact.norm()


@pytest.mark.slow
def test_the_compiled_encoder_equals_the_eager_one():
    """Up to float32 rounding, because the compiler changes the order of sums."""
    backend = "inductor" if shutil.which("c++") or shutil.which("g++") else "aot_eager"
    encoder, (x, edge_index) = build(dropout=0.5), graph()
    compiled = torch.compile(encoder, backend=backend)
    for training in (True, False):
        encoder.train(training)
        expected = encoder(x, edge_index, noise_seed=1)
        expected_grads = torch.autograd.grad(expected.square().sum(), list(encoder.parameters()))
        out = compiled(x, edge_index, noise_seed=1)
        grads = torch.autograd.grad(out.square().sum(), list(encoder.parameters()))
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)
        for name, a, e in zip(dict(encoder.named_parameters()), grads, expected_grads, strict=True):
            torch.testing.assert_close(
                a, e, atol=1e-4, rtol=1e-3, msg=lambda t, n=name: f"{backend} {n}: {t}"
            )
