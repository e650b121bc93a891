"""The gateway's configuration file: which routes exist and which replicas serve them.

It is read at start, and again when a reload is asked for (`reload.py`); everything that an
experiment changes (splits, faults, breaker thresholds) comes through leases. The file holds no
secret: the admin token lies in a file of its own. Hard part: a typo must stop the start with one
readable line, since a gateway that silently ignores a key is found out only when its breaker did
not open.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from gateway.journal import RING_RECORDS
from gateway.names import Name, Strict
from gateway.tenants.config import RouteLimit, TenantsConfig

ANY_MODEL = "*"
"""The model pattern that every request matches."""


class ConfigError(ValueError):
    """The configuration cannot be used; the text is one line for a person."""


class BreakerConfig(Strict):
    """When a replica's breaker opens and how long it stays fully open."""

    threshold_ratio: float = Field(default=0.05, gt=0, lt=1)
    """Share of bad requests, ratio in (0, 1), that the lower bound must exceed. Default 0.05."""

    window: int = Field(default=200, ge=10, le=100_000)
    """Latest requests of the replica that are judged. Default 200 (design: circuit breaker)."""

    min: int = Field(default=100, ge=1, le=100_000)
    """Requests below which the breaker never opens. Default 100."""

    open_seconds: float = Field(default=5.0, gt=0, le=3600)
    """Pause, in seconds, before probes are let through. Default 5: longer than one bad burst."""

    @model_validator(mode="after")
    def _window_holds_minimum(self) -> Self:
        if self.min > self.window:
            raise ValueError(f"min ({self.min}) is larger than window ({self.window})")
        return self


class ReplicaConfig(Strict):
    """One engine process."""

    name: Name
    url: str = Field(pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$")

    @property
    def base(self) -> str:
        """The address without a slash at its end, ready for a raw path."""
        return self.url.rstrip("/")


class RouteConfig(Strict):
    """A share of the traffic: the requests for some models, and who may serve them."""

    name: Name
    models: tuple[str, ...] = Field(default=(ANY_MODEL,), min_length=1)
    labels: dict[str, str] = Field(default_factory=dict)
    replicas: tuple[ReplicaConfig, ...] = Field(min_length=1)
    breaker: BreakerConfig = BreakerConfig()
    gap_limit_seconds: float = Field(default=2.0, gt=0, le=3600)
    """Longest silence after the first token, in seconds, that still counts as good. Default 2."""

    timeout_seconds: float = Field(default=300.0, gt=0, le=86_400)
    """Whole request, in seconds, injected delay included. Default 300: long answers are normal."""

    limit: RouteLimit | None = None
    """Requests at once, and who goes next when there are more. Default: no limit."""

    slo_id: Name | None = None
    """The objective that this route's requests count for; on their spans, nowhere else."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [replica.name for replica in self.replicas]
        if len(set(names)) != len(names):
            raise ValueError(f"route {self.name}: two replicas have the same name")
        return self


class TracingConfig(Strict):
    """Which requests are sampled, and where their spans go."""

    sample_ratio: float = Field(default=0.01, ge=0, le=1)
    """Share of the requests without a parent, ratio in [0, 1]. Default 0.01; 0 samples none."""

    parents_per_second: float = Field(default=10.0, ge=0, le=10_000)
    """Most requests a second that are sampled because their client says so. Default 10."""

    max_events: int = Field(default=4096, ge=1, le=65_536)
    """Events of one answer whose times are kept. Default 4096: OpenTelemetry's own is 128, and a
    stream has one for each token."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^/?#@\s]+/[^?#\s]*$")
    """Where spans are sent by OTLP over HTTP, path included, such as
    http://127.0.0.1:4318/v1/traces. Default none: nothing is sent and no header is set."""


class DrainConfig(Strict):
    """How the process ends when it is asked to."""

    announce_seconds: float = Field(default=0.0, ge=0, le=300)
    """How long new connections are still served while /readyz says 503. Default 0; behind a load
    balancer the time that it needs to notice, 5 to 10 s on Kubernetes."""

    seconds: float = Field(default=5.0, ge=0, le=3600)
    """How long requests in flight may then go on, in seconds. Default 5: below a pod's 30."""


FIXED = (
    "host",
    "port",
    "admin_token_file",
    "journal_dir",
    "journal_max_bytes",
    "journal_memory_records",
    "tracing",
)
"""Keys that only a start can change."""


class GatewayConfig(Strict):
    """The whole file."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    """0 lets the system choose; the address is printed when the gateway listens."""

    admin_token_file: Path
    journal_dir: Path
    journal_max_bytes: int = Field(default=256 * 1024 * 1024, ge=64 * 1024)
    """Size, in bytes, that all journal segments may have together. Default 256 MiB."""

    journal_memory_records: int = Field(default=RING_RECORDS, ge=1_000, le=1_000_000)
    """Latest records kept in memory for readers; older ones are read from disk. Default 50,000:
    about 30 MB."""

    drain: DrainConfig = DrainConfig()
    tracing: TracingConfig = TracingConfig()

    routes: tuple[RouteConfig, ...] = Field(min_length=1)
    tenants: TenantsConfig | None = None
    """Who sends requests and what each may use. Default: `x-tenant-id` is noted, no more."""

    @property
    def fingerprint(self) -> str:
        """16 hex digits that two gateways share if they treat requests alike."""
        told = self.model_dump(mode="json", exclude={*FIXED, "drain"})
        return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    @model_validator(mode="after")
    def _routes_are_distinct(self) -> Self:
        names = [route.name for route in self.routes]
        if len(set(names)) != len(names):
            raise ValueError("two routes have the same name")
        models = [model for route in self.routes for model in route.models]
        if len(set(models)) != len(models):
            raise ValueError("one model belongs to two routes")
        members = () if self.tenants is None else self.tenants.members
        for member in members:
            for route in member.routes:
                if route not in names:
                    raise ValueError(f"tenant {member.name}: there is no route {route}")
        return self


def one_line(error: ValidationError) -> str:
    """Say the first problem of a validation in one line: path, then message."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "document"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return " ".join(f"{path}: {first['msg']}{more}".split())


def load_config(path: Path) -> GatewayConfig:
    """Read the configuration.

    Raises:
        ConfigError: The file is missing, is not JSON, or does not fit; one line.
    """
    try:
        raw: Any = json.loads(path.read_bytes())
        return GatewayConfig.model_validate(raw)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {one_line(error)}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error


def load_token(path: Path) -> str:
    """Read the admin token.

    Raises:
        ConfigError: The file is missing or holds fewer than 16 characters.
    """
    try:
        token = path.read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(token) < 16:
        raise ConfigError(f"{path}: an admin token needs at least 16 characters")
    return token
