"""What one simulated engine is: its size, its pace and its misbehaviour.

Only values and their checks live here; `__main__` reads them from the command line.
"""

from dataclasses import dataclass

SERVER_NAME = "burnproof-simulated-engine"
"""Value of the `server` header on every answer, so that nobody takes this for a real engine."""

FINGERPRINT = "SIMULATED"
"""Value of `system_fingerprint` in every answer of a completion endpoint."""

VERSION = "0.32.0"
"""The vLLM release whose endpoints, texts and metric names are imitated."""


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """Ways to be broken on purpose. Everything off is a healthy engine."""

    hang_completions: bool = False
    """Accept completions and never send a byte, while /health stays 200."""
    empty_metrics: bool = False
    """Answer /metrics with 200 and no body."""
    error_rate: float = 0.0
    """Ratio in [0, 1] of completions answered with HTTP 500 before any token."""
    stream_error_rate: float = 0.0
    """Ratio in [0, 1] of streams that carry an error object after half of their tokens."""
    truncate_rate: float = 0.0
    """Ratio in [0, 1] of streams closed cleanly after half of their tokens, without an end."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Everything one engine is started with."""

    name: str = "sim"
    """Appears in logs only."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port; the ready line on stdout says which."""
    model: str = "tiny-chat"
    """The served base model; adapters are added at run time."""
    max_model_len: int = 2048
    """Context length, tokens."""
    ttft_seconds: float = 0.02
    """Mean time from being scheduled to the first token."""
    prefill_token_seconds: float = 0.0
    """Mean time that each token of the prompt adds to the time to the first token. 0 is none."""
    itl_seconds: float = 0.005
    """Mean time between two tokens of one request."""
    jitter: float = 0.0
    """Sigma of the lognormal factor on all times; the mean stays what was asked for. 0 is none."""
    slots: int = 16
    """Requests decoded at the same time; the others wait in order of arrival."""
    kv_tokens: int = 65_536
    """Tokens that fit into the KV cache; when it is full the youngest request is preempted."""
    max_loras: int = 8
    """Adapters that may be loaded at the same time."""
    seed: int = 0
    """Seed of jitter and misbehaviour. Texts depend on the prompt alone."""
    misbehaviour: Misbehaviour = Misbehaviour()

    def problems(self) -> list[str]:
        """Return what is wrong with these options, one sentence each."""
        found = []
        if self.kv_tokens < self.max_model_len:
            found.append(
                f"kv-tokens {self.kv_tokens} cannot hold one request of "
                f"max-model-len {self.max_model_len} tokens"
            )
        if self.slots < 1:
            found.append("slots must be at least 1")
        times = (self.ttft_seconds, self.prefill_token_seconds, self.itl_seconds, self.jitter)
        if min(times) < 0:
            found.append("ttft-ms, prefill-us, itl-ms and jitter must not be negative")
        rates = self.misbehaviour
        for rate in (rates.error_rate, rates.stream_error_rate, rates.truncate_rate):
            if not 0.0 <= rate <= 1.0:
                found.append(f"a rate must lie in [0, 1], got {rate}")
        return found
