"""Writers in processes of their own: `python -m tests.audit.writers COMMAND URL …`.

The imports are paid once; the writers are forks that make their own store.
"""

import os
import sys
from datetime import UTC, datetime

from audit.engine import Database
from audit.migrations import upgrade
from audit.store import AuditStore


def count_up(url: str, name: str, units: int) -> None:
    """Read a number, then write the next one: the unit that SQLite refuses to a late writer."""
    database = Database(url)

    def unit(connection):
        read = connection.exec_driver_sql("SELECT count(*), coalesce(max(n), 0) FROM counted")
        rows, highest = read.one()
        assert rows == highest
        connection.exec_driver_sql("INSERT INTO counted VALUES (?, ?)", (highest + 1, name))

    for _ in range(units):
        database.write(unit)


def append(url: str, name: str, units: int) -> None:
    """Append to one run that others append to as well."""
    store = AuditStore(url)
    for index in range(units):
        store.append("run-1", f"{name}/{index}", "note", {"i": index}, datetime.now(UTC))


def forever(url: str, _name: str, _units: int) -> None:
    """Write segments and events until killed, and say so after each."""
    store = AuditStore(url)
    for index in range(1_000_000):
        pages = [{"records": [{"seq": index * 50 + n} for n in range(50)]}]
        store.put_segment("run-1", "stream", index, pages, datetime.now(UTC))
        store.append("run-1", f"note/{index}", "note", {"i": index}, datetime.now(UTC))
        os.write(1, b"%d\n" % index)


def migrate(url: str, _name: str, _units: int) -> None:
    """Bring the database to the newest schema."""
    upgrade(url)


def main(command: str, url: str, processes: int, units: int) -> int:
    """Fork the writers, wait for them, and return how many failed."""
    work = {"count": count_up, "append": append, "forever": forever, "migrate": migrate}[command]
    ready, go = os.pipe()
    children = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)  # returns when the parent closes its end: all start together
            try:
                work(url, f"writer-{number}", units)
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                os._exit(1)
            os._exit(0)
        children.append(child)
    os.close(ready)
    os.close(go)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
