from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from bench.errors import ConfigError
from bench.sweeps.file import read_experiment, with_overrides
from bench.sweeps.grid import plan_experiment

WHOLE = """\
name: patience
methods:
  - bm25
  - method: pecan
    set: {variant: pecan}
    grid:
      t_p: 1:3
      t_c: [0.3, 0.9]
  - method: memwalker
    set:
      reasoning: on
datasets: [hotpotqa, qasper]
models: tiny
data: sample
limit: 2
seed: 3
dtype: float32
set: {order: rank}
grid:
  k: 1,3
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def fault(folder: Path, text: str) -> str:
    """The message that reading or planning the file ends with, its place without the folder."""
    with pytest.raises(ConfigError) as error:
        plan_experiment(read_experiment(write(folder, text)))
    return str(error.value).replace(f"{folder}/", "")


def test_a_file_says_all_that_flags_can(tmp_path: Path) -> None:
    experiment = read_experiment(write(tmp_path, WHOLE))
    assert (experiment.name, experiment.datasets, experiment.models) == (
        "patience",
        ("hotpotqa", "qasper"),
        ("tiny",),
    )
    assert (experiment.setting.limit, experiment.setting.seed, experiment.setting.dtype) == (2, 3, "float32")
    bm25, pecan, memwalker = experiment.methods
    assert (bm25.options, bm25.grid) == ({"order": "rank"}, {"k": [1, 3]})  # shared options that it has
    assert pecan.options == {"variant": "pecan"}
    assert pecan.grid == {"t_p": [1, 2, 3], "t_c": [0.3, 0.9]}  # 1:3 is a range, not sixty-three
    assert memwalker.options == {"reasoning": "on"}  # a text, not the truth value of YAML 1.1
    groups = plan_experiment(experiment)
    assert sum(map(len, groups)) == 2 * (2 + 6 + 1)
    assert [len(group) for group in groups] == [2, 6, 1] * 2  # one search per question serves each


def test_a_method_of_its_own_mind_goes_before_what_is_shared(tmp_path: Path) -> None:
    text = "methods: [{method: bm25, set: {k: 4}}, dragon]\ndatasets: qasper\ngrid: {k: [1, 2]}\n"
    bm25, dragon = read_experiment(write(tmp_path, text)).methods
    assert (bm25.options, bm25.grid) == ({"k": 4}, {})
    assert dragon.grid == {"k": [1, 2]}


def test_flags_go_before_the_file(tmp_path: Path) -> None:
    experiment = with_overrides(read_experiment(write(tmp_path, WHOLE)), ["tiny-s"], limit=1)
    assert (experiment.models, experiment.setting.limit, experiment.setting.seed) == (("tiny-s",), 1, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sweep.yaml:1: a sweep file is a mapping of keys to values; found nothing"),
        (
            "methods: bm25\ndataset: qasper\n",
            "sweep.yaml:2: dataset: is not a known key. Did you mean 'datasets'?",
        ),
        (
            "methods: bm52\ndatasets: qasper\n",
            "sweep.yaml:1: methods.0.method: Unknown method 'bm52'. Did you mean 'bm25'?",
        ),
        (
            "methods: bm25\ndatasets:\n- qaspar\n",
            "sweep.yaml:3: datasets.0: Unknown data set 'qaspar'. Did you mean",
        ),
        ("methods: bm25\ndatasets: qasper\ndata: /no/such\n", "sweep.yaml:1: "),
        (
            "methods:\n- method: bm25\n  grids: {}\ndatasets: qasper\n",
            "sweep.yaml:3: methods.0.grids: is not a known key. Did you mean 'grid'?",
        ),
        (
            "methods:\n- method: bm25\n  grid:\n    kk: 1\ndatasets: qasper\n",
            "sweep.yaml:4: no method has the option 'kk'. Did you mean 'k'? Options of bm25: ",
        ),
        ("methods: bm25\ndatasets: qasper\nset: {t_p: 1}\n", "sweep.yaml:3: no method has the option 't_p'."),
        (
            "methods:\n- method: bm25\n  grid:\n    k: [1, 0]\ndatasets: qasper\n",
            "sweep.yaml:4: Method 'bm25': k=0: Input should be greater than or equal to 1",
        ),
        (
            "methods:\n- method: bm25\n  set:\n    b: 0.5\n    k1: much\ndatasets: qasper\n",
            "sweep.yaml:5: Method 'bm25': k1='much'",
        ),
        ("methods: bm25\ndatasets: qasper\ngrid: {k: 5:1}\n", "sweep.yaml:3: k: 5:1 is empty"),
        ("methods: bm25\ndatasets: qasper\ngrid: {k: 1:99999999}\n", "has more than 10,000 values"),
        (
            "methods: bm25\ndatasets: qasper\nset: {k: 1}\ngrid: {k: 2}\n",
            "sweep.yaml:4: k: under set and under",
        ),
        (
            "methods: [bm25, bm25]\ndatasets: qasper\n",
            "sweep.yaml:1: bm25 default on qasper with tiny is the same",
        ),
        (
            "methods:\n- bm25\n- method: bm25\n  grid: {k: [3, 5]}\ndatasets: qasper\n",
            "sweep.yaml:3: bm25 k=5 on qasper with tiny is the same cell as bm25 default (sweep.yaml:2)",
        ),
        (
            "methods: bm25\ndatasets: qasper\ngrid: {k: auto:pecan}\n",
            "sweep.yaml:3: k=auto:METHOD is found by",
        ),
    ],
)
def test_every_fault_names_its_line_and_what_was_expected(tmp_path: Path, text: str, message: str) -> None:
    assert message in fault(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory. Expected a YAML file"):
        read_experiment(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(ConfigError, match="latin.yaml: not UTF-8 at byte 6"):
        read_experiment(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="larger than 1,048,576 bytes"):
        read_experiment(tmp_path / "large.yaml")


def test_the_files_in_the_documentation_and_the_help_can_be_planned(tmp_path: Path) -> None:
    from bench.cli.sweep import command

    text = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text("utf-8")
    documented = text.split("```yaml\n")[1].split("```")[0]
    shown = inspect.cleandoc(command.help or "").split("name: rankers")[1]
    examples = {
        "patience": (documented, {"bm25", "pecan"}),
        "rankers": (f"name: rankers{shown}", {"bm25", "tfidf"}),
    }
    for name, (example, methods) in examples.items():
        experiment = read_experiment(write(tmp_path, example))
        assert experiment.name == name
        cells = [cell for group in plan_experiment(with_overrides(experiment, limit=1)) for cell in group]
        assert {cell.cell.request.method for cell in cells} == methods
