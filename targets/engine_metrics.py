"""Read an engine's metrics page: the few samples that are asked for, summed over their labels.

A page is one moment; who wants means or rates reads it twice. It never guesses: a sample that is
not there is not in the answer, and one that is not finite is left out.
"""

from collections.abc import Collection
from math import isfinite

import httpx
from prometheus_client.parser import text_string_to_metric_families

from targets.errors import TargetProtocolError, TargetRejected, TargetTimeout, TargetUnavailable

TIMEOUT_SECONDS = 5.0
"""Source: ours, 2026-12: vLLM's page takes 10 ms when idle; a loaded engine answers late."""


async def read_samples(
    url: str, names: Collection[str], transport: httpx.AsyncBaseTransport | None = None
) -> dict[str, float]:
    """Return name → value of those samples of `url`/metrics.

    Raises:
        TargetTimeout: no answer in time.
        TargetUnavailable: no connection.
        TargetRejected: another status than 200.
        TargetProtocolError: no metrics page.
    """
    address = url.rstrip("/") + "/metrics"
    try:
        async with httpx.AsyncClient(
            timeout=TIMEOUT_SECONDS, transport=transport, trust_env=False
        ) as client:
            answer = await client.get(address)
    except httpx.TimeoutException as late:
        raise TargetTimeout(f"{address} gave no answer in time") from late
    except httpx.RequestError as lost:
        raise TargetUnavailable(f"{address} does not answer: {type(lost).__name__}") from lost
    if answer.status_code != httpx.codes.OK:
        raise TargetRejected(f"{address} answered {answer.status_code}", str(answer.status_code))
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                if sample.name in names and isfinite(sample.value):
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
    except ValueError as garbled:
        raise TargetProtocolError(f"{address} is no metrics page") from garbled
    return found
