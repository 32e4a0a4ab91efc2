"""``bench serve``: put models of this machine behind an OpenAI-compatible address on 127.0.0.1."""

from __future__ import annotations

import click

from bench.cli.options import dtype_option, threads_option


@click.command(name="serve")
@click.option(
    "--model",
    "models",
    multiple=True,
    default=("tiny",),
    show_default=True,
    help="preset, hub id or folder; repeat",
)
@click.option("--port", type=click.IntRange(min=0, max=65535), default=8000, show_default=True)
@dtype_option
@threads_option
def command(models: tuple[str, ...], port: int, dtype: str | None, threads: int | None) -> None:
    """Serve models on this machine: completions (token ids or text), chat completions, embeddings.

    Other tools use http://127.0.0.1:PORT/v1; a run uses --model server:http://127.0.0.1:PORT/v1#MODEL.
    """
    from bench.errors import ConfigError
    from bench.models.model_set import load_embedder, load_language_model
    from bench.models.spec import resolve
    from bench.packages import READER, require
    from bench.run.threads import Threads

    require("bench serve", "uvicorn", "starlette", *READER)
    import uvicorn

    from bench.serve import HOST, Offered, build_app

    own_threads = Threads.begin(threads)
    specs = [resolve(name, dtype=dtype) for name in dict.fromkeys(models)]
    own_threads.settle(specs)
    offered = {}
    for spec in specs:
        if spec.actual_device == "server":
            raise ConfigError(f"--model {spec.name} is served already.")
        model = load_language_model(spec) if spec.kind == "causal" else load_embedder(spec)
        offered[spec.name] = Offered(model, spec.revision)
    click.echo(f"{', '.join(offered)} at http://{HOST}:{port}/v1; Ctrl-C ends it")
    uvicorn.run(build_app(offered), host=HOST, port=port, log_level="warning")
