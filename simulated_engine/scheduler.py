"""Who decodes and who waits: slots, a KV budget, first come first served.

The laws are those of a continuous-batching engine: a request waits until a slot is free and its
prompt fits into the KV cache; every token takes one more place; when the cache is full, the
youngest running request is preempted, loses its cache and goes back to the head of the queue.

It neither sleeps nor knows the time: a waiting request gives a callback, and pacing is elsewhere.
The hard part is that a preempted request learns it only when it next asks, so `state` is the
truth and the callback only a nudge.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum


class State(Enum):
    """Where one request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


class Sequence:
    """One request as the scheduler sees it."""

    __slots__ = ("adapter", "preemptions", "state", "tokens", "wake")

    def __init__(self, prompt_tokens: int, adapter: str, wake: Callable[[], None]) -> None:
        self.tokens = prompt_tokens
        """Tokens it holds, or will hold when it runs: prompt and what was generated."""
        self.adapter = adapter
        """Name of the adapter, or empty for the base model."""
        self.wake = wake
        """Called when it changes from waiting to running."""
        self.state = State.WAITING
        self.preemptions = 0


class Scheduler:
    """Slots and KV budget of one engine."""

    def __init__(self, slots: int, kv_tokens: int) -> None:
        self._slots = slots
        self._kv_tokens = kv_tokens
        self._used = 0
        # Insertion order is the order of admission: the last key is the youngest.
        self._running: dict[Sequence, None] = {}
        self._waiting: deque[Sequence] = deque()
        self._paused = False
        self.preemptions_total = 0

    @property
    def running(self) -> int:
        """Requests decoding now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests queued now."""
        return len(self._waiting)

    @property
    def paused(self) -> bool:
        """Nothing is admitted while this holds."""
        return self._paused

    def kv_usage_ratio(self) -> float:
        """Return the share of the KV budget in use, in [0, 1]."""
        return self._used / self._kv_tokens

    def adapters(self) -> tuple[list[str], list[str]]:
        """Return the adapters of running and of waiting requests, sorted."""
        running = {sequence.adapter for sequence in self._running if sequence.adapter}
        waiting = {sequence.adapter for sequence in self._waiting if sequence.adapter}
        return sorted(running), sorted(waiting)

    def submit(self, sequence: Sequence) -> None:
        """Queue a request; it may be running when this returns."""
        self._waiting.append(sequence)
        self._admit()

    def grow(self, sequence: Sequence) -> bool:
        """Make room for one more token; False when the request itself had to give way."""
        while self._used >= self._kv_tokens:
            youngest = next(reversed(self._running))
            self._preempt(youngest)
            if youngest is sequence:
                return False
        sequence.tokens += 1
        self._used += 1
        return True

    def finish(self, sequence: Sequence) -> None:
        """Forget a request, wherever it stands; the next ones may start."""
        if sequence.state is State.RUNNING:
            del self._running[sequence]
            self._used -= sequence.tokens
        elif sequence.state is State.WAITING:
            self._waiting.remove(sequence)
        sequence.state = State.DONE
        self._admit()

    def pause(self) -> None:
        """Admit nothing from now on; what runs goes on."""
        self._paused = True

    def resume(self) -> None:
        """Admit again."""
        self._paused = False
        self._admit()

    def _preempt(self, sequence: Sequence) -> None:
        del self._running[sequence]
        self._used -= sequence.tokens
        sequence.state = State.WAITING
        sequence.preemptions += 1
        self.preemptions_total += 1
        self._waiting.appendleft(sequence)

    def _admit(self) -> None:
        while self._waiting and not self._paused and len(self._running) < self._slots:
            head = self._waiting[0]
            # Strictly in order: a small request never overtakes a big one at the head.
            if self._used + head.tokens > self._kv_tokens:
                return
            self._waiting.popleft()
            self._running[head] = None
            self._used += head.tokens
            head.state = State.RUNNING
            head.wake()
