"""A real server of one model, started and ended, from what ``make test-servers`` has installed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from bench.errors import BenchError
from bench.models.spec import resolve
from performance.measuring import REPOSITORY
from performance.to_gguf import write_gguf

SERVERS = REPOSITORY / "build" / "servers"
STARTS_WITHIN_S = 600.0
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
}
"""Nothing is fetched and nothing reported; keys and values take 2 GB."""


def command(kind: str, folder: Path, name: str, port: int, work: Path, *more: str) -> list[str]:
    """The command that serves the model in ``folder`` under ``name``, as docs/servers.md gives it.

    kind: ``vllm`` or ``llamacpp``, which may name the weights' number format: ``llamacpp:BF16``.
    """
    kind, _, weights = kind.partition(":")
    here = ["--host", "127.0.0.1", "--port", str(port), *more]
    if kind == "vllm":
        program = SERVERS / "vllm" / "bin" / "vllm"
        options = ["--served-model-name", name, "--dtype", "float32", "--enable-prompt-tokens-details"]
        return [str(program), "serve", str(folder), *options, "--enforce-eager", *here]
    file = work / f"{name}-{weights or 'F32'}.gguf"
    if not file.is_file():
        write_gguf(folder, file, weights or "F32")
    program = SERVERS / "llamacpp" / "bin" / "llama-server-vulkan"
    exact = ["--device", "none", "-fa", "off", "-ctk", "f32", "-ctv", "f32"]
    return [str(program), "-m", str(file), "--alias", name, "-c", "32768", "-np", "4", *exact, *here]


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(line: Sequence[str], port: int, log: Path) -> subprocess.Popen[bytes]:
    """The server's process, once it is ready; raises BenchError with the end of its log."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            ["nice", "-n", "5", *line],
            stdout=out,
            stderr=out,
            env={**os.environ, **_QUIET},
            cwd=log.parent,
            start_new_session=True,
        )
    until = time.monotonic() + STARTS_WITHIN_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return process
        time.sleep(0.5)
    stop(process)
    raise BenchError(f"{line[0]} did not start:\n{log.read_text(errors='replace')[-3000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and the processes that it has started; at once if it does not within 20 seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def serving(kind: str, folder: Path, name: str, work: Path, *more: str) -> Iterator[str]:
    """The address of a server that runs inside the block."""
    port = free_port()
    process = start(command(kind, folder, name, port, work, *more), port, work / f"{kind}.log")
    try:
        yield f"server:http://127.0.0.1:{port}/v1#{name}"
    finally:
        stop(process)


@click.command()
@click.argument("kind", type=click.Choice(("vllm", "llamacpp")))
def main(kind: str) -> None:
    """Start the installed server with the shipped model and end it; an error where it does not start."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with serving(kind, resolve("tiny").source.locate("tiny"), "tiny", Path(folder)):
                pass
        except BenchError as error:
            raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
