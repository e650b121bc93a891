"""Start one replica of the real engine, guarded so that it leaves nothing behind.

``serve.py --port 8101 --tag stack/replica-a`` turns into the guard of ``api/stack/reaper.py`` (same
process id), which runs vLLM's OpenAI server with the committed tiny model. Stop it with SIGTERM.
However it or its parent dies, the processes of vLLM die with it; by itself vLLM leaves its engine
and its worker behind when its server process is killed.

Runs under any Python 3.11 or newer, with the standard library only; vLLM has its own environment,
which ``install.sh`` makes and names. More vLLM options may follow ``--``. ``--print`` shows the
command and the environment as JSON and starts nothing.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
REAPER = REPOSITORY / "api" / "stack" / "reaper.py"
MODEL = REPOSITORY / "models" / "tiny-chat"
MODEL_NAME = "tiny-chat"
GRACE_S = 10.0
"""vLLM ends within about 4 s of SIGTERM on two busy cores."""

ENVIRONMENT = {
    # Nothing is fetched and nothing is reported.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Adapters may come and go, and the endpoints that remedies use are there.
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_SERVER_DEV_MODE": "1",
    # Nothing is compiled at run time. Else the first request that asks for logprobs stalls for half
    # a minute, and the machine needs a C++ compiler.
    "TORCHDYNAMO_DISABLE": "1",
    # Two replicas share two cores: no thread is nailed to a core, and each engine computes on one.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
OPTIONS = (
    *("--host", "127.0.0.1"),
    *("--dtype", "float32"),
    *("--max-model-len", "2048"),
    *("--max-num-seqs", "32"),
    # 65,536 tokens: 32 requests of full length. Given outright, since sizing it costs a warm-up.
    *("--kv-cache-memory-bytes", str(256 * 1024 * 1024)),
    "--enforce-eager",
    "--enable-lora",
    # Without both, a request that names a tool is refused; others do not notice.
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    *("--max-loras", "4"),
    *("--max-lora-rank", "8"),
    *("--max-cpu-loras", "8"),
    "--disable-uvicorn-access-log",
)


def engine_python(given: Path | None) -> Path:
    """Return the Python of vLLM's environment: the one given, else the one `install.sh` names.

    Raises:
        SystemExit: it is not installed and could not be.
    """
    if given is not None:
        return given
    done = subprocess.run([HERE / "install.sh"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return Path(done.stdout.splitlines()[-1])


def engine_argv(options: argparse.Namespace) -> list[str]:
    """Return vLLM's own command line."""
    server = [str(engine_python(options.python)), "-m", "vllm.entrypoints.openai.api_server"]
    model = ["--model", str(options.model), "--served-model-name", options.served_model_name]
    return [*server, *model, "--port", str(options.port), *OPTIONS, *options.more]


def engine_environment(options: argparse.Namespace) -> dict[str, str]:
    """Return what vLLM needs in its environment.

    By default the worker lives inside the engine's process: one process less to import torch.
    """
    multiprocessing = "1" if options.separate_worker else "0"
    return {**ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": multiprocessing}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Start one guarded vLLM replica.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tag", help="name for the guard (default: vllm-PORT)")
    parser.add_argument("--parent", type=int, help="pid whose death ends the replica")
    parser.add_argument("--python", type=Path, help="python of vLLM's environment")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--served-model-name", default=MODEL_NAME)
    parser.add_argument(
        "--separate-worker", action="store_true", help="a worker process beside the engine's"
    )
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("more", nargs="*", help="more options for vLLM, after --")
    return parser.parse_args(arguments)


def main() -> None:
    """Build the command and become its guard."""
    options = parse()
    argv, environment = engine_argv(options), engine_environment(options)
    if options.only_print:
        print(json.dumps({"argv": argv, "environment": environment}, indent=2))
        return
    guard = [sys.executable, str(REAPER), "--tag", options.tag or f"vllm-{options.port}"]
    guard += ["--grace", str(GRACE_S)]
    if options.parent is not None:
        guard += ["--parent", str(options.parent)]
    os.execve(sys.executable, [*guard, "--", *argv], {**os.environ, **environment})


if __name__ == "__main__":
    main()
