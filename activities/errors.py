"""Turn what went wrong outside into the one error that crosses to a workflow.

The raise site decides whether a retry may help; workflows switch on `error.cause.type`, never on
text. Messages are cut: a payload has limits, and a whole HTML page helps nobody. The translation is
an interceptor, so that no activity can forget it.
"""

from typing import Any

from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from audit.errors import AuditError
from targets.errors import TargetError

# Source: ours, 2026-12: two screens of text; a failure travels in history several times.
MAX_TEXT = 4000


def fatal(kind: str, message: str) -> ApplicationError:
    """Return an error that no retry can mend."""
    return ApplicationError(message[:MAX_TEXT], type=kind, non_retryable=True)


def passing(kind: str, message: str) -> ApplicationError:
    """Return an error that a later attempt may not see."""
    return ApplicationError(message[:MAX_TEXT], type=kind)


def of_target(error: TargetError) -> ApplicationError:
    """Translate an adapter's error, keeping its class name as the type."""
    return ApplicationError(
        str(error)[:MAX_TEXT],
        type=type(error).__name__,
        non_retryable=not error.retryable,
    )


class _Translate(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await self.next.execute_activity(input)
        except TargetError as error:
            raise of_target(error) from error
        except AuditError as error:  # none of these is cured by trying again
            raise fatal(type(error).__name__, str(error)) from error


class ErrorTranslation(Interceptor):
    """Translate the errors of adapters and of the audit store in every activity."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap each activity."""
        return _Translate(next)
