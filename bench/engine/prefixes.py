"""Prefix cache: which contexts begin with which tokens, so that a new one reuses their keys and values.

Tokens are compared in blocks; a block is identified by the hash of itself and all blocks before it, as in the
prefix caches of serving engines. A hash only proposes a holder; its tokens are compared. Closed contexts are
retained while no other context needs their memory, and evicted least recently used first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.engine.kv_cache import Reservation

BLOCK = 32
"""Tokens of a block. A shorter prefix is never shared: copying it costs as much as forwarding it."""

WORTH_WAITING = BLOCK
"""A request waits for another request's prefix if that saves at least this many tokens."""


@dataclass(eq=False)
class Slot:
    """A context's place in the KV cache."""

    range: Reservation
    tokens: list[int] = field(default_factory=list)
    """Forwarded and kept."""
    blocks: list[int] = field(default_factory=list)
    """Hashes of the leading blocks that other contexts may reuse."""
    kept: Any = None
    """Of the first tokens, which keys are still attended to: (layers, kv_heads, tokens) bool; None: all."""
    whole: int = 0
    """With ``kept``: tokens that were forwarded before any key was dropped."""

    @property
    def length(self) -> int:
        """Tokens forwarded and kept."""
        return len(self.tokens)

    @property
    def reusable(self) -> int:
        """Leading tokens whose keys and values are those of any context that begins with them."""
        return self.length if self.kept is None else min(self.whole, self.length)


def block_hashes(tokens: Sequence[int], known: Sequence[int] = ()) -> list[int]:
    """The hash of each full block of ``tokens`` with all before it; ``known``: hashes of the first blocks."""
    hashes = list(known)
    for at in range(len(known) * BLOCK, len(tokens) - BLOCK + 1, BLOCK):
        hashes.append(hash((hashes[-1] if hashes else 0, *tokens[at : at + BLOCK])))
    return hashes


class PrefixIndex:
    """The contexts whose prefix others may reuse: open ones, and those retained after closing."""

    def __init__(self, retained_tokens: int) -> None:
        """retained_tokens: most tokens of closed contexts that are kept."""
        self.most = retained_tokens
        self._holders: dict[int, list[Slot]] = {}
        self._retained: OrderedDict[Slot, None] = OrderedDict()

    @property
    def retained_tokens(self) -> int:
        """Positions of the KV cache that closed contexts hold."""
        return sum(slot.range.tokens for slot in self._retained)

    def add(self, slot: Slot) -> None:
        """Offer the tokens of a context that was forwarded without a fault."""
        before = len(slot.blocks)
        slot.blocks = block_hashes(slot.tokens[: slot.reusable], slot.blocks)
        for block in slot.blocks[before:]:
            self._holders.setdefault(block, []).append(slot)

    def cut(self, slot: Slot, length: int) -> None:
        """Drop a context's tokens after its first ``length``."""
        del slot.tokens[length:]
        self._withdraw(slot, length // BLOCK)

    def drop(self, slot: Slot) -> None:
        """Stop offering this context."""
        self._withdraw(slot, 0)
        self._retained.pop(slot, None)

    def longest(self, tokens: Sequence[int], blocks: Sequence[int], most: int) -> tuple[Slot | None, int]:
        """The holder of the longest prefix of ``tokens``, and the prefix's length; at most ``most`` tokens.

        blocks: the tokens' :func:`block_hashes`. (None, 0) where no context holds a full block.
        """
        for count in range(min(len(blocks), most // BLOCK), 0, -1):
            for slot in reversed(self._holders.get(blocks[count - 1], ())):
                shared, limit = count * BLOCK, min(most, slot.reusable)
                if slot.tokens[:shared] != tokens[:shared]:
                    continue  # two blocks of one hash
                while shared < limit and slot.tokens[shared] == tokens[shared]:
                    shared += 1
                if slot in self._retained:
                    self._retained.move_to_end(slot)
                return slot, shared
        return None, 0

    def retain(self, slot: Slot) -> list[Slot]:
        """Keep a closed context; returns the contexts to free, itself if it is not worth retaining."""
        own = sum(all(holder is slot for holder in self._holders[block]) for block in slot.blocks)
        if own * BLOCK < WORTH_WAITING or slot.range.tokens > self.most:
            self.drop(slot)
            return [slot]
        self._retained[slot] = None
        freed = []
        while self.retained_tokens > self.most and (evicted := self.evict()) is not None:
            freed.append(evicted)
        return freed

    def evict(self) -> Slot | None:
        """Drop the least recently used closed context; the caller frees its memory."""
        if not self._retained:
            return None
        slot = next(iter(self._retained))
        self.drop(slot)
        return slot

    def _withdraw(self, slot: Slot, kept: int) -> None:
        for block in slot.blocks[kept:]:
            holders = self._holders[block]
            holders.remove(slot)
            if not holders:
                del self._holders[block]
        del slot.blocks[kept:]
