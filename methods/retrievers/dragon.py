"""Dragon: rank chunks with two separate encoders and read the best k (PECAN Table 1, "Dragon").

DRAGON+ (Lin et al. 2023, arXiv 2302.07452): an encoder for questions and another for texts, the last
layer's CLS vector, dot product without normalisation, texts cut at 512 tokens.
Its weights are on the hub (``encoder=dragon-plus``), the default for a reader at the papers' lengths. For a
small reader the default is ``tiny-dual``, a small pair of the same design that this project trains; every
record and table names the encoders used.
"""

from __future__ import annotations

from pydantic import Field

from bench.method import DualEncoderRanker, PairConfig
from methods.companion_models import AUTO, PAPER_PAIR, SMALL_PAIR, companion


class DragonConfig(PairConfig):
    """Dragon's pair of encoders."""

    encoder: str = Field(
        AUTO,
        description="pair of encoders: dragon-plus (the paper's), tiny-dual (small, ours), or a folder with "
        "folders query and context; auto: dragon-plus, or tiny-dual for a reader used below the papers' "
        "lengths",
    )


class Dragon(DualEncoderRanker[DragonConfig]):
    """Dot product of the CLS vectors of a dual encoder over chunks."""

    name = "dragon"
    version = "1"
    summary = "rank chunks by a dual encoder's dot product (DRAGON+), read the best k"
    paper = "Lin et al. 2023, Sec. 3; baseline of PECAN, Table 1"
    Config = DragonConfig
    similarity = "dot"
    pooling = "cls"

    @property
    def pair_name(self) -> str:
        """The pair in use; by default the one for the reader's geometry."""
        return companion(self.config.encoder, SMALL_PAIR, PAPER_PAIR, self.geometry)
