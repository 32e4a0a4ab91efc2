"""Documents and questions from one seeded generator: the sample sets, and what ``tiny`` is trained on.

``names`` -> ``relations`` -> ``world`` (facts and questions) -> ``rendering`` (documents) -> ``sets``.
"""

from training.generator.sets import (
    DEFAULT_SEED,
    GENERATOR_VERSION,
    sample_set,
    write_other_worlds,
    write_samples,
)
from training.generator.summaries import write_summary_samples

__all__ = [
    "DEFAULT_SEED",
    "GENERATOR_VERSION",
    "sample_set",
    "write_other_worlds",
    "write_samples",
    "write_summary_samples",
]
