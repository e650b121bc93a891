"""The ways of requests are one graph without circles, however long an answer is."""

import graphlib

from hypothesis import given
from hypothesis import strategies as st

from tests.topology.build import trace
from topology.hot_spots import hot_prefixes
from topology.paths import Graph, chunk_node, graph, slowest, steps


@st.composite
def traces(draw: st.DrawFn):
    gaps = draw(st.lists(st.floats(0, 5), max_size=80))
    chunks, at = [], 0.1
    for gap in gaps:
        at += gap
        chunks.append(at)
    return trace(
        chunks=chunks,
        content=[1] * len(chunks),
        e2e_s=at + 0.1,
        replica=draw(st.sampled_from(["a", "b", ""])),
        outcome=draw(st.sampled_from(["ok", "timeout"])),
        prefixes=draw(st.sampled_from([[], ["p"], ["p", "q"]])),
    )


def edges_of(made: Graph) -> dict:
    found: dict = {}
    for before, after in made.edges:
        found.setdefault(after, set()).add(before)
    return found


@given(st.lists(traces(), max_size=6))
def test_there_is_no_circle_and_every_request_arrives(some):
    made = graph(some, hot_prefixes(some, 256))
    list(graphlib.TopologicalSorter(edges_of(made)).static_order())
    assert all(before.rank < after.rank for before, after in made.edges)
    starts = sum(flow.requests for node, flow in made.nodes.items() if node.rank == 0)
    ends = sum(flow.requests for node, flow in made.nodes.items() if node.name.startswith("end"))
    assert starts == ends == len(some)


@given(traces())
def test_the_waits_on_a_way_sum_to_its_whole_time(one):
    assert abs(sum(seconds for _, seconds in steps(one, {})) - one.e2e_s) < 1e-6


def test_chunks_share_nodes_from_the_seventeenth_on():
    names = [chunk_node(index).name for index in (0, 15, 16, 31, 32, 4095)]
    shown = ["chunk 0", "chunk 15", "chunks 16-31", "chunks 16-31", "chunks 32-63"]
    assert names == [*shown, "chunks 2048-4095"]
    ranks = [chunk_node(index).rank for index in range(5000)]
    assert ranks == sorted(ranks)


def test_a_long_answer_makes_a_small_graph():
    long = trace(chunks=[n / 100 for n in range(4000)], content=[1] * 4000, e2e_s=40.0)
    assert len(graph([long]).nodes) < 30


def test_a_shared_beginning_is_a_node_before_the_replica():
    some = [trace(replica="a"), trace(replica="b"), trace(prefixes=[])]
    made = graph(some, hot_prefixes(some, 256))
    names = {(a.name, b.name): flow.requests for (a, b), flow in made.edges.items()}
    assert names["route chat", "prefix p2"] == 2
    assert names["prefix p2", "replica b"] == 1
    assert names["route chat", "replica a"] == 1


def test_the_slowest_steps_come_first():
    stalled = trace(chunks=[0.2, 0.3, 9.0], content=[1, 1, 1], e2e_s=9.1)
    (name, flow), *_ = slowest(graph([stalled]))
    assert name == "chunk 1 -> chunk 2"
    assert (flow.requests, round(flow.longest_s, 3)) == (1, 8.7)
