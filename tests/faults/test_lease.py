"""The lease as a state machine: whatever happens in whatever order, what ended stays ended."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from faults.lease import (
    MAX_SECONDS,
    ItemClosed,
    ItemConflict,
    ItemState,
    Lease,
    LeaseClosed,
    LeaseState,
)

ITEMS = st.sampled_from(["split", "fault", "remedy"])


class LeaseLife(RuleBasedStateMachine):
    """Acts come in any order, also late ones from a worker that everyone believes dead."""

    def __init__(self):
        super().__init__()
        self.now = 100.0
        self.lease = Lease.open("lease", 20, self.now)
        self.deadline = self.now + 20
        self.ended: LeaseState | None = None
        self.gone: set[str] = set()

    def see(self, lease):
        """Keep the value as the gateway does, and remember what has ended."""
        self.lease = lease
        if lease.state is not LeaseState.OPEN and self.ended is None:
            self.ended = lease.state
        for key, item in lease.items.items():
            if item.state is not ItemState.ACTIVE:
                self.gone.add(key)

    def refused(self):
        return self.ended is not None or self.now >= self.deadline

    @rule(seconds=st.floats(0.1, 15))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def the_timer_looks(self):
        self.see(self.lease.expire(self.now))

    @rule(seconds=st.floats(1, MAX_SECONDS))
    def a_holder_renews(self, seconds):
        if self.refused():
            with pytest.raises(LeaseClosed):
                self.lease.renew(seconds, self.now)
        else:
            self.see(self.lease.renew(seconds, self.now))
            self.deadline = self.now + seconds

    @rule(item=ITEMS, value=st.integers(1, 2), most=st.none() | st.floats(0.1, 30))
    def a_worker_attaches(self, item, value, most):
        if self.refused():
            with pytest.raises(LeaseClosed):
                self.lease.attach(item, "fault", {"v": value}, self.now, most)
            return
        current = self.lease.expire(self.now)
        there = current.items.get(item)
        if there is None:
            lease, first = self.lease.attach(item, "fault", {"v": value}, self.now, most)
            assert first
            self.see(lease)
        elif there.state is not ItemState.ACTIVE:
            with pytest.raises(ItemClosed):
                self.lease.attach(item, "fault", {"v": value}, self.now, most)
        elif there.spec != {"v": value}:
            with pytest.raises(ItemConflict):
                self.lease.attach(item, "fault", {"v": value}, self.now, most)
        else:
            lease, first = self.lease.attach(item, "fault", {"v": value}, self.now, most)
            assert not first
            assert lease.items[item] == there

    @rule(item=ITEMS)
    def a_worker_detaches(self, item):
        was_there = item in self.lease.items
        lease, state = self.lease.detach(item, self.now)
        assert state in {ItemState.REMOVED, ItemState.NEVER_APPLIED}
        assert state is ItemState.NEVER_APPLIED or was_there
        assert lease.detach(item, self.now) == (lease, state)
        self.gone.add(item)
        self.see(lease)

    @rule()
    def someone_closes(self):
        self.see(self.lease.close(self.now))
        assert self.lease.close(self.now) == self.lease

    @rule()
    def the_gateway_restarts(self):
        self.see(self.lease.drop())

    @invariant()
    def what_ended_stays_as_it_ended(self):
        if self.ended is not None:
            assert self.lease.state is self.ended
            assert not self.lease.is_open(self.now)

    @invariant()
    def nothing_is_in_force_past_the_deadline(self):
        if self.now >= self.deadline:
            assert self.lease.active(self.now) == ()
            assert self.lease.expire(self.now).state is not LeaseState.OPEN

    @invariant()
    def an_item_that_went_is_never_in_force_again(self):
        assert not self.gone & {item.item_id for item in self.lease.active(self.now)}

    @invariant()
    def no_item_outlives_its_own_end(self):
        for item in self.lease.active(self.now):
            assert item.ends_at is None or self.now < item.ends_at

    @invariant()
    def looking_twice_changes_nothing(self):
        once = self.lease.expire(self.now)
        assert once.expire(self.now) == once
        assert self.lease.active(self.now) == once.active(self.now)


LeaseLife.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLeaseLife = LeaseLife.TestCase


def test_a_lease_holds_until_just_before_its_deadline():
    lease = Lease.open("l", 20, 100.0)
    assert lease.is_open(119.999)
    assert not lease.is_open(120.0)
    assert lease.expire(120.0).state is LeaseState.LAPSED


def test_a_removal_that_overtakes_its_attachment_wins():
    lease, state = Lease.open("l", 20, 0.0).detach("fault", 1.0)
    assert state is ItemState.NEVER_APPLIED
    with pytest.raises(ItemClosed):
        lease.attach("fault", "fault", {}, 2.0)


def test_a_tombstone_and_a_dropped_lease_refuse_everything_but_removal():
    for lease in (Lease.tombstone("l"), Lease.dropped("l")):
        with pytest.raises(LeaseClosed):
            lease.renew(20, 0.0)
        with pytest.raises(LeaseClosed):
            lease.attach("fault", "fault", {}, 0.0)
        assert lease.detach("fault", 0.0)[1] is ItemState.NEVER_APPLIED
        assert lease.close(0.0).state is lease.state


@pytest.mark.parametrize("seconds", [0, -1, MAX_SECONDS + 1, float("nan"), float("inf")])
def test_a_lease_of_a_senseless_length_is_refused(seconds):
    with pytest.raises(ValueError, match="lease is above 0"):
        Lease.open("l", seconds, 0.0)
    with pytest.raises(ValueError, match="lease is above 0"):
        Lease.open("l", 20, 0.0).renew(seconds, 1.0)


def test_the_next_change_is_the_earlier_of_item_and_lease():
    lease, _ = Lease.open("l", 20, 0.0).attach("fault", "fault", {}, 0.0, 5.0)
    assert lease.next_change() == 5.0
    after = lease.expire(5.0)
    assert after.items["fault"].state is ItemState.EXPIRED
    assert after.is_open(5.0)
    assert after.next_change() == 20.0
    assert after.close(6.0).next_change() is None
    assert after.detach("fault", 6.0)[1] is ItemState.REMOVED
