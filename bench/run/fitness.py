"""Whether the small models of this project can read some documents: only what their own generator wrote.

Their tokenizer has 2,048 tokens, all learned from generated English. That text takes 1.5 of them for a word
(1.59 at most of any document set that is shipped), while in real text, whose words are unknown to it, a word
takes 2.1 and more (measured on eleven public data sets). A few thousand words decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bench.errors import ConfigError
from bench.models.packed import PackedSource
from bench.models.presets import REAL, presets
from bench.models.served.address import FORM
from bench.models.spec import ModelSpec, resolve
from bench.schema import DocumentSet

MAX_TOKENS_PER_WORD = 1.8
"""Above it a text is not of the generator."""
_SETS = 5
_CHARACTERS = 20_000
"""Read of the documents, spread over the first sets."""


def unfit_models(models: Iterable[ModelSpec], documents: Iterable[DocumentSet]) -> tuple[str, ...]:
    """The small stand-ins among the models if the documents are not of their generator, else nothing."""
    small = tuple(sorted({spec.label for spec in models if spec.small}))
    if not small:
        return ()
    sets = list({one_set.id: one_set for one_set in documents}.values())[:_SETS]
    share = _CHARACTERS // max(1, len(sets))
    text = "\n".join("\n".join(d.text for d in one_set.documents)[:share] for one_set in sets)
    return small if tokens_per_word(text) > MAX_TOKENS_PER_WORD else ()


def tokens_per_word(text: str) -> float:
    """Tokens of the small models' tokenizer for each word; 0 for a text without words."""
    from bench.models.loader import load_tokenizer

    words = len(text.split())
    return len(load_tokenizer(resolve("tiny")).encode(text).ids) / words if words else 0.0


def caution(models: Collection[str]) -> str:
    """The warning for results of these models on documents that they cannot read."""
    return (
        f"{' and '.join(models)} {'reads' if len(models) == 1 else 'read'} only text like the generated "
        "samples; these documents are not, so the answers mean nothing."
    )


def default_reader(documents: DocumentSet) -> str:
    """The reader where the user named none: the small one for text that it can read, else one that is here.

    Raises ConfigError, which says how to get one, where no reader of real text is on this machine.
    """
    unfit = unfit_models([resolve("tiny")], [documents])
    if not unfit:
        return "tiny"
    for name in REAL:
        if presets()[name].kind == "causal" and any(source.here() for source in presets()[name].sources):
            return name
    raise ConfigError(refusal(unfit))


def refusal(models: Collection[str]) -> str:
    """Why the default is not used on these documents; the readers that read them, and how to get each."""
    readers = []
    for name in REAL:
        source = presets()[name].sources[-1]
        if presets()[name].kind == "causal" and isinstance(source, PackedSource):
            here = source.here() is not None
            how = "here already" if here else f"{source.size_bytes / 1e9:.1f} GB: bench model fetch {name}"
            readers.append(f"  --model {name}  ({how})")
    return "\n".join(
        [
            f"No --model is given, and {caution(models).rpartition(',')[0]}. Name a reader of real text:",
            *sorted(readers),
            f"  --model {FORM}  (behind a server: vLLM or llama.cpp)",
            "or any hub id or folder (bench list models). --model tiny uses the small one all the same.",
        ]
    )
