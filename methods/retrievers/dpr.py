"""DPR: rank chunks with the dense passage retriever's two encoders and read the best k.

Karpukhin et al. 2020, Sec. 3: a question encoder and a passage encoder, CLS vectors, dot product. The
authors' passages start with a title; ours are the chunks of every ranker here, in which only the first chunk
of a titled document starts with its title.

Its weights are on the hub (``encoder=dpr``), the default for a reader at the papers' lengths. For a small
reader the default is ``tiny-dual``, a small pair of the same design that this project trains, so that the
ranking is Dragon's; every record and table names the encoders used.
"""

from __future__ import annotations

from pydantic import Field

from bench.method import DualEncoderRanker, PairConfig
from methods.companion_models import AUTO, SMALL_PAIR, companion

PAPER_PAIR = "dpr"
"""DPR's encoders on Natural Questions."""


class DprConfig(PairConfig):
    """DPR's pair of encoders."""

    encoder: str = Field(
        AUTO,
        description="pair of encoders: dpr (single-nq, from the hub), tiny-dual (small, ours), or a folder "
        "with folders query and context; auto: dpr, or tiny-dual for a reader used below the papers' lengths",
    )


class Dpr(DualEncoderRanker[DprConfig]):
    """Dot product of DPR's vectors over chunks."""

    name = "dpr"
    version = "2"
    summary = "rank chunks by DPR's dot product, read the best k"
    paper = "Karpukhin et al. 2020, Sec. 3"
    Config = DprConfig
    similarity = "dot"
    pooling = "cls"

    @property
    def pair_name(self) -> str:
        """The pair in use; by default the one for the reader's geometry."""
        return companion(self.config.encoder, SMALL_PAIR, PAPER_PAIR, self.geometry)
