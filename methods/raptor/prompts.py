"""RAPTOR's prompt."""

from __future__ import annotations


def raptor_summary_prompt(context: str) -> str:
    """RAPTOR's cluster summary (released code, SummarizationModels)."""
    return f"Write a summary of the following, including as many key details as possible: {context}:"
