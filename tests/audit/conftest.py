"""A fresh store for each test, copied from one that was migrated once."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from audit.migrations import upgrade
from audit.store import AuditStore

NOW = datetime(2026, 12, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "audit.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template, tmp_path / "audit.db"))


@pytest.fixture
def store(path: Path) -> Iterator[AuditStore]:
    store = AuditStore(f"sqlite:///{path}")
    yield store
    store.close()


@pytest.fixture
def now() -> datetime:
    return NOW


def open_run(store: AuditStore, run_id: str = "run-1", **changes: object) -> None:
    about = {
        "workflow_id": f"wf-{run_id}",
        "name": "stall the stream",
        "kind": "experiment",
        "spec": {"fault": "gateway/stream-stall"},
        "requested_by": "ada",
        "trigger": "cli",
        "at": NOW,
        **changes,
    }
    store.open_run(run_id, **about)
