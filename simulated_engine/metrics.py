"""Series in the Prometheus text format, with the names and bucket bounds of vLLM 0.32.

The blind spots are imitated too: a request whose client went away adds no sample to any per-
request histogram and does not move the abort counter, while its prompt and generated tokens do
count. Whoever computes availability from these series alone sees survivors only.

Bounds are written "1.0", never "1": a query for le="1" finds nothing, as with the real engine.
"""

import time
from bisect import bisect_left
from dataclasses import dataclass

from simulated_engine.options import EngineOptions
from simulated_engine.scheduler import Scheduler

# Source of all bounds: the exposition of vLLM 0.32.0 under load.
_SECONDS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920)
_REQUEST_SECONDS = (*map(float, _SECONDS), 7680.0)
_FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
_PARAMS_N = (1.0, 2.0, 5.0, 10.0, 20.0)

_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "request_prompt_tokens": ("Prompt tokens of a request.", _TOKENS),
    "request_generation_tokens": ("Generated tokens of a request.", _TOKENS),
    "request_params_n": ("Parameter n of a request.", _PARAMS_N),
    "request_params_max_tokens": ("Parameter max_tokens of a request.", _TOKENS),
    "time_to_first_token_seconds": ("Arrival to first token, seconds.", _FIRST_TOKEN_SECONDS),
    "inter_token_latency_seconds": ("Time between two tokens, seconds.", _TOKEN_SECONDS),
    "request_time_per_output_token_seconds": ("Mean token time, seconds.", _TOKEN_SECONDS),
    "e2e_request_latency_seconds": ("Arrival to last token, seconds.", _REQUEST_SECONDS),
    "request_queue_time_seconds": ("Time in the queue, seconds.", _REQUEST_SECONDS),
    "request_inference_time_seconds": ("Time running, seconds.", _REQUEST_SECONDS),
    "request_prefill_time_seconds": ("Time to the first token, seconds.", _REQUEST_SECONDS),
    "request_decode_time_seconds": ("First to last token, seconds.", _REQUEST_SECONDS),
    "request_num_preemptions": ("Preemptions of a request.", _PREEMPTIONS),
}

_FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """Counts per bucket, their number and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Add one sample."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, model: str) -> list[str]:
        """Return the exposition: cumulative buckets, count, sum."""
        total, lines = 0, []
        labels = f'engine="0",model_name="{model}"'
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            bucket = f'engine="0",le="{bound}",model_name="{model}"'
            lines.append(f"{name}_bucket{{{bucket}}} {float(total)}")
        lines.append(f"{name}_count{{{labels}}} {float(total)}")
        lines.append(f"{name}_sum{{{labels}}} {self._sum}")
        return lines


@dataclass(slots=True)
class Timing:
    """When the steps of one finished request happened: monotonic seconds."""

    arrived: float
    scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    tokens: int = 0


class Metrics:
    """All series of one engine."""

    def __init__(self, options: EngineOptions, scheduler: Scheduler) -> None:
        self._options = options
        self._scheduler = scheduler
        self._created = time.time()
        self._histograms = {name: Histogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}
        self._success = dict.fromkeys(_FINISHED_REASONS, 0)
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._lora_info: dict[tuple[str, str], float] = {}
        self._http: dict[tuple[str, str, str], int] = {}

    def prefilled(self, prompt_tokens: int, timing: Timing) -> None:
        """Count a first token, whatever becomes of the request."""
        self._prompt_tokens += prompt_tokens
        waited = timing.first_token - timing.arrived
        self._histograms["time_to_first_token_seconds"].observe(waited)

    def generated(self, gap: float | None) -> None:
        """Count one token and, but for the first, the gap before it in seconds."""
        self._generation_tokens += 1
        if gap is not None:
            self._histograms["inter_token_latency_seconds"].observe(gap)

    def finished(self, reason: str, request: tuple[int, int], preemptions: int, t: Timing) -> None:
        """Add one request that reached its end; `request` is (prompt tokens, max_tokens)."""
        self._success[reason] += 1
        decode = t.last_token - t.first_token
        samples = {
            "request_prompt_tokens": request[0],
            "request_generation_tokens": t.tokens,
            "request_params_n": 1,
            "request_params_max_tokens": request[1],
            "request_time_per_output_token_seconds": decode / max(1, t.tokens - 1),
            "e2e_request_latency_seconds": t.last_token - t.arrived,
            "request_queue_time_seconds": t.scheduled - t.arrived,
            "request_inference_time_seconds": t.last_token - t.scheduled,
            "request_prefill_time_seconds": t.first_token - t.scheduled,
            "request_decode_time_seconds": decode,
            "request_num_preemptions": preemptions,
        }
        for name, value in samples.items():
            self._histograms[name].observe(value)

    def note_adapters(self) -> None:
        """Stamp the series of the adapters now running and waiting; old series linger."""
        running, waiting = self._scheduler.adapters()
        self._lora_info[",".join(running), ",".join(waiting)] = time.time()

    def answered(self, handler: str, method: str, status: int) -> None:
        """Count one HTTP answer."""
        key = (handler, method, f"{status // 100}xx")
        self._http[key] = self._http.get(key, 0) + 1

    def render(self) -> bytes:
        """Return the whole exposition."""
        labels = f'engine="0",model_name="{self._options.model}"'
        lines = self._gauges(labels) + self._counters(labels)
        for name, histogram in self._histograms.items():
            lines += _head(f"vllm:{name}", "histogram", _HISTOGRAMS[name][0])
            lines += histogram.lines(f"vllm:{name}", self._options.model)
        lines += self._lora_lines() + self._http_lines()
        return ("\n".join(lines) + "\n").encode()

    def _gauges(self, labels: str) -> list[str]:
        scheduler = self._scheduler
        values: dict[str, float] = {
            "num_requests_running": scheduler.running,
            "num_requests_waiting": scheduler.waiting,
            "kv_cache_usage_perc": scheduler.kv_usage_ratio(),
        }
        lines = []
        for name, value in values.items():
            lines += _head(f"vllm:{name}", "gauge", name.replace("_", " ").capitalize() + ".")
            lines.append(f"vllm:{name}{{{labels}}} {float(value)}")
        return lines

    def _counters(self, labels: str) -> list[str]:
        values = {
            "num_preemptions": self._scheduler.preemptions_total,
            "prompt_tokens": self._prompt_tokens,
            "generation_tokens": self._generation_tokens,
        }
        lines = []
        for name, value in values.items():
            lines += _head(f"vllm:{name}_total", "counter", f"{name.replace('_', ' ')} so far.")
            lines.append(f"vllm:{name}_total{{{labels}}} {float(value)}")
            lines += _head(f"vllm:{name}_created", "gauge", "When the counter was made.")
            lines.append(f"vllm:{name}_created{{{labels}}} {self._created!r}")
        name = "vllm:request_success_total"
        lines += _head(name, "counter", "Requests that reached their end, by reason.")
        model = f'model_name="{self._options.model}"'
        for reason, count in self._success.items():
            lines.append(f'{name}{{engine="0",finished_reason="{reason}",{model}}} {float(count)}')
        return lines

    def _lora_lines(self) -> list[str]:
        name = "vllm:lora_requests_info"
        lines = _head(name, "gauge", "Adapters running and waiting; the value is a time stamp.")
        for (running, waiting), at in (self._lora_info or {("", ""): self._created}).items():
            lines.append(
                f'{name}{{max_lora="{self._options.max_loras}",running_lora_adapters="{running}",'
                f'waiting_lora_adapters="{waiting}"}} {at!r}'
            )
        return lines

    def _http_lines(self) -> list[str]:
        lines = _head("http_requests_total", "counter", "Answers by handler, method and status.")
        for (handler, method, status), count in self._http.items():
            labels = f'handler="{handler}",method="{method}",status="{status}"'
            lines.append(f"http_requests_total{{{labels}}} {float(count)}")
        return lines


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
