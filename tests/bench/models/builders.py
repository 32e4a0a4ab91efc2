"""Small random models and tokenizers, built from configs in a moment and always the same."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    DPRConfig,
    DPRContextEncoder,
    DPRQuestionEncoder,
    MPNetConfig,
    MPNetModel,
    PreTrainedTokenizerFast,
)

from bench.flops.architecture import architecture_from_config
from bench.models.api import Geometry, ModelFacts
from bench.models.language_model import CausalLanguageModel
from bench.models.tokenizer import TextTokenizer

VOCAB = 512
SPECIAL = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|pad|>",
]
TEMPLATE = (
    "{{ bos_token }}"
    "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nToday is {{ date_string }}.<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
"""Laid out like Llama 3's, which writes today's date unless it is given one."""
CORPUS = (
    "Mara Feld hid the red kite in the old mill. Yes, she sold it to Otto Brand. No, he did not keep it.",
    "Information: the baker walked to the harbour; the question is where she lived before the fair.",
    "* Summary point: the lighthouse keeper, the river, the winter of 1842.\n* Another point: naïve café.",
)


@lru_cache(maxsize=4)
def tokenizer_json() -> str:
    """A byte-level BPE of 512 entries whose post-processor adds a BOS, as Llama 3's does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A $B",
        special_tokens=[("<|begin_of_text|>", 0)],
    )
    return str(tokenizer.to_str())


def hf_tokenizer(chat_template: str | None = TEMPLATE) -> Any:
    """The tokenizer as transformers sees it."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer_json()),
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
        pad_token="<|pad|>",
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def text_tokenizer(chat_template: str | None = TEMPLATE) -> TextTokenizer:
    return TextTokenizer("test", hf_tokenizer(chat_template))


def byte_fallback_tokenizer() -> TextTokenizer:
    """SentencePiece-like: a space is put before the text, and unknown characters become bytes."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for piece in ["▁", "a", "b", "h", "i", "▁h", "▁hi"]:
        vocab[piece] = len(vocab)
    merges = [("▁", "h"), ("▁h", "i")]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return TextTokenizer("test", PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>"))


_CAUSAL: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "num_hidden_layers": 3},
    "llama-bias": {
        "num_key_value_heads": 4, "num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True,
        "tie_word_embeddings": True, "head_dim": 16,
    },
    "mistral": {"num_key_value_heads": 4, "num_hidden_layers": 2, "sliding_window": 48},
    "mixtral": {
        "num_key_value_heads": 4, "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
    },
    "gemma": {"num_key_value_heads": 8, "num_hidden_layers": 2, "head_dim": 16},
    "qwen2": {"num_key_value_heads": 2, "num_hidden_layers": 2, "tie_word_embeddings": True},
    "phi": {"num_hidden_layers": 2, "qk_layernorm": True, "rope_parameters": {"partial_rotary_factor": 0.5}},
}  # fmt: skip
CAUSAL_FAMILIES = tuple(_CAUSAL)
_ENCODERS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "bert": (BertConfig, BertModel, {"max_position_embeddings": 96}),
    "mpnet": (MPNetConfig, MPNetModel, {"max_position_embeddings": 98}),
    "dpr-question": (DPRConfig, DPRQuestionEncoder, {"max_position_embeddings": 96}),
    "dpr-context": (DPRConfig, DPRContextEncoder, {"max_position_embeddings": 96, "projection_dim": 24}),
}
ENCODER_FAMILIES = tuple(_ENCODERS)


def causal_model(family: str, attention: str = "sdpa", **overrides: Any) -> Any:
    """A random decoder of the family: hidden 64, 8 heads, weights large enough for varied greedy text."""
    common: dict[str, Any] = {
        **{"vocab_size": VOCAB, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 112},
        **{"max_position_embeddings": 1024, "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 1},
        "attn_implementation": attention,
    }
    torch.manual_seed(7)
    config = AutoConfig.for_model(family.partition("-")[0], **{**common, **_CAUSAL[family], **overrides})
    model = AutoModelForCausalLM.from_config(config)
    if family == "mixtral" and attention == "eager":
        model.set_experts_implementation("eager")  # plain products, which a counter sees
    return model.eval().requires_grad_(False)


def encoder_model(family: str = "bert", attention: str = "eager", seed: int = 7) -> Any:
    """A random encoder of the family: hidden 32, 4 heads, 2 layers."""
    config_type, model_type, options = _ENCODERS[family]
    torch.manual_seed(seed)
    config = config_type(
        vocab_size=VOCAB,
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=2,
        intermediate_size=48,
        attn_implementation=attention,
        **options,
    )
    return model_type(config).eval().requires_grad_(False)


GEOMETRY = Geometry(chunk_tokens=24, window=512, input_limit=1024, summary_tokens=64)


def language_model(
    family: str = "llama", *, attention: str = "sdpa", dtype: torch.dtype = torch.float32, **overrides: Any
) -> CausalLanguageModel:
    """A random model behind the async interface, whose conversations share nothing."""
    model = causal_model(family, attention, **overrides).to(dtype)
    facts = ModelFacts(family, GEOMETRY, architecture_from_config(model.config))
    lm = CausalLanguageModel(facts, text_tokenizer(), model)
    lm.engine.scheduler.share_prefixes = False
    return lm


def model_by_formula(template: str) -> CausalLanguageModel:
    """A Qwen2 with two key heads a layer, whose weights are sines of their place, with a token a byte."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    model = causal_model("qwen2", vocab_size=256, **sizes, tie_word_embeddings=False)
    at = 0
    for name, weight in sorted(model.named_parameters()):
        place = torch.arange(at, at + weight.numel(), dtype=torch.float64)
        wave = torch.sin(place * place).reshape(weight.shape)
        weight.copy_(1 + 0.2 * wave if "norm" in name else 0.4 * wave)
        at += weight.numel()
    vocab = {byte: at for at, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    hf = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
    facts = ModelFacts(
        "by formula", replace(GEOMETRY, chunk_tokens=64), architecture_from_config(model.config)
    )
    return CausalLanguageModel(facts, TextTokenizer("bytes", hf), model)


def save_causal(folder: Path, family: str = "llama", **overrides: Any) -> Path:
    """A model folder as ``save_pretrained`` writes it: config, tokenizer, safetensors."""
    causal_model(family, **overrides).save_pretrained(folder)
    hf_tokenizer().save_pretrained(folder)
    return folder


def save_plain_encoder(folder: Path, family: str = "bert", seed: int = 7) -> Path:
    """A plain transformers folder of an encoder, which does not say how its vectors are pooled."""
    encoder_model(family, "sdpa", seed).save_pretrained(folder)
    hf_tokenizer(None).save_pretrained(folder)
    return folder


def save_cross_encoder(folder: Path, labels: int = 1) -> Path:
    """A folder of a random BERT with ``labels`` outputs for a pair of texts."""
    torch.manual_seed(7)
    config = encoder_model("bert").config
    config.num_labels, config.initializer_range = labels, 0.3
    BertForSequenceClassification(config).save_pretrained(folder)
    hf_tokenizer(None).save_pretrained(folder)
    return folder


def save_encoder(folder: Path, pooling: str = "mean", normalise: bool = True) -> Path:
    """A sentence-transformers folder around a random BERT."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    plain = folder.parent / f"{folder.name}-transformer"
    encoder_model("bert", "sdpa").save_pretrained(plain)
    hf_tokenizer(None).save_pretrained(plain)
    transformer = Transformer(str(plain), max_seq_length=32)
    modules: list[Any] = [transformer, Pooling(32, pooling_mode=pooling)]
    if normalise:
        modules.append(Normalize())
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return folder
