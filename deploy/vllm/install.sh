#!/usr/bin/env bash
# Install the real engine (vLLM for CPU) into a virtual environment of its own.
#
# Usage: install.sh [DIR]     Progress goes to stderr; the last line on stdout is the path of its python.
#
# DIR is BURNPROOF_VLLM_HOME where set, else a folder in the user's cache named after the digest of this
# script and its requirements, so that a changed recipe makes a new environment and an old one stays usable.
# Running it again costs nothing. A stamp file is written last: an install that was cut short is done again.
# Two runs at once: the second waits for the first.
#
# torch must be the CPU build. pip finds it where PIP_FIND_LINKS or its configuration says; elsewhere set
# BURNPROOF_TORCH_INDEX to the address of an index that has it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/requirements.txt
python=${PYTHON:-python3}
seconds_at_start=$SECONDS

say() { printf 'vllm: [%4ds] %s\n' $((SECONDS - seconds_at_start)) "$*" >&2; }
fail() { say "failed: $*"; exit 1; }

python_version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
    fail "no Python: set PYTHON to one of version 3.11 or newer"
digest=$({ cat "${BASH_SOURCE[0]}" "$requirements"; echo "$python_version"; } | sha256sum | cut -c1-12)
home=${1:-${BURNPROOF_VLLM_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/burnproof/vllm-$digest}}
mkdir -p "$home"
home=$(cd "$home" && pwd)
venv=$home/venv
stamp=$home/installed
log=$home/install.log

is_installed() { [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ] && [ -x "$venv/bin/python" ]; }

# Runs pip, keeps its words in the log, and shows one line for every tenth package.
pip_install() {
    "$venv/bin/python" -m pip install --no-deps --no-input --disable-pip-version-check \
        --progress-bar off "$@" 2>&1 | tee -a "$log" | awk -v total="$(grep -c '==' "$requirements")" '
            /^(Collecting|Processing) / { if (++n % 10 == 0) { print "  found " n " of " total; fflush() } }
            /^Installing collected/ { print "  unpacking"; fflush() }
            /^ERROR/ { print "  " $0; fflush() }' >&2
}

if is_installed; then
    say "already installed in $home"
    echo "$venv/bin/python"
    exit 0
fi
exec 9>"$home/lock"
if ! flock --nonblock 9; then
    say "another install runs in $home: waiting for it"
    flock 9
fi
if ! is_installed; then
    say "installing into $home (1.5 GB of packages, 2.5 GB on disk, about 4 minutes)"
    rm -rf "$venv" "$stamp"
    : >"$log"
    say "1/4 virtual environment"
    "$python" -m venv "$venv" >>"$log" 2>&1 || fail "python3 -m venv (Debian: apt install python3-venv)"
    say "2/4 torch for CPU"
    pip_install ${BURNPROOF_TORCH_INDEX:+--extra-index-url "$BURNPROOF_TORCH_INDEX"} \
        "$(grep '^torch==' "$requirements")" ||
        fail "no CPU build of torch: set BURNPROOF_TORCH_INDEX to an index that has it (log: $log)"
    say "3/4 vLLM and what it needs"
    pip_install -r "$requirements" || fail "see $log"
    say "4/4 trying it"
    # vLLM looks at a model's class in a process of its own and remembers the answer: the first start is
    # spared that.
    "$venv/bin/python" -c '
import torch
assert torch.version.cuda is None
import vllm.entrypoints.openai.api_server
from vllm.model_executor.models.registry import ModelRegistry
ModelRegistry.models["LlamaForCausalLM"].inspect_model_cls()' \
        >>"$log" 2>&1 || fail "the new environment cannot import vLLM (log: $log)"
    printf '%s' "$digest" >"$stamp.part"
    mv "$stamp.part" "$stamp"
    say "done: $(du -sm "$venv" | cut -f1) MB"
fi
echo "$venv/bin/python"
