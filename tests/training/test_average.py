import pytest
import torch

from training.average import between
from training.checkpoint import Checkpoint


def checkpoint(value: float, size: int = 2) -> Checkpoint:
    return Checkpoint({}, {"w": torch.full((size,), value)}, {}, {"step": int(value)})


def test_the_average_lies_between_both_and_goes_on_from_the_second() -> None:
    middle = between(checkpoint(1.0), checkpoint(5.0), 0.25)

    assert torch.equal(middle.average["w"], torch.full((2,), 2.0)) and middle.meta == {"step": 5}


def test_runs_of_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="different sizes"):
        between(checkpoint(1.0), checkpoint(5.0, size=3), 0.5)
