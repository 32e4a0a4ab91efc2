"""DPR: rank chunks with the dense passage retriever's two encoders and read the best k.

Karpukhin et al. 2020, Sec. 3: a question encoder and a passage encoder, CLS vectors, dot product. The
authors' passages carry a title in front; ours are chunks as every ranker here cuts them, in which the
first chunk of a titled document begins with its title.

Its weights are on the hub (``encoder=dpr``), the default beside a reader at the papers' lengths. Beside a
small reader it is ``tiny-dual``, a small pair of the same design that this project trains, and so the same
ranking as Dragon's there; every record and table names the encoders it used.
"""

from __future__ import annotations

from pydantic import Field

from bench.method import DualEncoderRanker, PairConfig
from methods.companion_models import AUTO, encoder_pair_for

PAPER_PAIR = "dpr"
"""DPR's encoders on Natural Questions."""


class DprConfig(PairConfig):
    """DPR's pair of encoders."""

    encoder: str = Field(
        AUTO,
        description="pair of encoders: dpr (single-nq, from the hub), tiny-dual (small, ours), or a folder "
        "with folders query and context; auto: dpr, and tiny-dual for a reader that is used below the "
        "papers' lengths",
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
        """The pair in use; by default that of the reader's scale."""
        given = self.config.encoder
        return encoder_pair_for(self.geometry, PAPER_PAIR) if given == AUTO else given
