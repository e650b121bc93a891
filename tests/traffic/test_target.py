import pytest

from traffic.target import RemoteTarget, check_target

LOCAL = ["http://127.0.0.1:1", "http://127.9.8.7", "http://[::1]:81/x", "https://localhost:1"]
REMOTE = [
    "http://10.0.0.1",
    "http://example.org",
    "http://localhost.example.org",
    "http://0.0.0.0:1",
    "http://127.0.0.1.example.org",
    "http://127.0.0.1@example.org",
]


@pytest.mark.parametrize("url", LOCAL)
def test_this_machine_is_a_target(url):
    assert str(check_target(url, allow_remote=False)).startswith(url)


@pytest.mark.parametrize("url", REMOTE)
def test_any_other_address_needs_permission(url):
    with pytest.raises(RemoteTarget, match="--allow-remote"):
        check_target(url, allow_remote=False)
    assert check_target(url, allow_remote=True).host


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://127.0.0.1", "/path"])
def test_what_is_no_http_address_is_refused(url):
    with pytest.raises(ValueError, match="not an http address"):
        check_target(url, allow_remote=True)
