"""Our own answers: errors in the shape that OpenAI clients read, and the two labels of a probe."""

import json

from gateway.flight import Flight
from gateway.http1.heads import Pairs

JSON: Pairs = [(b"Content-Type", b"application/json")]


def error_body(status: int, message: str) -> bytes:
    """Return the body of an error of ours."""
    error = {"message": message, "type": "burnproof_gateway", "param": None, "code": status}
    return json.dumps({"error": error}).encode()


def probe_labels(flight: Flight) -> Pairs:
    """Return what is added to the answer to a probe, and to no other."""
    if not flight.probe:
        return []
    return [
        (b"x-burnproof-arm", flight.arm.encode()),
        (b"x-burnproof-replica", flight.replica.encode()),
    ]
