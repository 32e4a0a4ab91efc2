"""Methods over a ranker of choice, ours or a plug-in's: what is added to it is all that they write.

The ranker is named by ``ranker`` and gets ``ranker_options``; chunks are cut as the method over it says. Its
models, its index and its scores are the method's own unless the method overrides them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import (
    ConfigError,
    Geometry,
    Method,
    ModelSet,
    RankConfig,
    RankedChunks,
    RankThenRead,
    Role,
    build_config,
    load_method,
)
from bench.schema import Chunk, Index, JsonValue, Question


class OverRankerConfig(RankConfig):
    """The ranker and its options."""

    ranker: str = Field("bm25", description="the method that ranks, any that scores chunks")
    ranker_options: dict[str, Any] = Field(
        {}, description='its options as JSON, such as {"encoder": "all-mpnet-base-v2"}'
    )


OverRankerConfigT = TypeVar("OverRankerConfigT", bound=OverRankerConfig)


class OverRanker(RankThenRead[OverRankerConfigT]):
    """Rank as the chosen ranker does; subclasses change what happens before or after."""

    family = "around a ranker"

    def __init__(self, config: OverRankerConfigT, geometry: Geometry, seed: int = 0) -> None:
        """Keep the options and make the ranker; raises ConfigError for one that is none."""
        super().__init__(config, geometry, seed)
        self.ranker = make_ranker(config.ranker, config.ranker_options, config, geometry, seed)

    def roles(self) -> Mapping[str, Role]:
        """The ranker's."""
        return self.ranker.roles()

    def inner(self) -> Sequence[Method[Any]]:
        """The ranker."""
        return (self.ranker,)

    def index_options(self) -> Mapping[str, JsonValue]:
        """The ranker's, its name and its version."""
        return {"ranker": [self.ranker.name, self.ranker.version], **self.ranker.index_options()}

    def choices(self) -> Mapping[str, JsonValue]:
        """The ranker and its choices."""
        inner = self.ranker.choices()
        over = f" over {inner['ranker']}" if "ranker" in inner else ""
        return {**inner, "ranker": f"{self.ranker.name}{over}"}

    async def prepare(
        self, chunks: Sequence[Chunk], models: ModelSet
    ) -> tuple[Mapping[str, JsonValue], Mapping[str, NDArray[np.generic]]]:
        """What the ranker keeps."""
        return await self.ranker.prepare(chunks, models)

    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedChunks:
        """As the ranker ranks, with its events."""
        return await self.ranker.rank(index, question, models)


def make_ranker(
    name: str, options: Mapping[str, Any], config: RankConfig, geometry: Geometry, seed: int
) -> RankThenRead[Any]:
    """The named ranker with its options, over chunks that are cut as ``config`` says.

    Raises ConfigError for a method that does more than rank chunks, and for options that it does not have or
    that are those of the method over it; UnknownNameError for a name that is not installed.
    """
    kind = load_method(name)
    own_steps = [getattr(kind, step, None) for step in ("replay", "read_picked")]
    if not issubclass(kind, RankThenRead) or own_steps != [RankThenRead.replay, RankThenRead.read_picked]:
        fault = "does more than rank chunks" if issubclass(kind, RankThenRead) else "does not score chunks"
        raise ConfigError(f"{name} {fault}; expected a ranker such as bm25, sbert or hybrid.")
    if own := sorted(options.keys() & RankConfig.model_fields.keys()):
        raise ConfigError(
            f"{name} ranks inside another method, which cuts the chunks and reads them: {', '.join(own)} "
            f"must be an option of that method (--set {own[0]}={options[own[0]]})."
        )
    cut = {key: getattr(config, key) for key in ("chunk_tokens", "overlap_tokens", "join_documents")}
    ranker: RankThenRead[Any] = kind(build_config(kind.Config, {**cut, **options}, name), geometry, seed)
    return ranker
