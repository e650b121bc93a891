"""Beginnings that come again: counted by replica, the longest of a chain, ranked."""

from hypothesis import given
from hypothesis import strategies as st

from tests.topology.build import trace
from topology.hot_spots import hot_prefixes


def prompt(*prefixes: str, replica: str = "a", **more):
    return trace(prefixes=list(prefixes), replica=replica, **more)


def test_of_a_chain_that_always_came_together_only_the_longest_is_named():
    found = hot_prefixes([prompt("s1", "s2", "x"), prompt("s1", "s2", "y")], 256)
    assert [(each.prefix, each.size_bytes, each.requests) for each in found] == [("s2", 512, 2)]


def test_a_shorter_beginning_that_came_more_often_is_named_too():
    some = [prompt("s", "c"), prompt("s", "c"), prompt("s", "d"), prompt("s")]
    found = {each.prefix: each for each in hot_prefixes(some, 100)}
    assert set(found) == {"s", "c"}
    assert (found["s"].requests, found["s"].share) == (4, 1.0)


def test_each_replica_works_a_beginning_out_once():
    spread = [prompt("s", replica=name) for name in "abab"]
    (found,) = hot_prefixes(spread, 100)
    assert found.replicas == {"a": 2, "b": 2}
    assert found.reusable_bytes == 200


def test_the_ranking_is_by_the_bytes_that_reuse_saves():
    often = [prompt("short")] * 5
    long = [prompt("l1", "l2", "l3", "l4", "l5", "l6")] * 2
    assert [each.prefix for each in hot_prefixes([*often, *long], 100)] == ["l6", "short"]


def test_what_came_once_or_was_chosen_by_a_client_is_no_hot_spot():
    chosen = [prompt("s", is_chosen_here=False)] * 9
    assert hot_prefixes([*chosen, prompt("s"), prompt()], 100) == []
    assert hot_prefixes([], 100) == []


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=3), max_size=12))
def test_no_beginning_saves_more_than_all_prompts_hold(paths: list[list[str]]):
    chains = [["/".join(path[: n + 1]) for n in range(len(path))] for path in paths]
    found = hot_prefixes([prompt(*chain) for chain in chains], 10)
    held = 10 * sum(map(len, chains))
    assert all(0 < each.reusable_bytes < held for each in found)
    assert len(found) <= 10
