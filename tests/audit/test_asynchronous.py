import asyncio
import inspect
import threading

from audit.asynchronous import AsyncAuditStore
from audit.store import AuditStore
from tests.audit.conftest import NOW, open_run


def test_it_has_every_method_of_the_store() -> None:
    def public(cls: type) -> set[str]:
        found = inspect.getmembers(cls, inspect.isfunction)
        return {name for name, _ in found if not name.startswith("_")}

    assert public(AsyncAuditStore) == public(AuditStore)


async def test_methods_give_what_the_store_gives(store: AuditStore) -> None:
    open_run(store)
    asynchronous = AsyncAuditStore(store)
    ref = await asynchronous.append("run-1", "k", "note", {"n": 1}, at=NOW)
    assert (await asynchronous.events("run-1"))[-1].hash == ref.hash
    assert await asynchronous.verify_chain("run-1") == []


async def test_many_at_once_make_one_chain(store: AuditStore) -> None:
    open_run(store)
    asynchronous = AsyncAuditStore(store)
    acts = [asynchronous.append("run-1", f"k{n}", "note", {"n": n}, NOW) for n in range(40)]
    refs = await asyncio.gather(*acts)
    assert sorted(ref.seq for ref in refs) == list(range(2, 42))
    assert await asynchronous.verify_chain("run-1") == []


async def test_the_loop_goes_on_while_the_database_is_locked(store: AuditStore) -> None:
    open_run(store)
    locked, free = threading.Event(), threading.Event()

    def hold_the_lock(_connection) -> None:
        locked.set()
        free.wait(10)

    holder = threading.Thread(target=store._database.write, args=(hold_the_lock,))
    holder.start()
    locked.wait(10)
    act = asyncio.create_task(AsyncAuditStore(store).append("run-1", "k", "note", {}, NOW))
    for _ in range(20):  # the loop turns although the act cannot go on
        await asyncio.sleep(0.01)
    assert not act.done()
    free.set()
    assert (await act).created
    holder.join()
