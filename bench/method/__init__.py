"""The public face of a plug-in: ``from bench.method import ...``, besides the values of :mod:`bench.schema`.

A method is a :class:`Method` with a :class:`MethodConfig`; one that ranks once per question and reads what it
picks is a :class:`PickAndRead`; a ranker is a :class:`RankThenRead` that scores
passages, a dense one a :class:`DenseRanker` or :class:`DualEncoderRanker` that names its encoders. The models
that it is given are a :class:`ModelSet`. ``docs/add_a_method`` has a complete package.
"""

from bench.engine.eviction import Eviction as Eviction, kept_keys as kept_keys
from bench.engine.heads import Heads as Heads
from bench.engine.sampling import Sampling as Sampling
from bench.errors import (
    BenchError as BenchError,
    ConfigError as ConfigError,
    InvalidLogitsError as InvalidLogitsError,
    NoAttentionError as NoAttentionError,
    QuestionError as QuestionError,
    WindowExceededError as WindowExceededError,
)
from bench.flops.formulas import texts_usage as texts_usage
from bench.flops.meter import (
    Meter as Meter,
    Usage as Usage,
    charged as charged,
    current_meter as current_meter,
    metered as metered,
)
from bench.method.chunking import (
    JoinedDocuments as JoinedDocuments,
    chunk_documents as chunk_documents,
    filled_in_order as filled_in_order,
    restored as restored,
    stored as stored,
)
from bench.method.contract import (
    Method as Method,
    MethodConfig as MethodConfig,
    Reference as Reference,
    Replayed as Replayed,
    Role as Role,
    Training as Training,
    TrainingItem as TrainingItem,
)
from bench.method.dense import (
    DenseRanker as DenseRanker,
    DualEncoderRanker as DualEncoderRanker,
    PairConfig as PairConfig,
    question_vector as question_vector,
    unit_rows as unit_rows,
)
from bench.method.graph_view import DrawnEdge as DrawnEdge, DrawnNode as DrawnNode, GraphView as GraphView
from bench.method.options import build_config as build_config
from bench.method.prompts import (
    DEFAULT_PROMPT as DEFAULT_PROMPT,
    PASSAGE_SEPARATOR as PASSAGE_SEPARATOR,
    PROMPT_CHOICES as PROMPT_CHOICES,
    Prompting as Prompting,
    PromptStyle as PromptStyle,
    answer_instruction as answer_instruction,
    join_passages as join_passages,
    reader_prompt as reader_prompt,
)
from bench.method.ranking import (
    JOIN_DOCUMENTS as JOIN_DOCUMENTS,
    PickAndRead as PickAndRead,
    Picked as Picked,
    RankConfig as RankConfig,
    RankedChunks as RankedChunks,
    RankThenRead as RankThenRead,
    Switch as Switch,
)
from bench.method.reading import fits as fits, passages as passages, read as read
from bench.method.registry import load_method as load_method
from bench.method.summarize import beginning as beginning, summarize as summarize
from bench.method.trace import (
    SearchStep as SearchStep,
    SearchTrace as SearchTrace,
    VisitedNode as VisitedNode,
)
from bench.metrics.evidence import Place as Place, evidence_places as evidence_places
from bench.models.api import (
    Generation as Generation,
    Geometry as Geometry,
    Probe as Probe,
    Span as Span,
    Tokenization as Tokenization,
)
from bench.models.conversation import (
    LanguageModel as LanguageModel,
    ModelSet as ModelSet,
    ReadingContext as ReadingContext,
)
from bench.models.embedder import Embedder as Embedder
from bench.models.pair_scorer import PairScorer as PairScorer
from bench.models.presets import PAPER_CHUNK_TOKENS as PAPER_CHUNK_TOKENS, PAPER_WINDOW as PAPER_WINDOW
from bench.models.tokenizer import token_span as token_span
