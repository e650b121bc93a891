"""What the parts of the store share: the database, and one check of its schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from audit.engine import Database
from audit.migrations import require_current

T = TypeVar("T")


class StorePart:
    """Units of work on a database whose schema was checked once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._checked = False

    def _write(self, unit: Callable[[Connection], T]) -> T:
        self._require_schema()
        return self._database.write(unit)

    def _read(self, unit: Callable[[Connection], T]) -> T:
        self._require_schema()
        return self._database.read(unit)

    def _require_schema(self) -> None:
        if not self._checked:
            require_current(self._database)
            self._checked = True
