"""The path of a GPU run, on the processor: data processes, slices, parts, export and figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.schedules import STAGE, written
from training import checkpoint as checkpoint_module, evaluate
from training.checkpoint import Checkpoint, compact_average, load_checkpoint, save_checkpoint
from training.train import main

MIX = {"simple": 1, "read_first": 1, "walk": 1}
SHORT_STAGE = STAGE | {"steps": 8, "lengths": {128: 0.5, 256: 0.5}, "mix": MIX}
COMMON = ("--size", "tiny-s", "--precision", "float32", "--threads", "1", "--no-compile", "--workers", "2")


def test_slices_end_like_one_run_and_its_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "MOST_BYTES", 2 * 2**20)
    monkeypatch.setattr(evaluate, "ONE_HOP_FACTS", {170: 9})
    common = [*COMMON, "--schedule", str(written(tmp_path, SHORT_STAGE, batch_tokens=256, warmup=4))]
    main([str(tmp_path / "whole"), *common])
    main([str(tmp_path / "slices"), *common, "--until", "3"])
    main([str(tmp_path / "slices"), *common, "--then", "export,evaluate", "--evaluate-scale", "0"])
    whole, slices = (load_checkpoint(tmp_path / r / "checkpoint.safetensors") for r in ("whole", "slices"))
    assert slices.meta["step"] == 8
    for part in ("model", "average", "optimizer"):
        ours, theirs = getattr(slices, part), getattr(whole, part)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    parts = sorted((tmp_path / "slices").glob("checkpoint*"))
    assert len(parts) > 3 and max(path.stat().st_size for path in parts) < 2 * 2**20 + 10_000
    assert {path.name.split(".")[1] for path in parts} == {"8", "safetensors"}  # of no earlier step
    assert (tmp_path / "slices" / "model" / "model.safetensors").is_file()
    lines = (tmp_path / "slices" / "evaluation.jsonl").read_text().splitlines()
    assert {json.loads(line)["figure"] for line in lines} == {"one_hop_exact_match", "one_hop_question_first"}


def test_a_part_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "MOST_BYTES", 8)
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(Checkpoint({"a": torch.ones(2), "b": torch.ones(2)}, {}, {}, {"step": 3}), path)
    assert load_checkpoint(path).model.keys() == {"a", "b"}
    (tmp_path / "checkpoint.3.2.safetensors").unlink()
    with pytest.raises(ValueError, match=r"not a whole training checkpoint.*checkpoint\.3\.2"):
        load_checkpoint(path)
    with pytest.raises(ValueError, match="a has 12 bytes, a part of a checkpoint at most 8"):
        save_checkpoint(Checkpoint({"a": torch.ones(3)}, {}, {}, {"step": 4}), path)


def test_a_compact_average_is_closer_than_its_float16_export(tmp_path: Path) -> None:
    model = {"w": torch.randn(1000, generator=torch.Generator().manual_seed(1))}
    average = {"w": model["w"] + 0.01 * torch.randn(1000, generator=torch.Generator().manual_seed(2))}
    compact, path = compact_average(average, model), tmp_path / "checkpoint.safetensors"
    save_checkpoint(Checkpoint(model, compact, {}, {"step": 1}), path)
    restored = load_checkpoint(path).average["w"]  # the differences themselves were exported as weights
    assert (restored - average["w"]).abs().max() < 1e-4 * average["w"].abs().mean()
    again = checkpoint_module.restored_average(compact_average({"w": restored}, model), model)["w"]
    assert torch.equal(again, restored)
    assert checkpoint_module.restored_average(average, model)["w"] is average["w"]


def test_training_needs_few_packages() -> None:
    absent = "transformers", "huggingface_hub", "datasets", "sentence_transformers", "mlflow", "ray", "scipy"
    blocked = f"import sys; sys.modules.update(dict.fromkeys({absent})); import training.train"
    process = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
