"""The ways that sampled requests took, as one directed graph without circles.

A request goes from its route, through the hot beginning of its prompt if it has one, to a replica,
then from chunk to chunk, and ends with its outcome. Early chunks are nodes of their own; later ones
share a node with their neighbours (16 to 31, 32 to 63 and so on), so that the graph stays small
however long an answer is. Every edge leads to a greater rank, hence no circle. An edge's seconds
are the wait before its end; waits between chunks of one node stay inside it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from topology.hot_spots import HotPrefix
from topology.traces import RequestTrace

SINGLE_CHUNKS = 16
"""Chunks that are nodes of their own."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A place on the way. Ordered: an edge leads from a lesser to a greater rank."""

    rank: int
    name: str


@dataclass(slots=True)
class Flow:
    """What went along an edge, or through a node."""

    requests: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0

    def add(self, seconds: float, requests: int = 1) -> None:
        """Count a passage."""
        self.requests += requests
        self.seconds += seconds
        self.longest_s = max(self.longest_s, seconds)


@dataclass(slots=True)
class Graph:
    """All ways together."""

    nodes: dict[Node, Flow] = field(default_factory=dict)
    """Requests through each node, and the seconds spent inside it."""
    edges: dict[tuple[Node, Node], Flow] = field(default_factory=dict)


def chunk_node(index: int) -> Node:
    """Return the node of a chunk."""
    if index < SINGLE_CHUNKS:
        return Node(3 + index, f"chunk {index}")
    first = 1 << (index.bit_length() - 1)
    return Node(3 + SINGLE_CHUNKS + first.bit_length(), f"chunks {first}-{2 * first - 1}")


END_RANK = 1_000


def steps(trace: RequestTrace, hot: dict[str, str]) -> Iterator[tuple[Node, float]]:
    """Give the nodes of one request in order, each with the seconds waited before it.

    `hot` names the beginnings that get a node of their own.
    """
    yield Node(0, f"route {trace.route or 'none'}"), 0.0
    known = [each for each in trace.prefixes if each in hot]
    if known:
        yield Node(1, f"prefix {hot[known[-1]]}"), 0.0
    at = 0.0
    if trace.replica:
        at = trace.sent_s or 0.0
        yield Node(2, f"replica {trace.replica}"), at
    for index, offset in enumerate(trace.chunks):
        yield chunk_node(index), max(0.0, offset - at)
        at = offset
    yield Node(END_RANK, f"end {trace.outcome}"), max(0.0, trace.e2e_s - at)


def graph(traces: Iterable[RequestTrace], hot: Iterable[HotPrefix] = ()) -> Graph:
    """Join the ways of all requests."""
    names = {each.prefix: each.prefix[:8] for each in hot}
    made = Graph()
    for trace in traces:
        before: Node | None = None
        for node, seconds in steps(trace, names):
            if node == before:
                made.nodes[node].add(seconds, requests=0)
                continue
            made.nodes.setdefault(node, Flow()).add(0.0)
            if before is not None:
                made.edges.setdefault((before, node), Flow()).add(seconds)
            before = node
    return made


def slowest(made: Graph, limit: int = 8) -> list[tuple[str, Flow]]:
    """Return the edges and nodes in which most of the time was spent, the greatest first."""
    found = [(f"{a.name} -> {b.name}", flow) for (a, b), flow in made.edges.items()]
    found += [(f"inside {node.name}", flow) for node, flow in made.nodes.items()]
    found = [each for each in found if each[1].seconds > 0]
    return sorted(found, key=lambda each: (-each[1].seconds, each[0]))[:limit]
