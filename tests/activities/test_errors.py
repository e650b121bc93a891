"""Every error of an adapter or the audit store crosses to a workflow in one shape."""

import asyncio
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

import audit.errors
import targets.errors
from activities.errors import MAX_RESULT_BYTES, MAX_TEXT, ErrorTranslation
from audit.errors import AuditError, HoldRefused
from audit.records import Hold, HoldState
from targets.errors import TargetError
from tests.activities.fakes import T0

HOLD = Hold("route/chat", HoldState.HELD, "r", None, T0, "", 1, None)


def family(base: type[Exception]) -> list[type[Exception]]:
    """The base and everything below it."""
    return [base] + [found for sub in base.__subclasses__() for found in family(sub)]


TARGET_ERRORS = family(TargetError)
AUDIT_ERRORS = family(AuditError)


class Inner(ActivityInboundInterceptor):
    """Stands for the activity: gives a result, or raises."""

    def __init__(self, does: Any) -> None:
        self.does = does

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if isinstance(self.does, Exception):
            raise self.does
        return self.does


def through(does: Any) -> Any:
    outer = ErrorTranslation().intercept_activity(Inner(does))

    async def work() -> Any:
        return await outer.execute_activity(
            ExecuteActivityInput(fn=work, args=(), executor=None, headers={})
        )

    return asyncio.run(ActivityEnvironment().run(work))


def made(kind: type[Exception]) -> Exception:
    return kind(HOLD) if kind is HoldRefused else kind("what went wrong")


def test_the_families_are_whole() -> None:
    defined = {
        found
        for module in (targets.errors, audit.errors)
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, Exception)
        and found.__module__ == module.__name__
    }
    assert defined == {*TARGET_ERRORS, *AUDIT_ERRORS}


@pytest.mark.parametrize("kind", TARGET_ERRORS)
def test_an_adapters_error_keeps_its_name_and_says_whether_to_try_again(
    kind: type[TargetError],
) -> None:
    with pytest.raises(ApplicationError) as crossed:
        through(made(kind))
    assert crossed.value.type == kind.__name__
    assert crossed.value.non_retryable is not kind.retryable
    assert crossed.value.__cause__ is not None


@pytest.mark.parametrize("kind", AUDIT_ERRORS)
def test_what_the_audit_store_refuses_is_never_tried_again(kind: type[AuditError]) -> None:
    with pytest.raises(ApplicationError) as crossed:
        through(made(kind))
    assert (crossed.value.type, crossed.value.non_retryable) == (kind.__name__, True)


def test_a_page_long_message_is_cut() -> None:
    with pytest.raises(ApplicationError) as crossed:
        through(TargetError("x" * 100_000))
    assert len(crossed.value.message) == MAX_TEXT


def test_a_cancel_is_no_error_to_translate() -> None:
    class Cancelled(Inner):
        async def execute_activity(self, input: ExecuteActivityInput) -> Any:
            raise asyncio.CancelledError

    outer = ErrorTranslation().intercept_activity(Cancelled(None))

    async def work() -> Any:
        return await outer.execute_activity(
            ExecuteActivityInput(fn=work, args=(), executor=None, headers={})
        )

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ActivityEnvironment().run(work))


def test_a_result_that_just_travels_is_passed_on() -> None:
    text = "x" * (MAX_RESULT_BYTES - len('""'))
    assert through(text) == text


@pytest.mark.parametrize("size", [MAX_RESULT_BYTES, 3_000_000])
def test_a_result_too_large_to_travel_is_refused_and_not_tried_again(size: int) -> None:
    with pytest.raises(ApplicationError, match="the limit is") as crossed:
        through("x" * size)
    assert (crossed.value.type, crossed.value.non_retryable) == ("PayloadTooLarge", True)
