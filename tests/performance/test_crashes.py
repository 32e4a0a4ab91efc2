"""What counts as another outcome of a run that was killed."""

from __future__ import annotations

from performance.crashes import rounded


def test_what_shares_a_batch_is_no_difference_and_everything_else_is() -> None:
    # Killed between two records, the second question is asked alone.
    alone = {"prediction": "A", "tokens": {"prompt": 386, "computed": 386}, "trace": [{"p_yes": 0.99711647}]}
    together = alone | {"tokens": {"prompt": 386, "computed": 346}, "trace": [{"p_yes": 0.99711646}]}
    assert rounded(together) == rounded(alone)
    for other in (
        {**alone, "prediction": "Bea"},
        {**alone, "tokens": {"prompt": 387, "computed": 386}},
        {**alone, "trace": [{"p_yes": 0.9962}]},
        {**alone, "trace": []},
    ):
        assert rounded(together) != rounded(other)
