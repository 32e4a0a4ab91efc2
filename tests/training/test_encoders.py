import random
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from bench.models.api import Tokenization
from training.checkpoint import Checkpoint, load_checkpoint
from training.encoder_data import Notes, draw_group, make_batch
from training.encoders import (
    TEMPERATURE,
    TOKENIZER,
    DualEncoder,
    SentenceEncoder,
    contrastive_loss,
    export,
    main,
)
from training.generator.names import NameSource


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    loaded = Tokenizer.from_file(str(TOKENIZER))
    loaded.encode_special_tokens = True
    return loaded


def run(folder: Path, *more: str) -> Checkpoint:
    main([str(folder), "--steps", "4", "--threads", "1", *more])
    return load_checkpoint(folder / "checkpoint.safetensors")


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    run(tmp_path / "parts", "--until", "2")
    parts = run(tmp_path / "parts")

    assert whole.meta["step"] == parts.meta["step"] == 4
    assert whole.model.keys() == parts.model.keys()
    assert all(torch.equal(whole.model[k], parts.model[k]) for k in whole.model)
    with pytest.raises(ValueError, match="was trained with --seed 1, not 2"):
        run(tmp_path / "whole", "--seed", "2")


def test_a_positive_competes_with_negatives_and_no_other_positive() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.5, 3.0, -1.0]])
    positives = torch.tensor([[True, True, False], [False, True, False]])

    def softmax(one: float, rest: list[float]) -> float:
        return float(torch.tensor([one, *rest]).softmax(0)[0])

    first = -(np.log(softmax(2.0, [0.0])) + np.log(softmax(1.0, [0.0]))) / 2
    second = -np.log(softmax(3.0, [0.5, -1.0]))
    assert float(contrastive_loss(scores, positives)) == pytest.approx((first + second) / 2, rel=1e-5)


def test_the_positive_passages_hold_the_answer_of_one_hop_questions(tokenizer: Tokenizer) -> None:
    def tokenize(text: str) -> Tokenization:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return Tokenization(tuple(encoding.ids), tuple(encoding.offsets))

    shared = total = 0
    for seed in range(12):
        group = draw_group(random.Random(seed), NameSource("train"), tokenize)
        assert len(group.questions) == len(group.positives) > 0
        assert all(0 <= i < len(group.passages) for own in group.positives for i in own)
        for question, own in zip(group.questions, group.positives, strict=True):
            names = {w for w in question.rstrip("?").split() if w[0].isupper()} - {"Who", "What", "Where"}
            text = " ".join(group.passages[i] for i in own)
            shared += any(name in text for name in names)
            total += 1
    assert shared / total > 0.75  # what asks by an object has no name in it, and pronouns stand for names


def test_a_batch_depends_on_seed_and_step_alone(tokenizer: Tokenizer) -> None:
    names = NameSource("train")
    first, again = (make_batch(3, 1, tokenizer, 1, names) for _ in range(2))
    other = make_batch(4, 1, tokenizer, 1, names)

    assert np.array_equal(first.passages, again.passages) and np.array_equal(first.positives, again.positives)
    assert first.positives.shape == (len(first.questions), len(first.passages))
    assert first.positives.any(-1).all()
    assert not np.array_equal(first.questions, other.questions)


def test_a_sentence_encoder_encodes_a_text_alike_among_longer_and_shorter_ones(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    model = SentenceEncoder().eval()
    batch = make_batch(0, 1, tokenizer, 1, NameSource("train"), "drawn")
    passages = torch.from_numpy(batch.passages[:131])
    questions = torch.from_numpy(batch.questions[:3])
    with torch.no_grad():
        together = model(questions, passages)
        for i in (0, 77, 130):
            own = passages[i : i + 1, : int((passages[i] != 0).sum())]
            assert torch.allclose(model(questions, own)[:, 0], together[:, i], atol=1e-4)
    assert together.abs().max() <= 1 / TEMPERATURE + 1e-3


def test_notes_tell_every_fact_of_the_document_once_when_they_stand_alone(tokenizer: Tokenizer) -> None:
    def tokenize(text: str) -> Tokenization:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return Tokenization(tuple(encoding.ids), tuple(encoding.offsets))

    plain = draw_group(random.Random(5), NameSource("train"), tokenize, chunk_tokens=75)
    single = draw_group(random.Random(5), NameSource("train"), tokenize, chunk_tokens=75, notes="single")
    assert len(single.passages) > len(plain.passages) and max(map(len, single.passages)) < 200
    assert all(1 <= len(own) <= 3 for own in single.positives)
    for question, own in zip(single.questions, single.positives, strict=True):
        if len(own) == 1:
            shared = set(question.rstrip("?").split()) & set(single.passages[own[0]].rstrip(".").split())
            assert shared - {"the", "of", "in", "a"}


def test_the_exported_pair_gives_the_vectors_of_the_trained_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    from sentence_transformers import SentenceTransformer

    from bench.models.loader import load_encoder
    from bench.models.spec import resolve
    from training.encoder_data import padded

    checkpoint = run(tmp_path / "run")
    export(checkpoint, tmp_path / "out")
    trained = DualEncoder().eval()
    trained.load_state_dict(checkpoint.model)
    texts = ["Who hid the red key?", "Mara Oakby hid the red key in the old mill. <|eot_id|> It was late."]
    for role in ("query", "context"):
        model = load_encoder(resolve(str(tmp_path / "out" / role)), pooling="cls")
        assert isinstance(model, SentenceTransformer)
        ids = torch.from_numpy(padded(texts, tokenizer, tokenizer.token_to_id("<|begin_of_text|>")))
        with torch.no_grad():
            wanted = getattr(trained, role)(ids, attention_mask=ids != 0).last_hidden_state[:, 0]
        assert np.abs(model.encode(texts) - wanted.numpy()).max() < 0.02  # float16 weights


@pytest.mark.parametrize(
    ("model", "notes"), [("tiny-dual", "none"), ("tiny-sentence", "none"), ("tiny-sentence", "single")]
)
def test_a_shipped_encoder_finds_what_the_start_does_not(model: str, notes: Notes) -> None:
    from bench.files.paths import ASSETS
    from training.encoder_evaluate import Ranker, held_out, recall, start, trained

    def first(ranker: Ranker) -> float:
        figures = recall(ranker, held_out(8, notes=notes))
        return next(float(f["value"]) for f in figures if f["questions"] == "one passage" and f["k"] == 1)

    assert first(trained(model, ASSETS / model)) > first(start(model)) + 0.15


def test_the_card_shows_every_ranker() -> None:
    from training.encoder_evaluate import card

    figures = [
        {"ranker": name, "questions": "one passage", "k": 1, "value": value, "n": 40}
        for name, value in (("tiny-dual", 0.8), ("bm25", 0.7))
    ]
    text = card("tiny-dual", figures, [{"step": 50, "seconds": 60, "loss": 2.0, "first_is_positive": 0.5}], 9)

    assert (
        "| questions | k | n | tiny-dual | bm25 |" in text
        and "| one passage | 1 | 40 | 0.80 | 0.70 |" in text
    )
    assert "50 steps of InfoNCE" in text and "1 minutes" in text
