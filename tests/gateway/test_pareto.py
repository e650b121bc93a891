"""The Pareto delay keeps its law: as drawn at full length, and through a running gateway."""

import math
from pathlib import Path

import pytest

from faults.sampling import draw_delay
from tests.gateway.pareto import ALPHA_BIAS, P99_ERROR, TIMER_SECONDS, Law, fit, gaussian_like, run

DRAWS = 100_000
SPECIFIED = Law(alpha=1.5, base=0.05, cap=30.0)


def drawn(law: Law) -> list[float]:
    """Draw with keys as a gateway makes them."""
    keys = (f"0123456789abcdef-{n}" for n in range(1, DRAWS + 1))
    return [draw_delay(1, key, alpha=law.alpha, base=law.base, cap=law.cap) for key in keys]


@pytest.mark.parametrize("alpha", [1.3, 1.5, 1.8])
def test_100_000_draws_keep_tail_index_and_p99_and_gaussian_noise_like_them_keeps_neither(
    alpha: float,
) -> None:
    law = Law(alpha, SPECIFIED.base, SPECIFIED.cap)
    delays = drawn(law)
    assert fit(delays, law).is_met
    assert sum(delay == law.cap for delay in delays) / DRAWS == pytest.approx(
        law.capped_share, abs=4 * math.sqrt(law.capped_share / DRAWS)
    )
    noise = fit(gaussian_like(delays), law)
    assert abs(noise.alpha_bias) > 10 * ALPHA_BIAS
    assert abs(noise.p99_error) > 10 * P99_ERROR
    assert abs(noise.p99_measured / law.p99 - 1) > 2 * P99_ERROR


async def test_a_running_gateway_waits_for_what_it_drew_and_draws_by_the_law(
    tmp_path: Path,
) -> None:
    law = Law(alpha=1.5, base=0.05, cap=2.5)
    found = await run(tmp_path, law, draws=3_000, connections=100)
    delays = found.drawn()
    count = len(delays)
    assert count == pytest.approx(3_000, abs=4 * math.sqrt(3_000 * 0.1))
    bound = 3 * law.alpha / math.sqrt(count)  # three deviations of the estimate
    assert abs(fit(delays, law).alpha_bias) <= bound
    assert abs(fit(gaussian_like(delays), law).alpha_bias) > 2 * bound
    for each in found.delayed:
        assert each.drawn is not None
        assert min(each.recorded, each.seen) >= each.drawn - TIMER_SECONDS
    longest = sorted(found.delayed, key=lambda each: each.drawn or 0.0)[-count // 20 :]
    late = sorted(each.seen - (each.drawn or 0.0) for each in longest)
    assert late[len(late) // 2] < (longest[0].drawn or 0.0)  # waited for once, not twice
