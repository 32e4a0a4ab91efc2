import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from bench.packages import BROUGHT_BY, MissingPackageError, require

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OF_METHODS = {
    "umap": "longdoc-bench[raptor]",
    "numba": "longdoc-bench[raptor]",
    "pynndescent": "longdoc-bench[raptor]",
    "torch_geometric": "longdoc-bench[gor]",
    "gensim": "longdoc-bench[gor]",
    "llmlingua": "longdoc-bench[llmlingua]",
}
HIDE = """
import sys
from importlib.machinery import PathFinder

class Hidden(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {names!r} else super().find_spec(name, path, target)

sys.meta_path = [Hidden if finder is PathFinder else finder for finder in sys.meta_path]
from bench.cli.main import main
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as ended:
        if ended.code:
            raise
"""


def distributions(requirements: list[str]) -> set[str]:
    """Names of the distributions, those of our own extras included."""
    names: set[str] = set()
    for requirement in map(Requirement, requirements):
        if requirement.name == PROJECT["name"]:
            for extra in requirement.extras:
                names |= distributions(PROJECT["optional-dependencies"][extra])
        else:
            names.add(canonicalize_name(requirement.name))
    return names


def imports() -> Iterator[tuple[str, str]]:
    """(file, top-level package) of every import in bench and methods."""
    for file in [*(ROOT / "bench").rglob("*.py"), *(ROOT / "methods").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                yield str(file.relative_to(ROOT)), name.partition(".")[0]


def test_every_import_is_of_the_core_or_of_an_extra_that_brings_it() -> None:
    core = distributions(PROJECT["dependencies"])
    known = packages_distributions()
    for file, package in imports():
        if package in sys.stdlib_module_names or package in ("bench", "methods"):
            continue
        sources = {canonicalize_name(name) for name in known.get(package, [])}
        if sources & core:
            continue
        brought_by = BROUGHT_BY | (OF_METHODS if file.startswith("methods") else {})
        assert package in brought_by, f"{file} imports {package}, which neither core nor extra declares"
        assert not sources or sources & distributions([brought_by[package]]), (package, brought_by[package])


def test_all_brings_what_any_extra_brings_but_for_development() -> None:
    every = set(PROJECT["optional-dependencies"]) - {"dev", "docs", "all"}
    assert distributions(["longdoc-bench[all]"]) == distributions([f"longdoc-bench[{e}]" for e in every])


def core(*commands: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Commands of ``bench``, one after the other, where no extra is installed."""
    code = HIDE.format(names=sorted(BROUGHT_BY | OF_METHODS))
    words = [sys.executable, "-c", code, *commands]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_core_scores_counts_and_renders(tmp_path: Path) -> None:
    (tmp_path / "predictions.jsonl").write_text('{"id": "1", "prediction": "Paris", "answers": ["Paris"]}\n')
    commands = {
        "model flops llama-3.1-8b --new-tokens 1500": '"parameters": 8030261248',
        "table table1 --render-only": "PECAN",
        "list methods": "longllmlingua",
        "score predictions.jsonl": '"f1": 1.0',
    }
    done = core(*commands, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(expected in done.stdout for expected in commands.values())
    assert "not installed" not in done.stderr


@pytest.mark.parametrize("command", ["run --method bm25 --dataset hotpotqa --limit 1", "table quickstart"])
def test_what_needs_a_model_names_the_extra_before_anything_else(tmp_path: Path, command: str) -> None:
    done = core(command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "pip install 'longdoc-bench[readers]'" in done.stderr


def test_several_missing_packages_are_named_with_all_their_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError) as caught:
        require("This", "mlflow", "click", "ray")

    assert str(caught.value) == (
        "This needs mlflow and ray; they are not installed here. Run: pip install 'longdoc-bench[track]' "
        "'longdoc-bench[ray]'"
    )


def pins() -> list[str]:
    """The requirements of the lock."""
    return [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]


def test_python_3_11_2_of_debian_12_can_install_every_pinned_version() -> None:
    refused = {}
    for pin in map(Requirement, pins()):
        try:
            installed = distribution(pin.name)
        except PackageNotFoundError:
            continue
        python = installed.metadata.get("Requires-Python")
        if pin.specifier.contains(installed.version) and python and "3.11.2" not in SpecifierSet(python):
            refused[pin.name] = python
    assert refused == {}


def test_every_pinned_version_has_its_hashes() -> None:
    locked = (ROOT / "hashes.txt").read_text().replace(" \\\n", "").splitlines()
    assert all(re.fullmatch(r"\S+==\S+( +--hash=sha256:[0-9a-f]{64})+", line) for line in locked)
    named = {canonicalize_name(pin.partition("==")[0]): pin.partition("==")[2] for pin in pins()}
    assert named.pop("torch")  # several builds of one version, each with its own hash
    assert dict(line.split()[0].split("==") for line in locked) == named


def test_the_wheel_holds_the_packages_their_assets_and_the_samples_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    sizes = {file.filename: file.file_size for file in zipfile.ZipFile(wheel).infolist()}
    places = {"bench": "bench", "methods": "methods"}
    places |= {name: f"bench/_shipped/{name}" for name in ("datasets", "paper_tables")}
    expected = {
        f"{place}/{file.relative_to(ROOT / name).as_posix()}"
        for name, place in places.items()
        for file in (ROOT / name).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {name for name in sizes if ".dist-info/" not in name} == expected | {"longdoc_bench.py"}
    kinds = re.compile(r"\.(py|typed|yaml|csv|jsonl?|md|safetensors|css|js|jinja)$|\.dist-info/")
    assert [name for name in sizes if not kinds.search(name)] == []
    assert not list(filter(re.compile(r"(^|/)(tests?|test_\w+\.py|results/.*\.jsonl?)($|/)").search, sizes))
    assert max(sizes.values()) <= 8_000_000 and wheel.stat().st_size <= 25_000_000, "of the reader; of all"
