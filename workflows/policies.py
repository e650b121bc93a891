"""Say how long each kind of act may take and how it is retried, in one place.

Bundles by kind of act, spread into calls as `**policies.READ`. Every call has a total: Temporal's
own default retries for ever, also on an argument that cannot be decoded. The heartbeat time-out
also bounds the wait for a cancelled activity whose worker is dead.

Source: style page, from p99 measured on a busy two-core machine.
"""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import (
    ActivityCancellationType,
    ActivityConfig,
    LocalActivityConfig,
)

from workflows import queues

SOON = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=5)
)
FEW = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    maximum_interval=timedelta(seconds=5),
    maximum_attempts=3,
)

DECIDE = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=5),
    schedule_to_close_timeout=timedelta(seconds=15),
    retry_policy=FEW,
)
READ = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=60),
    schedule_to_close_timeout=timedelta(minutes=2),
    retry_policy=FEW,
)
ACTUATE = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=8),
    schedule_to_close_timeout=timedelta(minutes=1),
    retry_policy=FEW,
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)
RECORD = ActivityConfig(
    start_to_close_timeout=timedelta(seconds=10),
    schedule_to_close_timeout=timedelta(hours=1),
    retry_policy=SOON,
)


def hold(limit: timedelta) -> ActivityConfig:
    """Renewal of a lease for at most `limit`, on its own queue.

    A cancelled holder is not waited for: the lease is closed at the target first, and a closed
    lease cannot be renewed.
    """
    return ActivityConfig(
        task_queue=queues.HOLD,
        start_to_close_timeout=limit,
        schedule_to_close_timeout=limit,
        heartbeat_timeout=timedelta(seconds=5),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=2)
        ),
    )


def observe(limit: timedelta) -> ActivityConfig:
    """Observation of at most `limit`, moved to another worker when one dies."""
    return ActivityConfig(
        task_queue=queues.OBSERVE,
        start_to_close_timeout=limit,
        schedule_to_close_timeout=limit,
        heartbeat_timeout=timedelta(seconds=5),
        retry_policy=SOON,
    )


def revert(limit: timedelta) -> ActivityConfig:
    """Revert, tried for `limit` in all, on slots that nothing else uses."""
    return ActivityConfig(
        task_queue=queues.UNDO,
        start_to_close_timeout=min(limit, timedelta(seconds=60)),
        schedule_to_close_timeout=limit,
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=30)
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
