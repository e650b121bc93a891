"""nginx before an upstream, unbuffered, as the gateway's peer in a comparison."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil


def nginx_program() -> str:
    """Return nginx, installed from the system's packages if it is missing and we may."""
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    found = shutil.which("nginx", path=path)
    if found is None and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "nginx-light"],
            check=False,
            capture_output=True,
        )
        found = shutil.which("nginx", path=path)
    assert found, "this test compares with nginx: install the package nginx-light"
    return found


@asynccontextmanager
async def nginx(folder: Path, port: int, upstream: int) -> AsyncIterator[psutil.Process]:
    """Run nginx before an upstream."""
    program = await asyncio.to_thread(nginx_program)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;"
        f"events {{}} http {{ access_log off; client_body_temp_path {folder}/body; {temporary}"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream};"
        "proxy_http_version 1.1; proxy_buffering off; proxy_next_upstream off;"
        "client_max_body_size 32m; } } }"
    )
    config = ["-p", str(folder), "-c", str(folder / "nginx.conf")]
    process = await asyncio.create_subprocess_exec(program, *config, stderr=subprocess.DEVNULL)
    try:
        await _listens(port)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)
