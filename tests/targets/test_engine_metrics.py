"""An engine's metrics page: what is asked for, summed; every failure is one of ours."""

import httpx
import pytest

from targets.engine_metrics import read_samples
from targets.errors import (
    TargetProtocolError,
    TargetRejected,
    TargetTimeout,
    TargetUnavailable,
)

PAGE = """# HELP vllm:x_seconds Time.
# TYPE vllm:x_seconds histogram
vllm:x_seconds_bucket{engine="0",le="+Inf"} 3.0
vllm:x_seconds_count{engine="0"} 3.0
vllm:x_seconds_count{engine="1"} 4.0
vllm:x_seconds_sum{engine="0"} NaN
# HELP vllm:hits_total Hits.
# TYPE vllm:hits_total counter
vllm:hits_total{engine="0"} 5.0
"""
NAMES = ("vllm:x_seconds_count", "vllm:x_seconds_sum", "vllm:hits_total", "vllm:none_total")


def answers(status: int = 200, text: str = PAGE) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _: httpx.Response(status, text=text))


async def test_samples_are_summed_over_their_labels_and_what_is_no_number_is_left_out():
    found = await read_samples("http://e/", NAMES, answers())
    assert found == {"vllm:x_seconds_count": 7.0, "vllm:hits_total": 5.0}


async def test_a_page_that_is_none_or_is_refused_is_said():
    with pytest.raises(TargetRejected, match="answered 404"):
        await read_samples("http://e", NAMES, answers(404))
    with pytest.raises(TargetProtocolError, match="no metrics page"):
        await read_samples("http://e", NAMES, answers(text="<html>{"))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(httpx.ReadTimeout, TargetTimeout), (httpx.ConnectError, TargetUnavailable)],
)
async def test_an_engine_that_does_not_answer_is_a_failure_of_ours(kind, wanted):
    def fail(request: httpx.Request) -> httpx.Response:
        raise kind("x", request=request)

    with pytest.raises(wanted):
        await read_samples("http://e", NAMES, httpx.MockTransport(fail))
