"""Writes a checkpoint as a Hugging Face folder: ``python -m training.export RUN_DIR [NAME or OUT_DIR]``."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bench.files.paths import ASSETS
from bench.method.prompts import question_prompt
from training.checkpoint import Checkpoint, load_checkpoint
from training.generator.names import NameSource
from training.generator.rendering import chronicle
from training.generator.world import ask, make_world
from training.model import NORM_EPS, SIZES, ModelConfig, TinyLlama
from training.stream import Template
from training.tokenizer import BOS, CHAT_TEMPLATE, EOT, HEADER_END, HEADER_START, PAD

if TYPE_CHECKING:
    from transformers import LlamaConfig

log = logging.getLogger(__name__)
MOST_BYTES = 16 * 2**20
CHECKSUMS = "checksums.json"


def main(arguments: list[str] | None = None) -> None:
    """Command line of the export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", nargs="?", default="tiny", help="name of a shipped model, or a folder")
    parser.add_argument("--raw", action="store_true", help="the last weights instead of their moving average")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    out = ASSETS / options.out if options.out in SIZES else Path(options.out)
    checkpoint = load_checkpoint(options.run / "checkpoint.safetensors")
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder)
        export(checkpoint, options.run / "tokenizer.json", draft, raw=options.raw)
        counts = compare(checkpoint, draft, raw=options.raw)
        write_checksums(draft)
        out.mkdir(parents=True, exist_ok=True)
        for file in draft.iterdir():
            shutil.copyfile(file, out / file.name)
    log.info(
        "%s: step %d, %.1f M tokens, %s",
        out,
        checkpoint.meta["step"],
        checkpoint.meta["tokens"] / 1e6,
        counts,
    )


def llama_config(config: ModelConfig) -> LlamaConfig:
    """The configuration of the same model in transformers."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.ff_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=NORM_EPS,
        tie_word_embeddings=True,
        max_position_embeddings=config.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def llama_weights(config: ModelConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Fused training matrices as the separate ones of LlamaForCausalLM."""
    q, k, ff = config.heads * config.head_dim, config.kv_heads * config.head_dim, config.ff_size
    tensors = {"model.embed_tokens.weight": weights["embedding"], "model.norm.weight": weights["final_norm"]}
    for i in range(config.layers):
        own, theirs = f"blocks.{i}.", f"model.layers.{i}."
        qkv, gate_up = weights[own + "qkv.weight"], weights[own + "gate_up.weight"]
        tensors |= {
            theirs + "self_attn.q_proj.weight": qkv[:q],
            theirs + "self_attn.k_proj.weight": qkv[q : q + k],
            theirs + "self_attn.v_proj.weight": qkv[q + k :],
            theirs + "self_attn.o_proj.weight": weights[own + "out.weight"],
            theirs + "mlp.gate_proj.weight": gate_up[:ff],
            theirs + "mlp.up_proj.weight": gate_up[ff:],
            theirs + "mlp.down_proj.weight": weights[own + "down.weight"],
            theirs + "input_layernorm.weight": weights[own + "attention_norm"],
            theirs + "post_attention_layernorm.weight": weights[own + "mlp_norm"],
        }
    return {name: tensor.clone() for name, tensor in tensors.items()}


def read_exported(folder: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Sizes and float32 training weights of an exported folder: the inverse of ``llama_weights``.

    Raises:
        ValueError: if the folder holds no model that ``export`` wrote.
    """
    from safetensors.torch import load_file

    missing = [
        n for n in ("config.json", "model.safetensors", "tokenizer.json") if not (folder / n).is_file()
    ]
    if missing:
        raise ValueError(
            f"{folder}: no {', '.join(missing)} there; give a folder that training.export wrote, "
            "such as bench/assets/tiny"
        )
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = ModelConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        layers=raw["num_hidden_layers"],
        heads=raw["num_attention_heads"],
        kv_heads=raw["num_key_value_heads"],
        head_dim=raw["head_dim"],
        ff_size=raw["intermediate_size"],
        rope_theta=raw["rope_parameters"]["rope_theta"],
        max_positions=raw["max_position_embeddings"],
    )
    stored = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    weights = {"embedding": stored["model.embed_tokens.weight"], "final_norm": stored["model.norm.weight"]}
    for i in range(config.layers):
        own, theirs = f"blocks.{i}.", f"model.layers.{i}."
        weights |= {
            own + "qkv.weight": torch.cat([stored[f"{theirs}self_attn.{n}_proj.weight"] for n in "qkv"]),
            own + "out.weight": stored[theirs + "self_attn.o_proj.weight"],
            own + "gate_up.weight": torch.cat(
                [stored[f"{theirs}mlp.{n}_proj.weight"] for n in ("gate", "up")]
            ),
            own + "down.weight": stored[theirs + "mlp.down_proj.weight"],
            own + "attention_norm": stored[theirs + "input_layernorm.weight"],
            own + "mlp_norm": stored[theirs + "post_attention_layernorm.weight"],
        }
    return config, weights


def weights_digest(folder: Path) -> str:
    """SHA-256 of an exported folder's weights."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def export(checkpoint: Checkpoint, tokenizer_file: Path, out: Path, *, raw: bool = False) -> None:
    """Writes configuration, float16 weights, tokenizer with chat template and generation defaults.

    Raises:
        ValueError: if the weights came out larger than 16 MB.
    """
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    config = ModelConfig(**checkpoint.meta["config"])
    model = LlamaForCausalLM(llama_config(config))
    weights = llama_weights(config, checkpoint.model if raw else checkpoint.average)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, strict=True)
    model = model.to(torch.float16)
    model.generation_config.do_sample = False
    model.save_pretrained(out)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_file),
        bos_token=BOS,
        eos_token=EOT,
        pad_token=PAD,
        additional_special_tokens=[HEADER_START, HEADER_END],
        clean_up_tokenization_spaces=False,
        model_max_length=config.max_positions,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(out)
    inline = out / "chat_template.jinja"
    if inline.is_file():  # one file fewer: the template goes where older readers look for it, too
        path = out / "tokenizer_config.json"
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"chat_template": CHAT_TEMPLATE}, indent=2) + "\n"
        )
        inline.unlink()
    size = (out / "model.safetensors").stat().st_size
    if size > MOST_BYTES:
        raise ValueError(
            f"{out}: the weights take {size} bytes, at most {MOST_BYTES} may ship: train a smaller model"
        )


def write_checksums(out: Path) -> None:
    """SHA-256 of every file of the folder that a loader reads."""
    files = sorted(p for p in out.iterdir() if p.is_file() and p.name != CHECKSUMS and p.suffix != ".md")
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    (out / CHECKSUMS).write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")


def compare(checkpoint: Checkpoint, out: Path, *, raw: bool = False, questions: int = 8) -> dict[str, Any]:
    """Loads the folder as a user would and compares its answers with those of the training model.

    Returns:
        ``same_ids`` (prompts whose ids agree), ``same_answers`` and ``right``, counts out of ``questions``.

    Raises:
        ValueError: if a prompt's ids or an answer differ in more than one case (float16 may turn one).
    """
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(out)
    ours = TinyLlama(ModelConfig(**checkpoint.meta["config"])).eval()
    ours.load_state_dict(checkpoint.model if raw else checkpoint.average)
    template = Template(Tokenizer.from_file(str(out / "tokenizer.json")))
    rng = random.Random(5)
    counts = {"questions": questions, "same_ids": 0, "same_answers": 0, "right": 0}
    for _ in range(questions):
        world = make_world(rng, NameSource("held_out"), 4)
        qa = ask(rng, rng.choice(world.facts))
        prompt = question_prompt(chronicle(rng, world.facts).text, qa.question)
        encoded = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        ids = [*template.bos, *template.user, *template.encode(prompt), template.eot, *template.assistant]
        counts["same_ids"] += encoded["input_ids"][0].tolist() == ids
        made = theirs.generate(**encoded, max_new_tokens=24, do_sample=False)[0, len(ids) :].tolist()
        wanted = greedy(ours, ids, 24, template.eot)
        answer = tokenizer.decode(made, skip_special_tokens=True)
        counts["same_answers"] += made == wanted
        counts["right"] += answer == qa.answer
    if counts["same_ids"] < questions or counts["same_answers"] < questions - 1:
        raise ValueError(f"{out}: the exported model does not do what the trained one does: {counts}")
    return counts


@torch.no_grad()
def greedy(model: TinyLlama, ids: list[int], most: int, stop: int) -> list[int]:
    """The most likely continuation, token by token, without a cache; ends with the stop token."""
    line = list(ids)
    while len(line) < len(ids) + most:
        hidden = model.hidden(torch.tensor([line]))[:, -1:]
        line.append(int(model.logits(hidden).argmax(-1)))
        if line[-1] == stop:
            break
    return line[len(ids) :]


if __name__ == "__main__":
    main()
