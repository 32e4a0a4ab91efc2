"""The tokenizer of ``tiny``: byte-level BPE in which a name has the same tokens wherever it stands.

A normaliser puts one space before the text and after every newline, unless the next character is a newline,
so that a word at the start of a line, of an answer and in mid-sentence is the same token; the decoder takes
exactly these spaces away again, so that every text round-trips. A newline is always a token of its own, so
that pieces which end in a newline can be encoded one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from training.generator import names as names_module, relations as rel
from training.generator.names import NameSource

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD = "<|pad|>"
BOS = "<|begin_of_text|>"
EOT = "<|eot_id|>"
HEADER_START = "<|start_header_id|>"
HEADER_END = "<|end_header_id|>"
SPECIAL_TOKENS = (PAD, BOS, EOT, HEADER_START, HEADER_END)
VOCAB_SIZE = 2048
SYLLABLE_MARK = "\ue000"
"""Separates the syllables of names while the merges are learnt, so that no token crosses a syllable."""

CHAT_TEMPLATE = (
    "{{ '<|begin_of_text|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] + '<|"
    "eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


def build_tokenizer(seed: int = 7, conversations: int = 3000) -> Tokenizer:
    """The tokenizer, learnt from generated conversations with training names; the same for the same seed."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Prepend(" "),
            normalizers.Replace(Regex(r"\A (?=\n)"), ""),
            normalizers.Replace(Regex(r"\n(?=[^\n])"), "\n "),
        ]
    )
    words = Regex(r"\n|'s| ?\p{L}+| ?\p{N}{1,2}| ?[^\s\p{L}\p{N}]|\s")
    split = pre_tokenizers.Split(words, "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(SYLLABLE_MARK, "removed"), split, to_bytes]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Replace("\n ", "\n"), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator(_corpus(seed, conversations), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    return tokenizer


def main() -> None:
    """Writes a tokenizer learnt from the generator as it is now: ``python -m training.tokenizer FILE``.

    The shipped one was learnt from an earlier state of the generator; weights fit only the tokenizer that
    they were trained with.
    """
    import sys

    build_tokenizer().save(sys.argv[1])


def _corpus(seed: int, conversations: int) -> Iterator[str]:
    from training.tasks import Conversation, Options, Teacher

    source = NameSource("train")
    options = Options(hops=0.2, unanswerable=0.1, checks=0.1, styled=0.6, adversarial=0.3, unevenness=0.2)
    teacher = Teacher(source, options)
    syllables = _marked_names(source)
    tasks: list[Callable[[random.Random, int], Conversation]] = [
        lambda rng, facts: teacher.answer(rng, facts, 4),
        teacher.search,
        teacher.bullets,
        teacher.summary,
        teacher.triage,
        teacher.leaf,
        teacher.wonder,
    ]
    for i in range(conversations):
        rng = random.Random(f"{seed}:{i}")
        for turn in tasks[i % len(tasks)](rng, rng.randint(3, 20)):
            for text in (turn.user, turn.reply):
                yield "\n".join(_mark(line, syllables) for line in text.split("\n"))
    for _ in range(400):
        yield " ".join((*_closed_words(), *syllables.values()))
    yield "user\nassistant\nsystem\n" * 50


def _closed_words() -> list[str]:
    lists = (
        rel.JOBS, rel.ANIMALS, rel.FEARS, rel.FOODS, rel.INSTRUMENTS, rel.GOODS, rel.MONTHS,
        rel.OBJECT_ADJECTIVES,
        rel.OBJECTS, rel.PLACE_ADJECTIVES, rel.PLACES, names_module.COMMON_WOMEN, names_module.COMMON_MEN,
        names_module.COMMON_PETS,
    )  # fmt: skip
    return [word for words in lists for entry in words for word in entry.split()]


def _marked_names(source: NameSource) -> dict[str, str]:
    """Composed names of the source, mapped to their syllables with the mark between them."""
    n = names_module
    pairs = (
        (n.FIRST_STEMS, n.WOMEN_ENDINGS), (n.FIRST_STEMS, n.MEN_ENDINGS), (n.LAST_STEMS, n.LAST_ENDINGS),
        (n.TOWN_STEMS, n.TOWN_ENDINGS), (n.TOWN_STEMS, n.COUNTY_ENDINGS), (n.RIVER_STEMS, n.RIVER_ENDINGS),
        (n.PET_STEMS, n.PET_ENDINGS),
    )  # fmt: skip
    return {
        stem + ending: f"{stem}{SYLLABLE_MARK}{ending}"
        for stems, endings in pairs
        for stem in stems
        for ending in endings
        if n.half_of(stem + ending) == source.split
    }


def _mark(line: str, syllables: dict[str, str]) -> str:
    out = []
    for word in line.split(" "):
        bare = word.rstrip(".,?:!'s") if word not in syllables else word
        out.append(syllables[bare] + word[len(bare) :] if bare in syllables else word)
    return " ".join(out)


if __name__ == "__main__":
    main()
