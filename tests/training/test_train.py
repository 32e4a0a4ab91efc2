from pathlib import Path

import pytest
import torch

from bench.files.paths import ASSETS
from tests.training.schedules import STAGE, written
from training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from training.export import read_exported
from training.train import main


def run(folder: Path, *more: str) -> Checkpoint:
    schedule = written(folder, STAGE | {"mix": {"simple": 1, "repeat": 1}}, batch_tokens=256)
    common = ["--schedule", str(schedule), "--precision", "float32", "--threads", "1", "--no-compile"]
    main([str(folder / "run"), *common, *more])
    return load_checkpoint(folder / "run" / "checkpoint.safetensors")


def test_another_seed_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "--until", "1")
    with pytest.raises(ValueError, match="was trained with --seed 1, not 2"):
        run(tmp_path, "--seed", "2")


def test_a_run_from_exported_weights_begins_with_them_and_says_so(tmp_path: Path) -> None:
    start = run(tmp_path, "--from", "tiny-s", "--until", "0", "--minutes", "0.00001")
    _, weights = read_exported(ASSETS / "tiny-s")
    assert start.meta["step"] == 0 and start.meta["from"].startswith("tiny-s, weights sha256 ")
    assert all(torch.equal(start.average[name], weights[name]) for name in weights)
    later = run(tmp_path, "--until", "1")
    assert later.meta["step"] == 1 and later.meta["from"] == start.meta["from"]


def test_a_missing_or_damaged_checkpoint_says_so(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(FileNotFoundError, match="no checkpoint there"):
        load_checkpoint(path)
    save_checkpoint(Checkpoint({"a": torch.ones(2)}, {}, {}, {"step": 1}), path)
    assert load_checkpoint(path).meta == {"step": 1}
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="not a whole training checkpoint"):
        load_checkpoint(path)
