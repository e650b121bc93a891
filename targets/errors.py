"""Say what went wrong at a target, in five words that callers can act on.

    TargetError
    ├── TargetUnavailable   nobody answered (refused, reset, DNS): retrying may help
    ├── TargetTimeout       no answer in time: what happened there is UNKNOWN, look before acting
    again ├── TargetRejected      it answered no, and will again (bad request, closed lease,
    conflict) ├── TargetNotFound      it does not know that name
    └── TargetProtocolError it answered something we cannot read

Adapters raise only these, with the original chained. `code` is the target's own word for the
refusal.
"""


class TargetError(Exception):
    """Base of everything an adapter raises."""

    retryable = False

    def __init__(self, message: str, code: str = "") -> None:
        """Keep the target's own error code beside the text."""
        super().__init__(message)
        self.code = code


class TargetUnavailable(TargetError):
    """Nobody answered."""

    retryable = True


class TargetTimeout(TargetError):
    """No answer in time; the effect is unknown."""

    retryable = True


class TargetRejected(TargetError):
    """The target refused, and will refuse again."""


class TargetNotFound(TargetError):
    """The target does not know that name."""


class TargetProtocolError(TargetError):
    """The answer cannot be read."""
