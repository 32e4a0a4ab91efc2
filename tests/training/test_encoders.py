from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from training.checkpoint import Checkpoint, load_checkpoint
from training.encoder_data import Notes
from training.encoders import TOKENIZER, DualEncoder, contrastive_loss, export, main


def run(folder: Path, *more: str) -> Checkpoint:
    main([str(folder), "--steps", "2", "--threads", "1", *more])
    return load_checkpoint(folder / "checkpoint.safetensors")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two steps."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


def test_an_interrupted_run_ends_with_the_same_weights(undisturbed: Path, tmp_path: Path) -> None:
    whole = load_checkpoint(undisturbed / "checkpoint.safetensors")
    run(tmp_path / "parts", "--until", "1")
    parts = run(tmp_path / "parts")
    assert whole.meta["step"] == parts.meta["step"] == 2
    assert whole.model.keys() == parts.model.keys()
    assert all(torch.equal(whole.model[k], parts.model[k]) for k in whole.model)
    with pytest.raises(ValueError, match="was trained with --seed 1, not 2"):
        run(undisturbed, "--seed", "2")


def test_a_positive_competes_with_negatives_and_no_other_positive() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.5, 3.0, -1.0]])
    positives = torch.tensor([[True, True, False], [False, True, False]])

    def softmax(one: float, rest: list[float]) -> float:
        return float(torch.tensor([one, *rest]).softmax(0)[0])

    first = -(np.log(softmax(2.0, [0.0])) + np.log(softmax(1.0, [0.0]))) / 2
    second = -np.log(softmax(3.0, [0.5, -1.0]))
    assert float(contrastive_loss(scores, positives)) == pytest.approx((first + second) / 2, rel=1e-5)


def test_the_exported_pair_gives_the_vectors_of_the_trained_one(undisturbed: Path, tmp_path: Path) -> None:
    from bench.models.loader import load_encoder
    from bench.models.spec import resolve
    from training.encoder_data import padded

    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.encode_special_tokens = True
    checkpoint = load_checkpoint(undisturbed / "checkpoint.safetensors")
    export(checkpoint, tmp_path / "out")
    trained = DualEncoder().eval()
    trained.load_state_dict(checkpoint.model)
    texts = ["Who hid the red key?", "Mara Oakby hid the red key in the old mill. <|eot_id|> It was late."]
    for role in ("query", "context"):
        model = load_encoder(resolve(str(tmp_path / "out" / role)), pooling="cls")
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
