from pathlib import Path

import pytest

from tests.training.schedules import STAGE, written
from training.schedule import load_schedule
from training.train import decay_from


def test_rates_run_from_the_first_to_the_second_value(tmp_path: Path) -> None:
    schedule = load_schedule(written(tmp_path, STAGE, STAGE | {"muon_lr": 0.5}))
    assert schedule.steps == 20
    assert schedule.at(0).muon_lr == pytest.approx(0.01)
    assert schedule.at(5).muon_lr == pytest.approx(0.015)
    assert schedule.at(10).muon_lr == 0.5
    with pytest.raises(ValueError, match="step 20 lies beyond the end of the schedule"):
        schedule.at(20)


def test_a_decaying_branch_keeps_the_mix_and_ends_at_a_twentieth(tmp_path: Path) -> None:
    schedule = load_schedule(written(tmp_path, STAGE, STAGE))
    branch = decay_from(schedule, 13, 8)
    assert branch.steps == 21
    assert [branch.at(i) for i in range(10)] == [schedule.at(i) for i in range(10)]
    assert branch.at(13).muon_lr == pytest.approx(schedule.at(13).muon_lr)
    assert branch.at(20).muon_lr < 0.2 * schedule.at(13).muon_lr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speed": 1}, r"keys \['speed'\] are unknown or missing"),
        ({"options": {"shares": 1}}, r"unknown options \['shares'\]"),
        ({"steps": 0}, "at least one step"),
    ],
)
def test_a_bad_stage_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"schedule.yaml, stage 1.*{message}"):
        load_schedule(written(tmp_path, STAGE, STAGE | change))
