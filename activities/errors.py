"""Turn what went wrong outside into the one error that crosses to a workflow.

The raise site decides whether a retry may help; workflows switch on `error.cause.type`, never on
text. Messages are cut: a payload has limits, and a whole HTML page helps nobody. Results are not
cut but refused when they are too large to travel. Both happen in an interceptor, so that no
activity can forget them.
"""

from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from audit.errors import AuditError
from targets.errors import TargetError

# Source: ours, 2026-12: two screens of text; a failure travels in history several times.
MAX_TEXT = 4000
# Source: Temporal refuses payloads of 2 MB, and retries the activity that made one until its total
# is over; ours stay far below, large data is stored and referred to.
MAX_RESULT_BYTES = 512 * 1024
LEASE_CLOSED = "LeaseClosed"
"""The target's lease is over: whatever was asked of it comes too late, and nothing is broken."""
TARGET_STOPPED = "TargetStopped"
"""The target refuses every lease, since somebody stopped everything."""
_KINDS = {"lease_closed": LEASE_CLOSED, "stopped": TARGET_STOPPED}


def fatal(kind: str, message: str) -> ApplicationError:
    """Return an error that no retry can mend."""
    return ApplicationError(message[:MAX_TEXT], type=kind, non_retryable=True)


def passing(kind: str, message: str) -> ApplicationError:
    """Return an error that a later attempt may not see."""
    return ApplicationError(message[:MAX_TEXT], type=kind)


def of_target(error: TargetError) -> ApplicationError:
    """Translate an adapter's error; its type is its class name, if its code has no better one."""
    return ApplicationError(
        str(error)[:MAX_TEXT],
        type=_KINDS.get(error.code, type(error).__name__),
        non_retryable=not error.retryable,
    )


class _Translate(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            result = await self.next.execute_activity(input)
        except TargetError as error:
            raise of_target(error) from error
        except AuditError as error:  # none of these is cured by trying again
            raise fatal(type(error).__name__, str(error)) from error
        _check_size(input.fn.__name__, result)
        return result


def _check_size(name: str, result: Any) -> None:
    """Refuse a result that would not travel.

    Raises:
        ApplicationError: `PayloadTooLarge`, never retried: a repeat makes the same result.
    """
    payloads = activity.payload_converter().to_payloads([result])
    size = sum(len(payload.data) for payload in payloads)
    if size > MAX_RESULT_BYTES:
        raise fatal(
            "PayloadTooLarge",
            f"{name} returned {size} bytes; the limit is {MAX_RESULT_BYTES}: store it, return "
            "a reference",
        )


class ErrorTranslation(Interceptor):
    """Translate the errors of adapters and of the audit store, and cap results, everywhere."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap each activity."""
        return _Translate(next)
