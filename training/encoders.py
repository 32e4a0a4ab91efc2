"""Trains the small encoders: ``python -m training.encoders RUN_DIR``; the same command goes on after a stop.

``tiny-dual``: two BERT encoders, one for questions and one for passages, the vector of the first token, dot
product: the design of DRAGON and DPR at a small scale. They start as copies of each other, so that a question
and a passage with the same words are near each other from the first step on.

``tiny-sentence``: one encoder for every text, the mean of the tokens' vectors, cosine: the design of SBERT.
It learns from notes as well, the short statements that a graph or a tree has for nodes.

Both are trained with InfoNCE over all passages of a batch.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import math
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bench.files.paths import ASSETS
from training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from training.encoder_data import EncoderBatch, Notes, make_batch
from training.export import write_checksums
from training.generator.names import NameSource
from training.tokenizer import BOS, EOT, HEADER_END, HEADER_START, PAD

if TYPE_CHECKING:
    from transformers import BertConfig, BertModel

log = logging.getLogger(__name__)
TOKENIZER = ASSETS / "tiny" / "tokenizer.json"
MAX_TOKENS = 256
STEPS = 1600
WARMUP = 100
LEARNING_RATE = 1.5e-3
WEIGHT_DECAY = 0.01
LOG_EVERY = 50
PIECE = 64
"""Texts of nearly the same length that are encoded together."""
TEMPERATURE = 0.05
"""By which cosines are divided before they compete."""
EVENNESS = 8.0
"""Gain of the first layer's sum of words: the mean of 64 unrelated vectors is an eighth as long as each."""


def main(arguments: list[str] | None = None) -> None:
    """Command line of the training run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="directory of the run; resumed if it has a checkpoint")
    parser.add_argument("--model", choices=list(MODELS), default="tiny-dual", help="of a new run")
    parser.add_argument("--steps", type=int, default=STEPS, help="length of the whole run")
    parser.add_argument("--until", type=int, default=0, help="stop before this step (0: the run's end)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=float, default=2.0, help="minutes between checkpoints")
    parser.add_argument("--export", type=Path, nargs="?", const=ASSETS,
                        help="instead of training, write the run's encoders to a folder of the model's name "
                        "in this one (default: the shipped models)")  # fmt: skip
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if options.export:
        trained = load_checkpoint(options.run / "checkpoint.safetensors")
        export(trained, options.export / trained.meta["model"])
    else:
        train(options)


def bert_config() -> BertConfig:
    """The shape of each encoder."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=2048,
        hidden_size=192,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=512,
        max_position_embeddings=MAX_TOKENS,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
    )


class DualEncoder(nn.Module):
    """A question encoder and a passage encoder of one shape; weights of their own, equal at the start."""

    notes: Notes = "none"

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertModel

        self.query = BertModel(bert_config(), add_pooling_layer=False)
        gather_words(self.query)
        self.context = copy.deepcopy(self.query)

    def forward(self, questions: Tensor, passages: Tensor) -> Tensor:
        """Dot products, (questions, passages), of ids (n, length) padded with 0."""
        size: int = self.query.config.hidden_size
        q = self.query(questions, attention_mask=questions != 0).last_hidden_state[:, 0]
        p = self.context(passages, attention_mask=passages != 0).last_hidden_state[:, 0]
        return (q.float() @ p.float().T) / math.sqrt(size)

    def folders(self) -> dict[str, BertModel]:
        """The encoders by the folder in which they are written."""
        return {"query": self.query, "context": self.context}


class SentenceEncoder(nn.Module):
    """One encoder for questions and passages alike; a text's vector is the mean of its tokens', of length 1.

    It starts at random: a mean of words is near the mean of some of them from the first step on.
    """

    notes: Notes = "drawn"

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertModel

        self.encoder = BertModel(bert_config(), add_pooling_layer=False)
        with torch.no_grad():
            words = self.encoder.embeddings.word_embeddings.weight
            words.normal_(std=words.shape[1] ** -0.5)
            words[0] = 0

    def forward(self, questions: Tensor, passages: Tensor) -> Tensor:
        """Cosines over the temperature, (questions, passages), of ids (n, length) padded with 0."""
        return self._vectors(questions) @ self._vectors(passages).T / TEMPERATURE

    def _vectors(self, ids: Tensor) -> Tensor:
        lengths = (ids != 0).sum(1)
        order = lengths.argsort()
        pieces = [self._means(ids[rows, : int(lengths[rows].max())]) for rows in order.split(PIECE)]
        return torch.cat(pieces)[order.argsort()]

    def _means(self, ids: Tensor) -> Tensor:
        mask = ids != 0
        states = self.encoder(ids, attention_mask=mask).last_hidden_state.float()
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return nn.functional.normalize(means, dim=-1)

    def folders(self) -> dict[str, BertModel]:
        """The encoder by the folder in which it is written: the model's own."""
        return {"": self.encoder}


MODELS: dict[str, type[DualEncoder | SentenceEncoder]] = {
    "tiny-dual": DualEncoder,
    "tiny-sentence": SentenceEncoder,
}


@torch.no_grad()
def gather_words(encoder: Any) -> None:
    """Sets the start: random word vectors, which the first layer's attention sums up into the first token.

    Query and key are small, so attention is nearly even; value and output pass the words through. From a
    common random start the loss does not leave that of guessing for some hundred steps.
    """
    size = encoder.config.hidden_size
    words = encoder.embeddings.word_embeddings.weight
    words.normal_(std=size**-0.5)
    words[0] = 0
    attention = encoder.encoder.layer[0].attention
    attention.self.value.weight.copy_(torch.eye(size))
    attention.output.dense.weight.copy_(EVENNESS * torch.eye(size))


def contrastive_loss(scores: Tensor, positives: Tensor) -> Tensor:
    """InfoNCE, the mean over questions and their positives; a positive competes with no other positive.

    scores: (questions, passages), float; positives: the same shape, bool, one or more in each row.
    """
    negatives = torch.logsumexp(scores.masked_fill(positives, float("-inf")), -1, keepdim=True)
    each = torch.logaddexp(scores, negatives) - scores
    per_question = (each * positives).sum(-1) / positives.sum(-1)
    return per_question.mean()


def train(options: argparse.Namespace) -> None:
    """Runs or resumes training as the options say; raises ValueError for another model or seed."""
    from tokenizers import Tokenizer

    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    run: Path = options.run
    run.mkdir(parents=True, exist_ok=True)
    path = run / "checkpoint.safetensors"
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.encode_special_tokens = True
    bos = tokenizer.token_to_id(BOS)
    model = MODELS[options.model]().train()
    optimizer = torch.optim.AdamW(
        model.parameters(), LEARNING_RATE, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY
    )
    step, seconds = 0, 0.0
    if path.is_file():
        start = load_checkpoint(path)
        for name in ("model", "seed"):
            before, now = start.meta[name], getattr(options, name)
            if before != now:
                raise ValueError(f"{run}: was trained with --{name} {before}, not {now}")
        model.load_state_dict(start.model, strict=True)
        _load_optimizer(optimizer, start.optimizer)
        step, seconds = start.meta["step"], start.meta["seconds"]
    began = saved = time.monotonic()

    def save() -> None:
        meta = {
            "model": options.model,
            "step": step,
            "seconds": seconds + time.monotonic() - began,
            "seed": options.seed,
        }
        save_checkpoint(Checkpoint(dict(model.state_dict()), {}, _optimizer_tensors(optimizer), meta), path)

    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    names = NameSource("train")
    losses: list[float] = []
    first: list[float] = []
    while step < min(options.until or options.steps, options.steps) and not asked_to_stop.is_set():
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * rate(step, options.steps)
        batch = make_batch(step, options.seed, tokenizer, bos, names, MODELS[options.model].notes)
        loss, hit = _step(model, batch, getattr(torch, options.precision))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        losses.append(float(loss.detach()))
        first.append(hit)
        if step % LOG_EVERY == 0:
            line = {
                "step": step,
                "seconds": round(seconds + time.monotonic() - began),
                "loss": round(sum(losses) / len(losses), 4),
                "first_is_positive": round(sum(first) / len(first), 4),
            }
            with (run / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            log.info("%s", json.dumps(line))
            losses, first = [], []
        if time.monotonic() - saved > 60 * options.save_every:
            save()
            saved = time.monotonic()
    save()


def rate(step: int, steps: int) -> float:
    """Share of the learning rate: a linear rise, then a linear fall to a fiftieth."""
    return min((step + 1) / WARMUP, 1.0) * (1 - 0.98 * step / steps)


def _step(
    model: DualEncoder | SentenceEncoder, batch: EncoderBatch, dtype: torch.dtype
) -> tuple[Tensor, float]:
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        scores = model(torch.from_numpy(batch.questions), torch.from_numpy(batch.passages))
    positives = torch.from_numpy(batch.positives)
    best = scores.detach().argmax(-1, keepdim=True)
    return contrastive_loss(scores, positives), float(positives.gather(1, best).float().mean())


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def export(checkpoint: Checkpoint, out: Path) -> None:
    """Writes a run's encoders as Hugging Face folders with float16 weights and the tokenizer."""
    model = MODELS[checkpoint.meta["model"]]()
    model.load_state_dict(checkpoint.model, strict=True)
    with tempfile.TemporaryDirectory() as folder:
        for role, encoder in model.folders().items():
            draft = Path(folder) / role
            encoder.to(torch.float16).save_pretrained(draft)
            save_tokenizer(draft)
            write_checksums(draft)
            (out / role).mkdir(parents=True, exist_ok=True)
            for file in draft.iterdir():
                shutil.copyfile(file, out / role / file.name)
    log.info("%s: step %d", out, checkpoint.meta["step"])


def save_tokenizer(folder: Path) -> None:
    """The tokenizer of ``tiny`` with its first control token before every text, as BERT has its CLS."""
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer.from_file(str(TOKENIZER))
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, backend.token_to_id(BOS))]
    )
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token=BOS,
        pad_token=PAD,
        additional_special_tokens=[EOT, HEADER_START, HEADER_END],
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
        split_special_tokens=True,
    )
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
