"""Experiments that are through in seconds: wide objectives, strong faults, short windows."""

from typing import Any

from tests.faults.documents import slo


def errors(probability: float = 0.5, duration: str = "90s") -> dict[str, Any]:
    """503 for a share of what the chaos replica is asked."""
    return {
        "template": "gateway/error",
        "parameters": {"status": 503, "probability": probability},
        "duration": duration,
    }


def stalls(after_tokens: int = 1, stall: str = "50ms") -> dict[str, Any]:
    """A silence that nobody minds: touches requests and breaks none of them."""
    parameters = {"after_tokens": after_tokens, "stall": stall, "probability": 1.0}
    return {"template": "gateway/stream-stall", "parameters": parameters, "duration": "90s"}


def experiment(route: str, name: str, lease: float = 6.0, **changes: Any) -> dict[str, Any]:
    """Breaks within seconds, as it may (`recovers`), and is met again after it: PASS."""
    document: dict[str, Any] = {
        "apiVersion": "burnproof/v1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "target": {"route": route},
        "slos": [slo(0.9)],
        "hypothesis": "recovers",
        "arms": {"chaos": {"share": 0.5, "replicas": ["b"]}, "unit": "request"},
        "fault": errors(),
        "guard": {"abort_burn_rate": 8},
        "judge": {"metrics": ["errors"], "margin_errors": 0.3},
        "steady_state": {"window": "10s", "min_requests": 20},
        "recovery": {"within": "30s", "window": "10s", "min_requests": 20},
        "lease": {"seconds": lease, "withdraw_within": "60s"},
    }
    document.update(changes)
    return document


def lasting(route: str, name: str, lease: float = 6.0, **changes: Any) -> dict[str, Any]:
    """Touches every request of the chaos replica and is compared until somebody stops it."""
    # A margin so small that it is never proven: with the fault this mild, nothing else ends it.
    judge = {"metrics": ["errors"], "margin_errors": 0.004}
    given = {"hypothesis": "withstands", "fault": stalls(), "judge": judge, **changes}
    return experiment(route, name, lease, **given)


def mended(route: str, name: str, lease: float = 6.0, **changes: Any) -> dict[str, Any]:
    """Breaks, is remedied under the fault, is met again, is withdrawn: PASS."""
    policy = {
        "apiVersion": "burnproof/v1",
        "kind": "RemediationPolicy",
        "metadata": {"name": "chat"},
        "when": {"compliance_below": 0.85, "window": "10s", "min_requests": 30},
        "actions": [
            {
                "action": "breaker/tighten",
                "threshold": 0.05,
                "holdout": 0.2,
                "verify": {"alpha": 0.05, "within": "60s"},
            }
        ],
        "limits": {"max_trials": 1, "cooldown": "0s"},
    }
    remediation = {"policy": policy, "under_fault": True, "recover_within": "60s"}
    given = {
        "slos": [slo(0.8)],
        "guard": {"abort_burn_rate": 4},
        "remediation": remediation,
        **changes,
    }
    return experiment(route, name, lease, **given)
