import pytest
import torch
from helpers.memory import MemoryRecorder
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from graphzoo.errors import UsageError
from graphzoo.layers import NoiseStream, masked_attention
from graphzoo.layers.attention import _attend_with_global_noise, _global_state_of
from graphzoo.layers.noise import draw_kept

B, H, Q, T, D = 3, 2, 5, 7, 4
MASKS = {"none": None, "some": torch.arange(T) < torch.tensor([7, 3, 1])[:, None]}


def tensors(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, n, H, D) for n in (Q, T, T)]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    # In memory, heads follow tokens, as in the output of a linear layer.
    return [x.requires_grad_().transpose(1, 2) for x in made]


def explicit(query, key, value, mask, factors):
    logits = query @ key.transpose(-1, -2) / D**0.5
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None, None], -torch.inf)
    return (logits.softmax(-1) * factors) @ value


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.6])
def test_output_and_gradients_equal_the_explicit_form(mask, p):
    inputs, seed = tensors(), 5
    out = masked_attention(*inputs, MASKS[mask], p=p, generator=NoiseStream(0).generator(seed, "cpu"))
    factors = torch.ones(B, H, Q, T)
    if p:
        keep, scale = draw_kept(torch.empty(B * H, Q, T), p, NoiseStream(0).generator(seed, "cpu"))
        factors = keep.double().view(B, H, Q, T) * scale
    expected = explicit(*inputs, MASKS[mask], factors)
    torch.testing.assert_close(out, expected, atol=1e-11, rtol=1e-11)
    direction = torch.randn_like(out)
    actual = torch.autograd.grad(out, inputs, direction)
    for a, e in zip(actual, torch.autograd.grad(expected, inputs, direction), strict=True):
        torch.testing.assert_close(a, e, atol=1e-11, rtol=1e-11)


def test_dropout_keeps_the_mean():
    query, key, value = (x.detach() for x in tensors(torch.float32))
    noise = NoiseStream(0)
    drawn = [
        masked_attention(query, key, value, MASKS["some"], p=0.3, generator=noise.generator(None, "cpu"))
        for _ in range(4000)
    ]
    mean, spread = torch.stack(drawn).mean(0), torch.stack(drawn).std(0)
    expected = masked_attention(query, key, value, MASKS["some"])
    assert spread.min() > 0.01
    assert ((mean - expected).abs() < 5.5 * spread / 4000**0.5 + 1e-6).all()


def test_the_backward_pass_keeps_one_matrix_per_head():
    """Besides the output, one matrix [Q, T] per head is kept. The peak of the forward pass is three."""
    query, key, value = (torch.randn(2, 4, 96, 8, requires_grad=True) for _ in range(3))
    with MemoryRecorder() as recorder:
        out = masked_attention(query, key, value, p=0.1, generator=NoiseStream(0).generator(1, "cpu"))
        matrix = 2 * 4 * 96 * 96 * 4
        kept = sum(recorder._live.values())
    assert matrix <= kept < 1.5 * matrix
    assert recorder.peak_bytes < 4 * matrix
    out.sum().backward()


def test_autocast_does_not_change_the_precision():
    inputs, grads = tensors(torch.float32), []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out = masked_attention(*inputs, p=0.3, generator=NoiseStream(0).generator(1, "cpu"))
        assert out.dtype == torch.float32
        grads.append([out.detach(), *torch.autograd.grad(out.square().sum(), inputs)])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_nothing_is_drawn_without_dropout():
    assert masked_attention(*tensors(), p=0.0, generator=None).shape == (B, H, Q, D)
    with pytest.raises(ValueError, match="dropout needs a generator"):
        masked_attention(*tensors(), p=0.1)


def test_a_generator_replaces_the_global_one():
    """On CUDA, torch's kernels draw from the global generator, which therefore gets the state of another."""
    mine, twin = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    torch.rand(3)
    before = torch.get_rng_state()
    with _global_state_of(mine):
        drawn = torch.rand(4)
    assert torch.equal(drawn, torch.rand(4, generator=twin))
    assert torch.equal(torch.rand(2, generator=mine), torch.rand(2, generator=twin))
    with pytest.raises(KeyError), _global_state_of(mine):
        torch.rand(4)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)


def test_torchs_kernels_draw_from_the_given_generator():
    inputs, mask = tensors(), MASKS["some"][:, None, None]

    def attend(seed):
        return _attend_with_global_noise(*inputs, mask, 0.5, torch.Generator().manual_seed(seed))

    before = torch.get_rng_state()
    out = attend(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(7)
    assert torch.equal(attend(1), out) and not torch.equal(attend(2), out)
    torch.manual_seed(1)
    assert torch.equal(F.scaled_dot_product_attention(*inputs, attn_mask=mask, dropout_p=0.5), out)


@pytest.mark.parametrize(("device", "taken"), [("cuda", False), ("cpu", True)])
@pytest.mark.parametrize("flash", [True, False])
def test_attention_on_cuda_does_not_use_cudnn(monkeypatch, device, taken, flash):
    """cuDNN makes a plan for every new shape. The switches are as before after the call."""
    seen, switches = [], (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.flash_sdp_enabled)
    monkeypatch.setattr(
        F,
        "scaled_dot_product_attention",
        lambda *given, **named: seen.append([is_on() for is_on in switches]),
    )
    torch.backends.cuda.enable_flash_sdp(flash)
    try:
        before = [is_on() for is_on in switches]
        with FakeTensorMode():
            masked_attention(*(torch.empty(B, H, n, D, device=device) for n in (Q, T, T)))
        assert seen == [[taken, flash]] and [is_on() for is_on in switches] == before == [True, flash]
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


@pytest.mark.gpu
def test_noise_on_cuda_depends_on_the_seed_and_not_on_the_global_state():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    inputs = [x.detach().cuda().requires_grad_() for x in tensors(torch.float32)]
    mask, noise = MASKS["some"].cuda(), NoiseStream(0)
    before = torch.cuda.get_rng_state()

    def attend(seed):
        generator = noise.generator(seed, "cuda")
        return [masked_attention(*inputs, mask, p=0.5, generator=generator) for _ in range(2)]

    first, again = attend(1), attend(1)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], attend(2)[0])
    grads = [torch.autograd.grad(out.sum(), inputs) for out in (first[0], again[0])]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("p", [1.0, -0.5])
def test_a_dropout_probability_out_of_range_is_refused(p):
    query = torch.randn(1, 1, 2, 4)
    with pytest.raises(UsageError, match="p must be at least 0 and below 1"):
        masked_attention(query, query, query, p=p, generator=torch.Generator())


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_values_may_be_wider_than_queries(p):
    query, key, value = tensors()
    wider = torch.cat([value, value], dim=-1)
    made = [
        masked_attention(query, key, one, p=p, generator=NoiseStream(0).generator(1, "cpu"))
        for one in (value, wider)
    ]
    torch.testing.assert_close(made[1], torch.cat([made[0], made[0]], dim=-1))
