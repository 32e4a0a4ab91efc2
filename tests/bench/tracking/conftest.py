import pytest


@pytest.fixture(autouse=True)
def _own_store_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
