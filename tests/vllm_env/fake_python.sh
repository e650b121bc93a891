#!/bin/bash
# Stands in for python3 in the tests of install.sh: makes an empty "environment", counts what is asked of it.
# FAKE_LOG: where each call is noted. FAKE_FAIL: a word that makes a call holding it fail. FAKE_PAUSE: seconds a pip takes.
echo "$*" >>"$FAKE_LOG"
if [ -n "${FAKE_FAIL:-}" ] && [[ "$*" == *"$FAKE_FAIL"* ]]; then
    echo "ERROR: told to fail"
    exit 1
fi
case "$1 $2" in
"-c import sys"*) echo 3.11 ;;
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip") sleep "${FAKE_PAUSE:-0}" ;;
esac
