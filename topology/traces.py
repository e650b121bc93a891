"""A sampled request as the gateway shows it: times, counts, hashes.

Offsets are seconds since the request was accepted. Unknown keys are ignored, so that a newer
gateway can be read.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One sampled request that has ended."""

    trace_id: str
    is_chosen_here: bool
    """Whether the gateway's own share chose it, so that it stands for the traffic."""
    route: str
    replica: str
    arm: str
    outcome: str
    accepted: float
    """Unix seconds."""
    is_stream: bool
    sent_s: float | None
    first_token_s: float | None
    e2e_s: float
    chunks: tuple[float, ...]
    content: tuple[bool, ...]
    dropped_chunks: int
    prompt_bytes: int
    prefixes: tuple[str, ...]
    """Keyed hashes of the prompt's beginnings, each a block longer than the one before."""
    client_run_id: str

    @property
    def is_whole(self) -> bool:
        """Whether the answer came to its own end."""
        return self.outcome == "ok"

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "RequestTrace":
        """Read one.

        Raises:
            KeyError: a key is missing.
        """
        return cls(
            trace_id=raw["trace_id"],
            is_chosen_here=raw["is_chosen_here"],
            route=raw["route"],
            replica=raw["replica"],
            arm=raw["arm"],
            outcome=raw["outcome"],
            accepted=raw["accepted"],
            is_stream=raw["is_stream"],
            sent_s=raw["sent_s"],
            first_token_s=raw["first_token_s"],
            e2e_s=raw["e2e_s"],
            chunks=tuple(raw["chunks"]),
            content=tuple(bool(each) for each in raw["content"]),
            dropped_chunks=raw["dropped_chunks"],
            prompt_bytes=raw["prompt_bytes"],
            prefixes=tuple(raw["prefixes"]),
            client_run_id=raw["client_run_id"],
        )
