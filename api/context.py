"""Find what a command talks to: the environment first, else the local stack that is running.

So `burnproof run` in a second terminal needs no setting after `burnproof up`. Nothing is started
here and nothing is guessed: when neither names a server, the default addresses are tried and the
error says which command mends it.
"""

import contextlib
import getpass
from dataclasses import dataclass
from pathlib import Path

import httpx
from sqlalchemy.exc import ArgumentError

from api.stack.state import load_state
from audit.store import AuditStore
from settings import AuditSettings, GatewaySettings, TemporalSettings, WorkerSettings, is_set
from targets.gateway_admin import GatewayAdmin
from targets.gateway_fleet import GatewayFleet, connect


@dataclass(frozen=True)
class Context:
    """Everything a command may talk to."""

    temporal: TemporalSettings
    gateway: GatewaySettings
    audit: AuditSettings
    engine: str

    def store(self) -> AuditStore:
        """Open the audit store at its current schema."""
        try:
            store = AuditStore(self.audit.url)
        except (ValueError, ImportError, ArgumentError) as error:  # they may quote the password
            raise ValueError(
                "BURNPROOF_AUDIT_URL is no database address that can be used here "
                f"({type(error).__name__}): write it like sqlite:////folder/audit.db"
            ) from None
        store.upgrade()
        return store

    def admin(self) -> GatewayAdmin | GatewayFleet:
        """Connect to the admin API of the gateway, or of all of them.

        Raises:
            ValueError: no token is set, or the address is none.
        """
        try:
            return connect(self.gateway.urls(), self.gateway.token())
        except httpx.InvalidURL:
            raise ValueError(
                "BURNPROOF_GATEWAY_URL is no address: write it like http://127.0.0.1:8000"
            ) from None

    @property
    def is_simulated(self) -> bool:
        """Tell whether the engine behind the gateway is a simulation."""
        return self.engine == "simulated"


def login() -> str:
    """Return who is at this terminal; a container may have no name for its user."""
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return "unknown"


def load_context() -> Context:
    """Read settings; fill what is not set from the running local stack."""
    state = load_state()
    if state is None:
        return Context(
            TemporalSettings(), GatewaySettings(), AuditSettings(), WorkerSettings().engine
        )
    found = {key: value for key, value in state.environment().items() if not is_set(key)}
    temporal = {
        field: found[f"BURNPROOF_TEMPORAL_{field.upper()}"]
        for field in ("address", "ui_url")
        if f"BURNPROOF_TEMPORAL_{field.upper()}" in found
    }
    gateway: dict[str, str | Path] = {}
    if "BURNPROOF_GATEWAY_URL" in found:
        gateway["url"] = found["BURNPROOF_GATEWAY_URL"]
    if "BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE" in found and not is_set(
        "BURNPROOF_GATEWAY_ADMIN_TOKEN"
    ):
        gateway["admin_token_file"] = Path(found["BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE"])
    audit = {"url": found["BURNPROOF_AUDIT_URL"]} if "BURNPROOF_AUDIT_URL" in found else {}
    return Context(
        TemporalSettings.model_validate({**TemporalSettings().model_dump(), **temporal}),
        GatewaySettings.model_validate({**GatewaySettings().model_dump(), **gateway}),
        AuditSettings.model_validate({**AuditSettings().model_dump(), **audit}),
        found.get("BURNPROOF_WORKER_ENGINE", WorkerSettings().engine),
    )
