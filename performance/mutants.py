"""Small faults put into the core on purpose, each with the test that must notice it.

``python -m performance.mutants`` applies every fault by itself to a copy of the repository, runs the test
that guards the line and prints whether the fault was killed, then the score. ``python -m performance.mutants
U1 J1`` applies these two; what came of all is kept in ``results/mutants.json``. ``--list`` runs nothing and
says where each of them lies. A line is found by its text, wherever its module lies; one that is gone, or is
there twice, is reported. The exit status is 1 where a fault survived that is not known to change nothing, or
could not be applied. Nothing of ``bench`` is imported here: the tests, which are forked, import the copy.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

REPOSITORY = Path(__file__).resolve().parent.parent
RESULT = REPOSITORY / "performance" / "results" / "mutants.json"
SOURCES = ("bench", "methods")
LEFT_OUT = (".*", "results", "mlruns", "build", "dist")
"""Of the repository's own folder not copied: no test reads them."""
LONGEST_S = 300
"""A test that takes longer has noticed the fault: it waits for something that never comes."""
PASSED, FAILED = 0, 1
"""Exit statuses of pytest; any other one says nothing about the fault."""
LOADED = ("torch", "transformers.modeling_utils", "sentence_transformers", "pandas", "pytest", "hypothesis")
"""Libraries that most tests import; loaded once, before the processes of the tests are forked."""


class StaleMutantError(Exception):
    """A mutant that names text or a test which is not there, or is there twice."""


@dataclass(frozen=True)
class Mutant:
    """One fault."""

    id: str
    old: str
    """Stands exactly once in all sources."""
    new: str
    guard: str
    """A test, ``test_name`` or ``TestClass::test_name``."""
    equivalent: bool = False
    """Known to change nothing that anybody could see."""

    def place(self, root: Path) -> Path:
        """The module that holds the text; raises StaleMutantError unless there is exactly one such place."""
        modules = {path: text for name in SOURCES for path, text in _texts(root / name).items()}
        counts = {path: text.count(self.old) for path, text in modules.items() if self.old in text}
        if list(counts.values()) != [1]:
            places = ", ".join(f"{path.relative_to(root)} ({n})" for path, n in counts.items()) or "nowhere"
            raise StaleMutantError(f"{self.old!r} is expected once and stands {places}")
        (path,) = counts
        return path

    def test(self, root: Path) -> str:
        """The guard as pytest names it; raises StaleMutantError unless one test file has it."""
        name = self.guard.partition("::")[0]
        defined = re.compile(rf"^(?:(?:async def|def|class) {name}\b|{name} = )", re.MULTILINE)
        files = [path for path, text in _texts(root / "tests").items() if defined.search(text)]
        if len(files) != 1:
            raise StaleMutantError(f"{name} is expected in one test file and is in {len(files)}")
        return f"{files[0].relative_to(root)}::{self.guard}"


@cache
def _texts(folder: Path) -> dict[Path, str]:
    """The modules below a folder, as they are without a fault."""
    return {path: path.read_text("utf-8") for path in folder.rglob("*.py")}


def _left_out(folder: str, names: list[str]) -> set[str]:
    """What of a folder is not copied; ``bench/results`` is, which is a package."""
    return shutil.ignore_patterns(*LEFT_OUT)(folder, names) if Path(folder) == REPOSITORY else set()


@contextmanager
def applied(mutant: Mutant, root: Path) -> Iterator[None]:
    """Inside the block the copy of the repository at ``root`` has the fault."""
    path = mutant.place(root)
    path.write_text(path.read_text("utf-8").replace(mutant.old, mutant.new), "utf-8")
    try:
        yield
    finally:
        # With its time of change, by which Python knows the compiled module.
        shutil.copy2(REPOSITORY / path.relative_to(root), path)


def passes(tests: Collection[str], root: Path) -> bool:
    """Whether the tests pass on the copy; raises StaleMutantError where they do not run."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(tests, root), daemon=True)
    process.start()
    process.join(LONGEST_S * len(tests))
    if process.is_alive():
        process.kill()
        process.join()
        return False
    if process.exitcode not in (PASSED, FAILED):
        raise StaleMutantError(f"pytest {' '.join(tests)} ended with {process.exitcode}")
    return process.exitcode == PASSED


def _run(tests: Collection[str], root: Path) -> None:
    """Be pytest in the copy; nothing of the repository is loaded yet, so that all comes from there."""
    import pytest

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    os.chdir(root)
    sys.path[0] = os.environ["PYTHONPATH"] = str(root)
    os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))


def outcome(mutant: Mutant, root: Path, sound: set[str]) -> str:
    """``killed``, ``survived``, or why neither can be said; sound: tests that pass without any fault."""
    try:
        test = mutant.test(root)
        if test not in sound and not passes([test], root):
            return f"not run: {mutant.guard} fails without the fault"
        sound.add(test)
        with applied(mutant, root):
            return "survived" if passes([test], root) else "killed"
    except StaleMutantError as error:
        return f"not run: {error}"


def listed(mutant: Mutant, root: Path) -> str:
    """Where a mutant lies and what guards it, or why it cannot be applied."""
    try:
        path = mutant.place(root)
        line = path.read_text("utf-8").partition(mutant.old)[0].count("\n") + 1
        return f"{path.relative_to(root)}:{line}  {mutant.test(root)}"
    except StaleMutantError as error:
        return f"not run: {error}"


def chosen(ids: Sequence[str]) -> list[Mutant]:
    """The mutants of these ids, all of them for none; raises click.BadParameter for an unknown one."""
    known = {mutant.id: mutant for mutant in MUTANTS}
    assert len(known) == len(MUTANTS), "two mutants have one id"
    unknown = [id_ for id_ in ids if id_ not in known]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: no such mutant. Known: {', '.join(known)}")
    return [known[id_] for id_ in ids] or list(known.values())


@click.command()
@click.argument("ids", nargs=-1)
@click.option(
    "--list", "only_list", is_flag=True, help="Say where each lies and what guards it; run nothing."
)
def main(ids: tuple[str, ...], only_list: bool) -> None:
    """Apply faults one by one and say which of them the tests notice."""
    mutants = chosen(ids)
    if only_list:
        places = [listed(mutant, REPOSITORY) for mutant in mutants]
        for mutant, place in zip(mutants, places, strict=True):
            click.echo(f"{mutant.id:4} {place}", err=place.startswith("not run"))
        sys.exit(any(place.startswith("not run") for place in places))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: the copy and the test go too
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: a forked process has one thread only
    for name in LOADED:
        importlib.import_module(name)
    results: dict[Mutant, str] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder) / "repository"
        shutil.copytree(REPOSITORY, root, ignore=_left_out)
        sound = all_sound(mutants, root)
        for mutant in mutants:
            started = time.monotonic()
            results[mutant] = outcome(mutant, root, sound)
            known = " (changes nothing)" if mutant.equivalent else ""
            click.echo(f"{mutant.id:4} {results[mutant]}{known}  ({time.monotonic() - started:.0f} s)")
    real = [mutant for mutant in mutants if not mutant.equivalent]
    killed = sum(results[mutant] == "killed" for mutant in real)
    stale = sum(result.startswith("not run") for result in results.values())
    click.echo(f"{killed} of {len(real)} killed ({killed / max(1, len(real)):.1%}), {stale} not run")
    if not ids:
        outcomes = {mutant.id: results[mutant] for mutant in mutants}
        found = {"killed": killed, "of": len(real), "outcomes": outcomes}
        RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(killed < len(real))


def all_sound(mutants: Sequence[Mutant], root: Path) -> set[str]:
    """The guards of these mutants if all of them pass without any fault; else none, and each is run alone."""
    tests: set[str] = set()
    for mutant in mutants:
        with suppress(StaleMutantError):
            tests.add(mutant.test(root))
    with suppress(StaleMutantError):
        if tests and passes(sorted(tests), root):
            return tests
    return set()


MUTANTS = (
    Mutant(
        "PR1",
        "kept.cache.crop(len(tokens) - len(kept.tokens))",
        "kept.cache.crop(len(tokens) - len(kept.tokens) - 1)",
        "test_what_is_read_piece_by_piece_probed_and_rolled_back_answers_as_the_whole_text",
    ),
    Mutant(
        "PR2",
        "weights = mean_attention(out.attentions, request.heads, tokens)[begin:]",
        "weights = mean_attention(out.attentions, None, tokens)[begin:]",
        "test_its_attention_is_that_of_packed_passes",
    ),
    Mutant(
        "AK1",
        "counted = drops[: len(drops) - len(drops) // 10]",
        "counted = drops",
        "test_k_gap_is_the_authors_rule",
    ),
    Mutant(
        "PC1",
        "(price.cached_input if again else price.input) * read.new_tokens",
        "price.input * read.new_tokens",
        "test_dollars_are_the_closed_form_of_the_tokens",
    ),
    Mutant(
        "PC2",
        "return self.question + self.index / questions",
        "return self.question + self.index",
        "test_a_table_says_for_how_many_questions_an_index_is_cheaper",
    ),
    Mutant(
        "RO1",
        "                if role.index\n",
        "",
        "test_rows_take_larger_and_smaller_models_from_the_tables_roles",
    ),
    Mutant(
        "RO2",
        'if needed.needs in ("tokens", "attention") and roles[role].server',
        'if needed.needs == "attention" and roles[role].server',
        "test_attention_refuses_a_served_searcher_and_names_both_ways_out",
    ),
    Mutant(
        "RO3",
        "if order.index(self.needs) > order.index(needs)",
        "if order.index(self.needs) < order.index(needs)",
        "test_attention_refuses_a_served_searcher_and_names_both_ways_out",
    ),
    Mutant(
        "K1",
        "request.prompt - request.forwarded - nearer * request.passed_over",
        "request.prompt - request.forwarded",
        "test_short_prompts_that_keep_coming_do_not_hold_up_a_long_one_for_ever",
    ),
    Mutant(
        "K2",
        "prompts.sort(key=lambda",
        "sorted(prompts, key=lambda",
        "test_prompts_of_one_length_go_one_after_the_other_and_a_shorter_one_passes",
    ),
    Mutant(
        "K3",
        "self.length if self.kept is None else min(self.whole, self.length)",
        "self.length",
        "test_what_was_read_without_some_keys_is_no_prefix_of_other_contexts",
    ),
    Mutant(
        "K4",
        "sinks = min(SINKS, piece.start)",
        "sinks = 0",
        "test_scores_are_those_kvpress_gave",
    ),
    Mutant(
        "K5",
        "attention >= attention.mean() - 2 * deviation",
        "attention >= attention.mean() - 3 * deviation",
        "test_tokens_far_below_the_mean_do_not_count",
    ),
    Mutant(
        "K6",
        "1 + higher.sum(axis=-1)",
        "higher.sum(axis=-1)",
        "test_equal_rows_share_the_first_rank",
    ),
    Mutant(
        "K7",
        "(price.cached_input if again else price.input) * read.new_tokens",
        "price.cached_input * read.new_tokens",
        "test_dollars_are_the_closed_form_of_the_tokens",
    ),
    Mutant(
        "K8",
        "(about.examples, about.models) == (asked.examples, asked.models)",
        "about.models == asked.models",
        "test_the_search_begins_where_cells_with_other_options_say_that_the_cost_is",
    ),
    Mutant(
        "K9",
        "token.special and token.content == END_OF_TEXT",
        "False",
        "test_the_end_of_a_text_ends_an_answer_although_no_config_says_so",
    ),
    Mutant(
        "W1",
        "ratio, documents = (self.detectable / difference) ** 2",
        "ratio, documents = (self.detectable / difference)",
        "test_half_the_difference_needs_four_times_the_questions_less_what_more_documents_save_in_t",
    ),
    Mutant(
        "W2",
        "off = np.bincount(position, weights=values) - sizes * values.mean()",
        "off = np.bincount(position, weights=values) - values.mean()",
        "test_questions_of_one_document_that_agree_are_one_question",
    ),
    Mutant(
        "A1",
        "wanted = cells[0].data.examples[: asking.first]",
        "wanted = cells[0].data.examples",
        "test_a_first_pass_asks_every_cells_first_questions_and_indexes_their_documents",
    ),
    Mutant(
        "A2",
        "if not asked or (first is not None and len(asked) < len(wanted)):",
        "if not asked:",
        "test_an_interrupted_first_pass_goes_on_where_it_was",
    ),
    Mutant(
        "A4",
        "            if not self._so_far:\n                return\n",
        "",
        "test_in_two_passes_the_cells_are_those_of_one_and_no_question_is_asked_twice",
    ),
    Mutant(
        "S0a",
        "more, less = p_yes * (1 - base), base * (1 - p_yes)",
        "more, less = p_yes, base",
        "test_confidence_is_relative_to_the_same_questions_first_probes",
    ),
    Mutant(
        "S0b",
        "before = [self.unread] if asked_before and self.unread is not None else []",
        "before = [self.unread] if self.unread is not None else []",
        "test_a_replayed_cell_is_the_cell_run_alone",
    ),
    Mutant(
        "S0c",
        "of = self.steps[1:steps] or self.steps[:1]",
        "of = self.steps[:steps]",
        "test_an_answer_from_chunks_reads_the_text_below_the_chosen_nodes_in_its_order",
    ),
    Mutant(
        "S0d",
        'np.argsort(-share, kind="stable")',
        'np.argsort(share, kind="stable")',
        "test_an_answer_from_chunks_reads_the_text_below_the_chosen_nodes_in_its_order",
    ),
    Mutant(
        "S1",
        "if relative(p_yes, self.base) > self.t_c:",
        "if relative(p_yes, self.base) >= self.t_c:",
        "test_a_yes_is_above_the_threshold_and_is_counted",
    ),
    Mutant(
        "S2",
        "            self.count = 0",
        "            self.count -= 1",
        "test_a_yes_is_above_the_threshold_and_is_counted",
    ),
    Mutant(
        "S3",
        "position = first + at",
        "position = first",
        "test_position_multiplies_so_that_a_later_node_weighs_more",
    ),
    Mutant(
        "S4",
        "positive = np.maximum(values, 0)",
        "positive = np.asarray(values)",
        "test_scores_are_normalised_over_the_candidates_and_added",
    ),
    Mutant(
        "S5",
        "best = int(np.argmax(levels))",
        "best = len(levels) - 1 - int(np.argmax(levels[::-1]))",
        "test_attention_alone_begins_at_the_earliest_of_the_highest_level_when_there_is_none",
    ),
    Mutant(
        "S6",
        "after = max(after, answer + self.question.max_new_tokens)",
        "after = max(after, answer)",
        "test_the_search_ends_where_the_next_node_would_pass_the_window",
    ),
    Mutant(
        "S7",
        "return all(cost <= left for cost",
        "return any(cost <= left for cost",
        "test_both_models_must_have_room",
    ),
    Mutant(
        "S8",
        "[counted, 0].mean(dtype=np.float64)",
        "[counted, 0].max()",
        "test_path_attention_and_confidence_are_recomputed",
    ),
    Mutant(
        "S9", "self.z[lower] += r *", "self.z[lower] = r *", "test_a_node_with_two_visited_above_it_adds_both"
    ),
    Mutant(
        "S10",
        "at, one_turn = len(PECAN_SEARCH_BEFORE_QUESTION), ",
        "at, one_turn = len(PECAN_SEARCH_BEFORE_QUESTION) - 1, ",
        "test_the_question_alone_is_attended_to_not_its_instruction",
    ),
    Mutant(
        "S10b",
        'at = PECAN_QUESTION_BEHIND[self.config.probe_question].find("{question}")',
        'at = PECAN_QUESTION_BEHIND[self.config.probe_question].rfind("No")',
        "test_a_question_that_its_template_contains_is_found_in_its_place",
    ),
    Mutant(
        "S11",
        "-similarity[node])[:share]",
        "similarity[node])[:share]",
        "test_a_fixed_count_begins_with_a_share_of_the_top_by_similarity_in_order",
    ),
    Mutant(
        "S12",
        "if min(left) < 0:",
        "if left[0] < 0:",
        "test_a_top_level_that_only_the_searcher_has_room_for_is_left_out_in_part",
    ),
    Mutant(
        "S13",
        "answer = 2 * lm.chat_overhead + lm.count_tokens(YES)",
        "answer = lm.count_tokens(YES)",
        "test_the_search_ends_where_the_next_node_would_pass_the_window",
    ),
    Mutant(
        "S14",
        "for node in self.order:",
        "for node in sorted(self.order):",
        "test_one_model_searches_and_another_answers_from_what_was_read",
    ),
    Mutant(
        "S15",
        "await self.context.settle()",
        "pass",
        "test_without_progress_control_the_path_and_its_attention_are_the_same",
    ),
    Mutant(
        "S16",
        "len(top) - len(initial), len(initial) < share",
        "len(top) - len(initial), len(initial) < len(top)",
        "test_a_fixed_count_begins_with_a_share_of_the_top_by_similarity_in_order",
    ),
    Mutant(
        "S17",
        'elif self.patience == "consecutive":',
        'elif self.patience == "cumulative":',
        "test_a_yes_is_above_the_threshold_and_is_counted",
    ),
    Mutant(
        "C1",
        "np.add.at(weight, place, np.concatenate([row for _, row in rows]))",
        "weight[place] = np.concatenate([row for _, row in rows])",
        "test_repeated_bullets_are_one_node_with_the_mean_of_their_edges",
    ),
    Mutant(
        "C2",
        "self.plan.window - frame - self.plan.summary_tokens",
        "self.plan.window - frame",
        "test_batches_are_filled_in_order_and_their_levels_follow_until_one_batch_makes_the_top",
    ),
    Mutant(
        "C3",
        "if not groups or total > most:",
        "if not groups or total >= most:",
        "test_batches_are_filled_in_order_and_their_levels_follow_until_one_batch_makes_the_top",
    ),
    Mutant(
        "C4",
        "len(level) >= len(below) and self._tokens",
        "len(level) >= len(below) or self._tokens",
        "test_batches_are_filled_in_order_and_their_levels_follow_until_one_batch_makes_the_top",
    ),
    Mutant(
        "C5",
        "cut = summary.cut and at == len(bullets) - 1",
        "cut = summary.cut",
        "test_a_bullet_that_was_cut_short_is_kept_and_flagged",
    ),
    Mutant(
        "C6",
        "Span(summary.prompt_tokens, summary.prompt_tokens + len(summary.token_ids))",
        "Span(summary.prompt_tokens - 1, summary.prompt_tokens - 1 + len(summary.token_ids))",
        "test_edges_are_the_attention_of_a_bullets_own_tokens_normalised_over_its_batch",
    ),
    Mutant(
        "C7",
        "weights[i] = 1 / attention.shape[1]",
        "weights[i] = 1",
        "test_every_row_of_edge_weights_sums_to_1",
    ),
    Mutant(
        "G2",
        "Node(1, fold(texts[document][start:end]), document, start, end)",
        "Node(1, texts[document][start:end], document, start, end)",
        "test_edges_are_those_of_the_full_attention_matrices",
    ),
    Mutant(
        "AA1",
        "allowed & (queries - keys < window)",
        "allowed & (queries - keys <= window)",
        "test_logits_attention_and_text_are_those_of_a_full_eager_recomputation",
    ),
    Mutant(
        "AA2",
        "max(0, row.total - layer.window)",
        "max(0, row.total - layer.window - 1)",
        "test_logits_attention_and_text_are_those_of_a_full_eager_recomputation",
    ),
    Mutant(
        "AA3",
        "row.cached == 0 and (layer.window is None or row.total <= layer.window)",
        "row.cached == 0",
        "test_logits_attention_and_text_are_those_of_a_full_eager_recomputation",
    ),
    Mutant(
        "AA4",
        "gather = bases + torch.minimum(offsets, last)",
        "gather = bases + offsets",
        "test_a_context_in_the_last_page_decodes_beside_a_longer_one",
    ),
    Mutant(
        "A5",
        "((ends - starts).clamp_(min=1) * self.heads)",
        "((ends - starts + 1) * self.heads)",
        "test_logits_attention_and_text_are_those_of_a_full_eager_recomputation",
    ),
    Mutant(
        "A6",
        "self.total = total if self.total is None else",
        "self.total = total if True else",
        "test_layers_on_two_devices_give_what_one_gives",
    ),
    Mutant(
        "A7",
        "            total *= len(chosen) / heads\n",
        "            pass\n",
        "test_attention_of_chosen_heads_is_that_of_a_full_eager_recomputation",
    ),
    Mutant(
        "AA5",
        "seen = min(-(-seen // ALIKE) * ALIKE, row.total)",
        "seen = -(-seen // ALIKE) * ALIKE",
        "test_blocks_attend_as_a_whole_matrix",
    ),
    Mutant(
        "AA6",
        "triangle(after)[: b - a].to(dtype)",
        "triangle(after)[: b - a].to(dtype).tril()",
        "test_blocks_attend_as_a_whole_matrix",
    ),
    Mutant(
        "EC1",
        "measured = {name: value for name, value in request.options.items() if name != ORDER}",
        "measured = dict(request.options)",
        "test_rows_in_other_orders_of_the_passages_get_one_k",
    ),
    Mutant(
        "N1",
        "request.following(left)",
        "request.following(self.limits.tokens)",
        "test_no_pass_has_more_new_tokens_than_the_limit",
    ),
    Mutant(
        "N2",
        "if slot.length + 1 >= request.limit:",
        "if slot.length + 1 > request.limit:",
        "test_an_answer_that_fills_the_context_ends_there",
    ),
    Mutant(
        "N3",
        "torch.isposinf(logits)).any(-1)",
        "torch.isposinf(logits)).all(-1)",
        "test_one_logit_that_is_not_a_number_fails_its_question",
    ),
    Mutant(
        "N4",
        "if not self._waiting:\n            free =",
        "if True:\n            free =",
        "test_a_large_context_that_waits_is_not_overtaken_by_a_small_one",
    ),
    Mutant(
        "N5",
        "cumulative[-1:], right=True)",
        "cumulative[-1:], right=False)",
        "test_tokens_are_drawn_from_the_softmax_at_the_temperature",
        equivalent=True,
    ),
    Mutant(
        "N6",
        "begin = max(0, request.watch_from - cached)",
        "begin = max(0, request.watch_from - cached - 1)",
        "test_recorded_attention_is_eager_attentions_through_probes_and_answers",
    ),
    Mutant(
        "N7",
        "            if future.done():\n",
        "            if False:\n",
        "test_a_cancelled_context_at_the_head_of_the_queue_holds_up_nobody",
    ),
    Mutant(
        "N8",
        "self.requests = waiting + [step.request for step in steps]",
        "self.requests = [*self.requests]",
        "test_answers_take_turns_where_a_pass_has_fewer_rows",
    ),
    Mutant(
        "N9",
        "log_mass = masses[i]",
        "log_mass = masses[0]",
        "test_logits_attention_and_text_are_those_of_a_full_eager_recomputation",
    ),
    Mutant(
        "R1",
        "page_tokens = -(-tokens // PAGE) * PAGE",
        "page_tokens = (tokens // PAGE + 1) * PAGE",
        "test_released_neighbours_become_one_gap",
    ),
    Mutant(
        "X1",
        "decoded * (decoded + 1) // 2",
        "decoded * (decoded - 1) // 2",
        "test_the_ledger_is_what_a_counter_measured_and_no_token_went_through_twice",
    ),
    Mutant(
        "X2",
        "attended=new * after, logit_rows=1",
        "attended=new * self._kept, logit_rows=1",
        "test_settled_text_is_forwarded_once_and_reads_no_logits",
    ),
    Mutant(
        "X3",
        "sum(since <= mark for since",
        "sum(since < mark for since",
        "test_a_span_that_was_watched_where_the_mark_stands_is_still_watched_after_a_rewind",
    ),
    Mutant(
        "X4",
        "self._require_room(len(header) + len(tokens.ids)",
        "self._require_room(len(tokens.ids)",
        "test_the_header_of_the_next_turn_needs_room_too",
    ),
    Mutant(
        "X5",
        "attended=new * after, cached=after - new)",
        "attended=new * new, cached=after - new)",
        "test_settled_text_is_forwarded_once_and_reads_no_logits",
    ),
    Mutant(
        "X6",
        "out[: max(0, since - span.start), column] = 0",
        "pass",
        "test_text_that_was_appended_before_a_span_was_watched_records_nothing_of_it",
    ),
    Mutant(
        "X7",
        "math.exp(logit - outcome.log_mass) for",
        "math.exp(logit - most) for",
        "test_a_search_on_the_cache_equals_recomputing_everything_each_step",
    ),
    Mutant(
        "X8",
        "trimmed.append(rows[:left, : len(self._watched)])",
        "trimmed.append(rows[:, : len(self._watched)])",
        "test_recorded_attention_is_eager_attentions_through_probes_and_answers",
    ),
    Mutant(
        "X9",
        "self._queue = list(answer[decoded:])",
        "self._queue = []",
        "test_a_search_on_the_cache_equals_recomputing_everything_each_step",
    ),
    Mutant(
        "X10",
        "Usage(calls=decoded, new_tokens=decoded, attended=pairs",
        "Usage(calls=decoded, new_tokens=len(answer), attended=pairs",
        "test_the_ledger_is_what_a_counter_measured_and_no_token_went_through_twice",
    ),
    Mutant(
        "F1",
        "2 * layers * self.attention_width",
        "2 * layers * self.hidden",
        "test_matmul_equals_torch_on_a_prefill",
    ),
    Mutant(
        "F2",
        'kv_heads=one.get("num_key_value_heads") or heads,',
        "kv_heads=heads,",
        "test_parameters_of_a_decoder_are_those_of_the_real_class",
    ),
    Mutant(
        "F3",
        "new_tokens=n, attended=n * n, logit_rows=1)",
        "new_tokens=n, attended=n * n, logit_rows=n)",
        "test_matmul_equals_torch_on_encoded_texts",
    ),
    Mutant(
        "F4",
        'if name.startswith("pooler.") or name.endswith(".encode_proj"):',
        "if False:",
        "test_parameters_of_an_encoder_are_those_of_the_real_class",
    ),
    Mutant(
        "F5",
        "head_weights=pooler if head is None",
        "head_weights=0 if head is None",
        "test_parameters_of_an_encoder_are_those_of_the_real_class",
    ),
    Mutant("T1", "_current.reset(token)", "_current.set(None)", "test_each_token_is_forwarded_exactly_once"),
    Mutant("T2", "value // by for", "-(-value // by) for", "test_its_cost_is_shared_by_the_documents"),
    Mutant(
        "Q1",
        "return max(_token_f1(prediction, reference) for reference in references)",
        "return sum(_token_f1(prediction, reference) for reference in references) / len(references)",
        "test_values_lie_in_0_1_in_any_order",
    ),
    Mutant(
        "Q2",
        '_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split()',
        '_ARTICLES.sub(" ", text.lower()).translate(_WITHOUT_PUNCTUATION).split()',
        "test_normalisation_drops_punctuation_before_articles",
    ),
    Mutant(
        "Q3",
        "allowed |= _ngrams(tokens, order)",
        "allowed += _ngrams(tokens, order)",
        "test_corpus_bleu_has_the_official_value",
    ),
    Mutant(
        "Q4",
        "return max(_token_f1(prediction, reference)",
        "return min(_token_f1(prediction, reference)",
        "test_values_lie_in_0_1_in_any_order",
    ),
    Mutant(
        "Q5",
        "min(len(tokens) for tokens in reference_tokens)",
        "max(len(tokens) for tokens in reference_tokens)",
        "test_bleu_takes_the_shortest_reference_length_and_keeps_case",
    ),
    Mutant(
        "Q6",
        "if not prediction.strip():\n        return 0.0\n    normalized = normalize_answer(prediction)",
        "normalized = normalize_answer(prediction)",
        "test_a_prediction_without_text_scores_0",
    ),
    Mutant(
        "Z1",
        "sums = sums_by_cluster(rows, clusters)",
        "sums = rows",
        "test_the_interval_is_that_of_a_plain_loop_over_resampled_documents",
    ),
    Mutant(
        "Z2",
        "paired=True,\n",
        "paired=False,\n",
        "test_the_interval_is_that_of_a_plain_loop_over_resampled_documents",
    ),
    Mutant(
        "Z3",
        "confidence_level=LEVEL,",
        "confidence_level=2 * LEVEL - 1,",
        "test_the_interval_is_that_of_a_plain_loop_over_resampled_documents",
    ),
    Mutant(
        "KK1",
        "(np.abs(swapped[one] - swapped[other]) >= observed)",
        "(swapped[one] - swapped[other] >= observed)",
        "test_the_exact_test_tries_every_swap_of_documents",
    ),
    Mutant(
        "KK2",
        "[other])[:, None] - TOLERANCE",
        "[other])[:, None] + TOLERANCE",
        "test_the_exact_test_tries_every_swap_of_documents",
    ),
    Mutant(
        "KK3",
        'clusters = [" ".join(pair.first.document_ids) for pair in pairs]',
        "clusters = [pair.first.example_id for pair in pairs]",
        "test_means_counts_and_the_ratio_of_costs",
    ),
    Mutant(
        "KK4",
        "only_second=len(scored[1]) - len(pairs)",
        "only_second=len(scored[0]) - len(pairs)",
        "test_questions_of_one_cell_alone_are_left_out_and_counted",
    ),
    Mutant(
        "U1",
        "if any(e.id not in done for done in kept)]",
        "if all(e.id not in done for done in kept)]",
        "test_a_shared_run_that_was_cut_between_two_cells_asks_what_one_of_them_misses",
    ),
    Mutant(
        "U2",
        "if example.id not in done]",
        "if True]",
        "test_a_shared_run_that_was_cut_between_two_cells_asks_what_one_of_them_misses",
    ),
    Mutant(
        "U4",
        "record in store.done.items() if record.error is None}",
        "record in store.done.items() if record.error is not None}",
        "test_a_method_that_hangs_fails_that_question_and_no_neighbour",
    ),
    Mutant(
        "D1",
        "parts = [stored.meter, meter, *(",
        "parts = [stored.meter, *(",
        "test_its_cost_is_shared_by_the_documents",
    ),
    Mutant(
        "D2",
        "for id_, other in self._indexes.items() if other.done())",
        "for id_, other in self._indexes.items())",
        "test_an_index_being_built_stays_in_memory",
    ),
    Mutant(
        "D3",
        "self._indexes.move_to_end(documents.id)",
        "pass",
        "test_of_indexes_the_longest_unused_goes_first",
    ),
    Mutant(
        "D4",
        "len(which), stored.meter, wall_s)",
        "len(which), Meter(), wall_s)",
        "test_a_sweep_over_stop_rules_equals_separate_runs",
    ),
    Mutant(
        "D6",
        "query=meter.flops,",
        "query=meter.flops if error is None else 0,",
        "test_a_question_that_fails_after_the_model_was_asked_keeps_what_it_cost",
    ),
    Mutant(
        "J1",
        'return row.model_validate_json(line) if line.endswith(b"\\n") else None',
        "return row.model_validate_json(line)",
        "test_a_file_that_was_cut_at_any_byte_of_its_last_line_ends_as_an_undisturbed_one",
    ),
    Mutant(
        "J2",
        "os.ftruncate(descriptor, end)",
        "pass",
        "test_a_disk_that_fills_up_ends_the_run_and_leaves_whole_records",
    ),
    Mutant(
        "J3",
        "if damaged or repeated:",
        "if damaged:",
        "test_of_two_records_of_one_question_the_last_one_stays_in_the_file",
    ),
    Mutant(
        "J4",
        'damaged.append(line if line.endswith(b"\\n") else line + b"\\n")',
        "damaged.append(line)",
        "test_lines_that_were_cut_are_set_aside_one_below_the_other",
    ),
    Mutant(
        "J5",
        "rest = rest[os.write(descriptor, rest) :]",
        "os.write(descriptor, rest)\n                    break",
        "test_a_disk_that_fills_up_ends_the_run_and_leaves_whole_records",
    ),
    Mutant(
        "I1",
        "draft.stat().st_mtime >= STALE_DRAFT_S",
        "draft.stat().st_mtime < STALE_DRAFT_S",
        "test_drafts_of_killed_processes_are_removed_and_those_of_living_ones_kept",
    ),
    Mutant(
        "I2",
        'if manifest.pop("sha256_of_this") != _sealed(manifest):',
        "if False:",
        "test_a_changed_cost_in_an_index_is_damage_too",
    ),
    Mutant(
        "I3",
        "if hashlib.sha256(body).hexdigest() !=",
        'if name == "index.json" and hashlib.sha256(body).hexdigest() !=',
        "test_a_damaged_index_is_built_again",
    ),
    Mutant("H1", "if not self.training:", "if True:", "test_the_id_follows_parts_not_their_order"),
    Mutant(
        "H2",
        "json.dumps(value, sort_keys=True, separators",
        "json.dumps(value, separators",
        "test_the_key_depends_on_every_part",
    ),
    Mutant("H3", 'del parts["data_label"]', "pass", "test_the_id_follows_parts_not_their_order"),
    Mutant(
        "H4",
        "examples=stable_hash([example.id for example in data.examples])",
        "examples=stable_hash(sorted(example.id for example in data.examples))",
        "test_the_order_of_the_examples_is_a_part_of_it",
    ),
    Mutant(
        "L1",
        "key=lambda k: (abs(costs[k] - target), k)",
        "key=lambda k: (abs(costs[k] - target), -k)",
        "test_the_nearest_k_is_found_in_few_steps_where_cost_is_linear",
    ),
    Mutant(
        "L2",
        "if high - low != 1 and not everything_read:",
        "if high - low > 2 and not everything_read:",
        "test_the_nearest_k_is_found_in_few_steps_where_cost_is_linear",
    ),
    Mutant(
        "WW1",
        "share = 100 * (ours / printed - 1)",
        "share = 100 * (1 - printed / ours)",
        "test_a_cost_is_said_in_percent_of_the_published",
    ),
    Mutant(
        "WW2",
        "value.n < summary.n:\n            yield",
        "value.n <= summary.n:\n            yield",
        "test_a_measure_that_some_questions_do_not_have_says_how_many_do",
    ),
    Mutant(
        "W3",
        "difference = value.mean - printed.value",
        "difference = printed.value - value.mean",
        "test_csv_is_long_and_complete",
    ),
    Mutant(
        "W4",
        "if value is not None and value.low is None:\n",
        "if False:\n",
        "test_a_missing_interval_has_its_reason",
    ),
    Mutant(
        "V1",
        "list(dict.fromkeys(child for node in best for child in tree.nodes[node].children))",
        "[child for node in best for child in tree.nodes[node].children]",
        "test_traversal_takes_the_best_of_each_layer_among_the_children_of_the_last",
    ),
    Mutant(
        "V2",
        "tree.nodes[node].tokens > max_tokens",
        "tree.nodes[node].tokens >= max_tokens",
        "test_the_budget_ends_at_the_first_node_that_does_not_fit",
    ),
    Mutant(
        "V3", "if len(layer) <= SMALL:", "if len(layer) < SMALL:", "test_up_to_eleven_leaves_get_no_summaries"
    ),
    Mutant(
        "V4",
        "if self.count(open_, high) <= self.most:",
        "if self.count(open_, high) < self.most:",
        "test_whole_sentences_are_gathered_while_they_fit",
    ),
    Mutant(
        "V5",
        "(scores[parts[at][0]], -at)",
        "(-scores[parts[at][0]], -at)",
        "test_nodes_that_do_not_fit_the_reader_are_dropped_from_the_worst_and_it_is_said",
    ),
    Mutant(
        "V6",
        '" ".join(text.split()) for text in texts',
        "text for text in texts",
        "test_each_text_of_a_cluster_is_one_line_of_the_prompt",
    ),
    Mutant(
        "Y1",
        "del remembered[0]",
        "del remembered[-1]",
        "test_the_oldest_memory_goes_first_where_the_window_is_short",
    ),
    Mutant(
        "Y2",
        "len(rejected) <= self.retries",
        "len(rejected) < self.retries",
        "test_after_the_last_retry_the_walk_has_failed",
    ),
    Mutant(
        "Y3",
        "if not self.tree.nodes[left].children:",
        "if True:",
        "test_going_back_marks_the_child_as_tried_and_remembers_the_segment",
    ),
    Mutant(
        "Y5",
        "if not groups or total > most:",
        "if not groups or total >= most:",
        "test_documents_that_fill_a_segment_exactly_share_it",
    ),
    Mutant(
        "Y6",
        "[MEMWALKER_GO_BACK] if len(self.path) > 1 else []",
        "[MEMWALKER_GO_BACK]",
        "test_a_reply_without_a_possible_action_is_asked_for_again",
    ),
    Mutant("Y7", "if len(actions) != 1:", "if not found:", "test_triage_format"),
    Mutant(
        "Y8",
        "self.reply_tokens + room, self.window",
        "self.reply_tokens, self.window",
        "test_the_oldest_memory_goes_first_where_the_window_is_short",
    ),
    Mutant(
        "Y9",
        "in range(2 * len(self.tree.nodes))",
        "in range(len(self.tree.nodes))",
        "test_going_back_marks_the_child_as_tried_and_remembers_the_segment",
    ),
    Mutant("O1", ".clamp(-LARGEST_RATIO, LARGEST_RATIO)", "", "test_a_ratio_is_held_within_bounds"),
    Mutant(
        "O2",
        "torch.cat([ranked, queries @ others.T / tau], dim=1)",
        "torch.cat([ranked, queries @ others.T], dim=1)",
        "test_the_losses_are_their_formulas",
    ),
    Mutant(
        "O3",
        "torch.cat([none, *parts[:at], *parts[at + 1 :]])",
        "torch.cat([none, *parts])",
        "test_other_graphs_of_the_batch_are_negatives_and_one_graph_has_none",
    ),
    Mutant(
        "O4",
        "share = (number * len(batches) + at) / (recipe.epochs * len(batches))",
        "share = number / recipe.epochs",
        "test_the_learning_rate_falls_to_nothing_along_a_cosine",
    ),
    Mutant(
        "O5",
        "flops=3 * forward * self.recipe.epochs",
        "flops=2 * forward * self.recipe.epochs",
        "test_the_cost_is_three_forwards_of_every_epoch_and_the_similarities",
    ),
    Mutant(
        "O6",
        "default_rng([recipe.seed, number]).permutation",
        "default_rng([recipe.seed]).permutation",
        "test_every_epoch_takes_all_graphs_in_an_order_of_its_own",
    ),
    Mutant(
        "B1",
        "key=lambda at: (-rank_of[parts[at][0]], -at)",
        "key=lambda at: (rank_of[parts[at][0]], -at)",
        "test_a_window_that_is_too_short_loses_the_worst_passages_first",
    ),
    Mutant(
        "B2",
        'RankedChunks(chunks, scores, np.argsort(-scores, kind="stable"))',
        'RankedChunks(chunks, scores, np.argsort(scores, kind="stable")[::-1])',
        "test_passages_with_equal_scores_are_read_in_document_order",
    ),
    Mutant(
        "B3",
        "Meter.combined([ranking, reading])",
        "Meter.combined([reading])",
        "TestSbert::test_replayed_equals_run_alone",
    ),
    Mutant(
        "P1",
        "max(query_flops, default=0.0)",
        "(fmean(query_flops) if query_flops else 0.0)",
        "test_what_a_question_costs_is_estimated_by_the_cell_that_reads_most",
    ),
    Mutant(
        "P2",
        "counted.add((first.index_name, key))",
        "pass",
        "test_an_index_that_groups_share_is_counted_once",
    ),
    Mutant(
        "P4",
        "if total > MAX_CELLS:",
        "if total >= MAX_CELLS:",
        "test_as_many_cells_as_allowed_are_planned_one_more_refused",
    ),
)


if __name__ == "__main__":
    main()
