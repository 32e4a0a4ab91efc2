"""The public face of a plug-in: ``from bench.method import ...``, besides the values of :mod:`bench.schema`.

A method is a :class:`Method` with a :class:`MethodConfig`; one that ranks once per question and reads what it
picks is a :class:`PickAndRead`; a ranker is a :class:`RankThenRead` that scores
passages, a dense one a :class:`DenseRanker` or :class:`DualEncoderRanker` that names its encoders. The models
that it is given are a :class:`ModelSet`. ``docs/add_a_method`` has a complete package.
"""

from bench.engine.eviction import Eviction, kept_keys
from bench.engine.heads import Heads
from bench.engine.sampling import Sampling
from bench.errors import (
    BenchError,
    ConfigError,
    InvalidLogitsError,
    NoAttentionError,
    QuestionError,
    WindowExceededError,
)
from bench.flops.formulas import texts_usage
from bench.flops.meter import Meter, Usage, current_meter, metered
from bench.method.chunking import JoinedDocuments, chunk_documents, restored, stored
from bench.method.contract import (
    Checkpoints,
    Method,
    MethodConfig,
    Reference,
    Replayed,
    Role,
    Training,
    TrainingItem,
)
from bench.method.dense import DenseRanker, DualEncoderRanker, EncoderPair, PairConfig, unit_rows
from bench.method.graph_view import DrawnEdge, DrawnNode, GraphView
from bench.method.options import build_config
from bench.method.prompts import (
    DEFAULT_PROMPT,
    PASSAGE_SEPARATOR,
    PROMPT_CHOICES,
    Prompting,
    PromptStyle,
    answer_instruction,
    join_passages,
    reader_prompt,
    reader_prompt_ending,
)
from bench.method.ranking import (
    JOIN_DOCUMENTS,
    PickAndRead,
    Picked,
    RankConfig,
    RankedChunks,
    RankThenRead,
    Switch,
)
from bench.method.reading import fits, passages, read
from bench.method.registry import load_method
from bench.method.summarize import beginning, summarize
from bench.method.trace import SearchStep, SearchTrace, VisitedNode
from bench.metrics.evidence import Place, evidence_places
from bench.models.api import (
    Embedder,
    Generation,
    Geometry,
    LanguageModel,
    ModelSet,
    PairScorer,
    Probe,
    ReadingContext,
    Span,
    Tokenization,
)
from bench.models.presets import PAPER_CHUNK_TOKENS, PAPER_WINDOW
from bench.models.tokenizer import token_span

__all__ = [
    "DEFAULT_PROMPT",
    "JOIN_DOCUMENTS",
    "PROMPT_CHOICES",
    "PAPER_CHUNK_TOKENS",
    "PAPER_WINDOW",
    "PASSAGE_SEPARATOR",
    "BenchError",
    "Checkpoints",
    "ConfigError",
    "DenseRanker",
    "DrawnEdge",
    "DrawnNode",
    "DualEncoderRanker",
    "Embedder",
    "EncoderPair",
    "Eviction",
    "Generation",
    "Geometry",
    "GraphView",
    "Heads",
    "InvalidLogitsError",
    "JoinedDocuments",
    "LanguageModel",
    "Meter",
    "Method",
    "MethodConfig",
    "ModelSet",
    "NoAttentionError",
    "PairConfig",
    "PairScorer",
    "PickAndRead",
    "Picked",
    "Place",
    "Probe",
    "Prompting",
    "PromptStyle",
    "QuestionError",
    "RankConfig",
    "RankThenRead",
    "RankedChunks",
    "ReadingContext",
    "Reference",
    "Replayed",
    "Role",
    "Sampling",
    "SearchStep",
    "SearchTrace",
    "Span",
    "Switch",
    "Tokenization",
    "Training",
    "TrainingItem",
    "Usage",
    "VisitedNode",
    "WindowExceededError",
    "answer_instruction",
    "beginning",
    "build_config",
    "chunk_documents",
    "current_meter",
    "evidence_places",
    "fits",
    "join_passages",
    "kept_keys",
    "load_method",
    "metered",
    "passages",
    "read",
    "reader_prompt",
    "reader_prompt_ending",
    "restored",
    "stored",
    "summarize",
    "texts_usage",
    "token_span",
    "unit_rows",
]
