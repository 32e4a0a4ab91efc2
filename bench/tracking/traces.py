"""Write the questions of a cell as MLflow traces, with ids, times and attributes in MLflow's own format.

All spans of a question are sent at once. MLflow's ``start_span`` uses one transaction per span, which takes
five times as long; it also stores the user's name, and only logs a trace that the store refuses instead of
raising an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.results.models import read_description
from bench.results.passages import SourceTexts
from bench.results.records import RECORDS_FILE, Record, read_records
from bench.schema import JsonValue
from bench.tracking.content import RunContent
from bench.tracking.search_spans import TRACED_QUESTIONS, SpanContent, question_span

_PREVIEW = 1_000
"""Characters of question and answer in MLflow's list of traces."""
_ANSWER = "answer"


def write_traces(
    uri: str,
    experiment_id: str,
    run_id: str,
    cell_dir: Path,
    content: RunContent,
    own_files: Sequence[Path] = (),
) -> int:
    """Write a trace for each of the first 200 questions of a cell; returns their number.

    own_files: the user's own data files, for the texts. Raises BenchError for a damaged record and for a
    tracking server without support for traces, and any error of MLflow.
    """
    from mlflow.tracing.client import TracingClient

    cell = read_description(cell_dir)
    texts = SourceTexts(cell.dataset, cell.data_source or "path", own_files)
    client = TracingClient(uri)
    count, start_ms = 0, content.start_ms
    for record in islice(read_records(cell_dir / RECORDS_FILE), TRACED_QUESTIONS):
        root = question_span(record, content.label, texts)
        trace_id = hashlib.sha256(f"{run_id} {record.example_id}".encode()).hexdigest()[:32]
        client.start_trace(_info(experiment_id, run_id, trace_id, start_ms, record, root))
        try:
            client.log_spans(experiment_id, _spans(root, trace_id, start_ms, record.wall_s))
        except NotImplementedError as error:
            raise BenchError(f"This tracking server has no traces ({error}); leave out --trace.") from None
        count, start_ms = count + 1, start_ms + 1  # so that MLflow sorts them in the order of the data
    return count


def _info(
    experiment_id: str, run_id: str, trace_id: str, start_ms: int, record: Record, root: SpanContent
) -> Any:
    """A question's entry in MLflow's list of traces, with its scores and cost as assessments."""
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    answer = record.prediction if record.error is None else f"FAILED: {record.error}"
    return TraceInfo(
        trace_id=f"tr-{trace_id}",
        trace_location=TraceLocation.from_experiment_id(experiment_id),
        request_time=start_ms,
        execution_duration=round(1000 * record.wall_s),
        state=TraceState.OK if record.error is None else TraceState.ERROR,
        request_preview=_cut(record.question),
        response_preview=_cut(answer or ""),
        trace_metadata={"mlflow.sourceRun": run_id, "mlflow.trace_schema.version": "3"},
        tags={"mlflow.traceName": root.name, "bench.example_id": _cut(record.example_id)},
        assessments=_assessments(f"tr-{trace_id}", start_ms, record),
    )


def _assessments(trace_id: str, created_ms: int, record: Record) -> list[Any]:
    """Scores (0 to 1) and TFLOPs as feedback by code, the reference answers as the expectation."""
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    own: dict[str, Any] = {
        "source": AssessmentSource("CODE", "longdoc-bench"),
        "trace_id": trace_id,
        "create_time_ms": created_ms,
        "last_update_time_ms": created_ms,
    }
    values = {**record.scores, "tflops": record.flops.query / 1e12}
    feedback = [Feedback(name, value, **own) for name, value in values.items()]
    if not record.answers:
        return feedback
    return [*feedback, Expectation("expected_response", " | ".join(record.answers), **own)]


def _spans(root: SpanContent, trace_id: str, start_ms: int, wall_s: float) -> list[Any]:
    """The spans with their times: children follow each other within their parent's time."""
    from mlflow.entities import Span

    spans: list[Any] = []
    total_ns = max(1, round(wall_s * 1e9))

    def add(span: SpanContent, start_ns: int, end_ns: int, parent: str | None) -> None:
        own = f"{len(spans) + 1:016x}"
        tokens = span.attributes
        usage: dict[str, JsonValue] = {}
        if span.name == _ANSWER and "prompt_tokens" in tokens:
            prompt, completion = int(tokens["prompt_tokens"]), int(tokens["completion_tokens"])
            usage = {
                "mlflow.chat.tokenUsage": {
                    "input_tokens": prompt,
                    "output_tokens": completion,
                    "total_tokens": prompt + completion,
                }
            }
        attributes = {
            "mlflow.traceRequestId": f"tr-{trace_id}",
            "mlflow.spanType": span.kind,
            "mlflow.spanInputs": span.inputs,
            "mlflow.spanOutputs": span.outputs,
            **usage,
            **span.attributes,
        }
        spans.append(
            Span.from_dict(
                {
                    "trace_id": _base64(trace_id),
                    "span_id": _base64(own),
                    "parent_span_id": _base64(parent) if parent else None,
                    "name": span.name,
                    "start_time_unix_nano": start_ns,
                    "end_time_unix_nano": end_ns,
                    "events": [],
                    "status": {"code": "STATUS_CODE_OK", "message": ""},
                    "attributes": {k: json.dumps(v) for k, v in attributes.items() if v is not None},
                }
            )
        )
        at, share = start_ns, (end_ns - start_ns) / max(1, span.weight)
        for child in span.children:
            until = min(end_ns, at + round(share * child.weight))
            add(child, at, until, own)
            at = until

    add(root, start_ms * 1_000_000, start_ms * 1_000_000 + total_ns, None)
    return spans


def _base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"
