"""Turn the environment into typed, frozen settings.

Read by the mains only (`worker.py`, `api/`): nothing in the middle looks at the environment. One
class a concern, prefix `BURNPROOF_`; secrets are `SecretStr` so that printing settings cannot leak.
"""

import os
import re
from pathlib import Path

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class TemporalSettings(BaseSettings):
    """Where the Temporal server is."""

    model_config = SettingsConfigDict(env_prefix="BURNPROOF_TEMPORAL_", frozen=True)

    address: str = "127.0.0.1:7233"
    """host:port of the frontend; the dev server's default."""
    namespace: str = "default"
    """Temporal namespace."""
    ui_url: str = ""
    """Base address of the Web UI for links in output; empty prints no links."""


class GatewaySettings(BaseSettings):
    """Where the gateway is and the key to its admin API."""

    model_config = SettingsConfigDict(env_prefix="BURNPROOF_GATEWAY_", frozen=True)

    url: str = "http://127.0.0.1:8000"
    """Base address of the gateway, data path and admin API; of several gateways all, separated by
    commas."""
    admin_token: SecretStr = SecretStr("")
    """Admin token itself; prefer the file."""
    admin_token_file: Path | None = None
    """File that holds the admin token (mode 0600); wins over the value."""

    def urls(self) -> tuple[str, ...]:
        """Return the address of each gateway.

        Raises:
            ValueError: one is no address, or stands there twice.
        """
        found = tuple(each.strip().rstrip("/") for each in self.url.split(","))
        for each in found:
            if not re.fullmatch(r"https?://[^?#\s,]+", each):
                raise ValueError(
                    "BURNPROOF_GATEWAY_URL is no address: write it like http://127.0.0.1:8000, "
                    "several with commas between them"
                )
        if len(set(found)) != len(found):
            raise ValueError("BURNPROOF_GATEWAY_URL names one gateway twice: leave one out")
        return found

    def token(self) -> str:
        """Return the admin token.

        Raises:
            ValueError: neither the file nor the value gives one that a header can carry.
        """
        value = self.admin_token.get_secret_value()
        if self.admin_token_file is not None:
            try:
                value = self.admin_token_file.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ValueError(
                    f"cannot read {self.admin_token_file} ({error.strerror}): set "
                    "BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE to the file of the gateway admin token"
                ) from None
        if not value:
            raise ValueError(
                "no gateway admin token: set BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE to its file"
            )
        if not (value.isascii() and value.isprintable()):
            raise ValueError("the gateway admin token must be one line of printable ASCII")
        return value


class AuditSettings(BaseSettings):
    """Where the audit trail is stored."""

    model_config = SettingsConfigDict(env_prefix="BURNPROOF_AUDIT_", frozen=True)

    url: str = "sqlite:///burnproof.db"
    """SQLAlchemy address of the audit database."""


UNKNOWN_ENGINE = "unknown"
"""What a worker calls its engine when nobody said; such a record says nothing of it."""


class WorkerSettings(BaseSettings):
    """How a worker behaves."""

    model_config = SettingsConfigDict(env_prefix="BURNPROOF_WORKER_", frozen=True)

    poll_seconds: float = 0.5
    """Seconds between two reads of the journal while observing; the guard must see each second."""
    graceful_seconds: float = 5.0
    """Seconds given to running activities on SIGTERM; below a pod's grace period."""
    observers: int = 100
    """Observations at once in this process; undo has slots of its own, so they never starve it."""
    deployment_name: str = ""
    """Worker deployment for versioning; empty (local, tests) runs unversioned."""
    build_id: str = ""
    """Build id of this worker: the git commit, in production."""
    log_format: str = "json"
    """json for machines, console for people."""
    engine: str = UNKNOWN_ENGINE
    """vllm or simulated: in every record and report, so that no simulation passes for the real."""


def is_set(name: str) -> bool:
    """Tell whether the environment sets a variable; the one look at it outside the classes."""
    return bool(os.environ.get(name))
