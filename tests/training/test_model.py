import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from bench.files.paths import ASSETS
from training.attention import amx_serves, attention
from training.export import llama_config, llama_weights, read_exported
from training.model import ModelConfig, TinyLlama
from training.optimizer import MuonAdam, orthogonalize

SMALL = ModelConfig(vocab_size=96, hidden_size=64, layers=2, heads=4, kv_heads=2, head_dim=32, ff_size=96)


@pytest.fixture
def model() -> TinyLlama:
    torch.manual_seed(0)
    return TinyLlama(SMALL)


def test_the_logits_are_those_of_llama(model: TinyLlama) -> None:
    from transformers import LlamaForCausalLM

    theirs = LlamaForCausalLM(llama_config(SMALL))
    weights = llama_weights(SMALL, dict(model.named_parameters()))
    theirs.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    ids = torch.randint(0, 96, (2, 40))
    with torch.no_grad():
        ours = model.logits(model.hidden(ids))
        assert torch.allclose(ours, theirs.eval()(ids).logits, atol=1e-4)


def test_the_loss_is_that_of_the_chosen_positions(model: TinyLlama) -> None:
    ids = torch.randint(0, 96, (2, 16))
    positions, weights = torch.tensor([3, 20, 0]), torch.tensor([1.0, 0.5, 0.0])
    targets = ids.reshape(-1)[positions + 1]
    loss, losses, _ = model(ids, positions, targets, weights)
    logits = model.logits(model.hidden(ids)).reshape(-1, 96)[positions]
    expected = F.cross_entropy(logits, targets, reduction="none")
    assert torch.allclose(losses, expected, atol=1e-5)
    assert loss.item() == pytest.approx(((expected[0] + 0.5 * expected[1]) / 1.5).item(), abs=1e-5)


@pytest.mark.parametrize("length", [64, 320])
def test_plain_and_fused_attention_agree(length: int) -> None:
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 3, length, 32) for _ in range(3))
    fused = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(attention(q, k, v), fused, atol=1e-5)


@pytest.mark.parametrize("length", [32, 96, 512])
def test_attention_on_tiles_is_as_exact_as_bfloat16_allows(length: int) -> None:
    if not amx_serves(torch.bfloat16, 32):
        pytest.skip("no AMX or no C++ compiler here")
    torch.manual_seed(2)
    tensors = [torch.randn(2, 3, length, 32).mul(s).bfloat16() for s in (3, 3, 1)]
    gradient = torch.randn(2, 3, length, 32).bfloat16()
    ours = [x.clone().requires_grad_() for x in tensors]
    exact = [x.float().requires_grad_() for x in tensors]
    y, z = attention(*ours, amx=True), F.scaled_dot_product_attention(*exact, is_causal=True)
    y.backward(gradient)
    z.backward(gradient.float())

    def error(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a.detach().float() - b.detach()).norm() / b.detach().norm())

    assert error(y, z) < 0.005
    for a, b in zip(ours, exact, strict=True):
        assert error(a.grad, b.grad) < 0.01


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    torch.manual_seed(3)
    for shape in ((2, 16, 64), (2, 64, 16)):
        values = torch.linalg.svdvals(orthogonalize(torch.randn(shape), torch.float32))
        assert values.min() > 0.5 and values.max() < 1.4


def test_the_optimiser_fits_a_line(model: TinyLlama) -> None:
    optimizer = MuonAdam(model)
    ids = torch.randint(0, 96, (2, 32))
    positions, weights = torch.arange(31), torch.ones(31)
    first = None
    for _ in range(30):
        loss, _, right = model(ids, positions, ids.reshape(-1)[positions + 1], weights)
        first = first or loss.item()
        loss.backward()
        optimizer.step(muon_lr=0.02, adam_lr=0.01, momentum=0.9)
    assert loss.item() < 0.2 * first
    assert right.float().mean() > 0.8


def test_exported_weights_are_read_back_as_they_were() -> None:
    config, weights = read_exported(ASSETS / "tiny")
    stored = load_file(ASSETS / "tiny" / "model.safetensors")
    assert config == ModelConfig()
    TinyLlama(config).load_state_dict(weights, strict=True)
    again = llama_weights(config, weights)
    assert again.keys() == stored.keys()
    assert all(torch.equal(again[name], stored[name].float()) for name in stored)
