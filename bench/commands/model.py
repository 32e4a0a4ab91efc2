"""``bench model``: what a model is, whether its files are here, and fetching them."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from bench.errors import ModelUnavailableError
from bench.models.presets import ModelSpec, resolve
from bench.models.sources import GgufPackageSource, HubSource, is_cached, local_folder


@click.group("model")
def command() -> None:
    """What a model is, whether its files are here, and fetching them."""


@command.command()
@click.argument("name")
def info(name: str) -> None:
    """Print one JSON document about NAME (preset, hub id or local folder); downloads no weights."""
    spec = resolve(name)
    preset = spec.preset
    document = {
        "name": spec.name,
        "label": spec.label,
        "kind": spec.kind,
        "source": str(spec.source),
        "revision": _revision(spec),
        "available": _availability(spec),
        "small_stand_in": spec.small,
        "caution": spec.caution or None,
        "parameters": spec.architecture.parameters,
        "architecture": asdict(spec.architecture),
        "geometry": asdict(spec.geometry) if spec.kind == "causal" else None,
        "dtype": spec.actual_dtype,
        "device": spec.actual_device,
        "attention": spec.attention,
        "chat": spec.chat if spec.kind == "causal" else None,
        "pooling": preset.pooling if preset else None,
        "normalised": preset.normalised if preset and preset.pooling else None,
        "max_tokens": preset.max_tokens if preset else None,
        "licence": preset.licence if preset else None,
        "description": preset.description if preset else None,
    }
    click.echo(json.dumps(document, indent=2))


@command.command("fetch")
@click.argument("name")
def fetch_command(name: str) -> None:
    """Fetch NAME's files (hub, package index) unless they are here, and verify them.

    A converted model in the cache that is damaged is replaced.
    """
    from bench.models import gguf_package, loader

    spec = resolve(name)
    if isinstance(spec.source, GgufPackageSource):
        gguf_package.fetch(spec.name, spec.source)
    folder = loader.fetch(spec)
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    click.echo(f"{spec.name}: {len(files)} file(s), {size:,.1f} MB, revision {spec.revision}, in {folder}")


def _availability(spec: ModelSpec) -> str:
    if isinstance(spec.source, GgufPackageSource):
        return "here" if local_folder(spec.source) else "to be fetched from the package index"
    if not isinstance(spec.source, HubSource):
        return "here"
    return "in the hub cache" if is_cached(spec.source) else "to be downloaded from the hub"


def _revision(spec: ModelSpec) -> str | None:
    """The pinned revision, or None where only the hub could tell and it cannot be asked."""
    try:
        return spec.revision
    except ModelUnavailableError:
        return None
