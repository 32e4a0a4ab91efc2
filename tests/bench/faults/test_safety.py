"""What the project never does: unpickle, reach the network unasked, let a secret into what it keeps."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.run.redaction import HIDDEN, fault_text, redacted
from tests.bench.faults.runs import REPOSITORY

SOURCES = [
    path
    for folder in ("bench", "methods", "training", "performance")
    for path in (REPOSITORY / folder).rglob("*.py")
]

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
FORBIDDEN_CALLS = {
    "eval", "exec", "torch.load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "np.load", "numpy.load",
    "pandas.read_pickle", "pd.read_pickle", "os.system",
}  # fmt: skip
FORBIDDEN_ARGUMENTS = {"trust_remote_code": True, "allow_pickle": True, "shell": True, "weights_only": False}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def findings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (name for name in names if name.split(".")[0] in FORBIDDEN_MODULES)
        if isinstance(node, ast.Call):
            if dotted(node.func) in FORBIDDEN_CALLS:
                yield dotted(node.func)
            for keyword in node.keywords:
                wanted = FORBIDDEN_ARGUMENTS.get(keyword.arg or "")
                if wanted is not None and getattr(keyword.value, "value", None) is wanted:
                    yield f"{keyword.arg}={wanted}"


def test_nothing_is_unpickled_evaluated_or_trusted() -> None:
    assert len(SOURCES) > 100
    unsafe = {
        str(path.relative_to(REPOSITORY)): seen
        for path in SOURCES
        if (seen := list(findings(ast.parse(path.read_text("utf-8")))))
    }
    assert unsafe == {}
    bad = "import pickle\nfrom joblib import load\ntorch.load(x)\nf(trust_remote_code=True)\nnp.load(x)"
    assert len(list(findings(ast.parse(bad)))) == 5, "the search finds what it looks for"


WATCH = """
import os, socket, sys
def refuse(place):
    with open(os.environ["WATCH_FILE"], "a") as file: file.write(f"{place}\\n")
    raise OSError("no network here")
connect = socket.socket.connect
def watched(self, address):
    if self.family != socket.AF_UNIX: refuse(f"connect {address}")
    return connect(self, address)
socket.socket.connect = watched
socket.socket.connect_ex = lambda self, address: refuse(f"connect_ex {address}")
socket.getaddrinfo = lambda *arguments, **options: refuse(f"getaddrinfo {arguments[:2]}")
socket.gethostbyname = lambda name: refuse(f"gethostbyname {name}")
"""

SEVERAL = """
import json, sys
from bench.cli.main import main
codes = []
for arguments in json.loads(sys.argv[1]):
    try: main(arguments)
    except SystemExit as ended: codes.append(ended.code or 0)
print("exit codes", codes)
"""

SECRETS = {
    "HF_TOKEN": "hf_notforanybodyatall0123456789",
    "OPENAI_API_KEY": "sk-notforanybodyatall0123456789",
    "AWS_SECRET_ACCESS_KEY": "Zr1notforanybody",
    "MLFLOW_TRACKING_PASSWORD": "swordfish-77",
    "MLFLOW_TRACKING_USERNAME": "nobody-in-particular",
    "SOME_SERVICE_TOKEN": "t0ken-of-appreciation",
}


@pytest.mark.slow
def test_a_run_reaches_no_network_and_keeps_no_secret(tmp_path: Path) -> None:
    """A whole run, mirrored into its own store, in the default environment."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    watch, results = tmp_path / "watch.txt", tmp_path / "results"
    unwanted = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "BENCH_", "MLFLOW_", "DO_NOT_TRACK")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    environment |= {
        **SECRETS,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}",
        "WATCH_FILE": str(watch),
        "HF_HOME": str(tmp_path / "hub"),
        "HOME": str(tmp_path),
    }
    probe = "import socket; socket.create_connection(('127.0.0.1', 9))"
    subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, check=False)
    assert "127.0.0.1" in watch.read_text(), "the watch sees an attempt"
    watch.unlink()
    own = ["--limit", "1", "--results", str(results)]
    commands = [
        ["run", "--method", "sbert", "--dataset", "qasper", *own],
        ["run", "--method", "bm25", "--dataset", "qasper", "--model", "no-such-model-anywhere", *own],
    ]
    arguments = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "exit codes [0, 2]" in output, output
    assert not watch.exists(), watch.read_text()
    kept = [path for path in results.rglob("*") if path.is_file()]
    assert {"records.jsonl", "cell.json", "mlflow.db"} <= {path.name for path in kept}
    everything = b"\n".join(path.read_bytes() for path in kept) + output.encode()
    for name, secret in SECRETS.items():
        assert secret.encode() not in everything, f"the value of {name} was kept or shown"


def test_a_secret_in_an_exception_does_not_reach_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    for secret in SECRETS.values():
        message = fault_text(ConnectionError(f"401 for https://me:{secret}@api.example/v1, Bearer {secret}"))
        assert secret not in message
        assert message.startswith("ConnectionError: 401 for https://***@api.example/v1")


def test_only_secrets_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYBOARD", "document")
    monkeypatch.setenv("TINY_TOKEN", "the")
    text = "the document at https://example.org/a@b has 3 tokens: hf_hub, sk-learn, ghp"
    assert redacted(text) == text
    assert redacted("hf_abcdefghijklmnopqrstuvwxyz") == HIDDEN
