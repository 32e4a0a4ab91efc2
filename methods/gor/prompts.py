"""Graph of Records' prompts, verbatim (App. D), and in the words that our small readers were trained on."""

from __future__ import annotations

from typing import Literal

Wording = Literal["paper", "ours"]


def gor_question_prompt(passage: str, wording: Wording = "ours") -> str:
    """Asks for one question about a passage (Graph of Records, App. D.1)."""
    if wording == "paper":
        return (
            "You are a great questioner of any text, and are adept at asking valuable and insightful "
            "questions. Your goal is to generate 1 summary question for the text provided below. The "
            "generated summary question should try to simulate the tone of human questions as much as "
            "possible, and make sure that the generated question must be interrogative sentences and a "
            "summary question. Important! Please make sure this text must be a complete and non-redundant "
            "answer to the generated summary question. Please directly output the generated summary "
            "question, do not output irrelevant text."
            f"\n\nDOCUMENT: {passage}"
        )
    return f"Passage:\n{passage}\n\nAsk one question that can be answered by the passage above."


def gor_answer_prompt(context: str, question: str, wording: Wording = "ours") -> str:
    """Answer to a simulated question (Graph of Records, App. D.2)."""
    if wording == "paper":
        return (
            "Refer to the following supporting materials and answer the question with brief but complete "
            f"explanations.\n\nSUPPORTING MATERIALS: {context}\n\nQUESTION: {question}"
        )
    return f"Information:\n{context}\n\nQuestion:\n{question}\n\nAnswer the question, briefly but completely."
