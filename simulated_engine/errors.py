"""Errors the way vLLM 0.32 writes them.

ApiError    carries status, message, type and parameter of one refusal
"""

import json


class ApiError(Exception):
    """One refusal, ready to be sent."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param

    def body(self) -> bytes:
        """Return the JSON body."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return json.dumps({"error": error}, separators=(",", ":")).encode()


def bad_request(message: str, param: str | None = None) -> ApiError:
    """Return the usual 400."""
    return ApiError(400, message, "BadRequestError", param)


def internal_error(message: str) -> ApiError:
    """Return the usual 500."""
    return ApiError(500, message, "InternalServerError")


def unknown_model(name: object, served: list[str]) -> ApiError:
    """Return the 404 for a model or adapter that is not there."""
    aliases = ", ".join(served)
    return ApiError(
        404,
        f"The model `{name}` does not exist. Valid aliases: {aliases}.",
        "NotFoundError",
        "model",
    )
