"""Turn what went wrong outside into the one error that crosses to a workflow.

The raise site decides whether a retry may help; workflows switch on `error.cause.type`, never on
text. Messages are cut: a payload has limits, and a whole HTML page helps nobody.
"""

from temporalio.exceptions import ApplicationError

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
