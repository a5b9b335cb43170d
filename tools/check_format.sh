#!/bin/bash
# Fails when a C++ source is not as clang-format leaves it. With -i: formats instead.
set -euo pipefail
cd "$(dirname "$0")/.."
clang_format=.venv/bin/clang-format
[ -x $clang_format ] || clang_format=clang-format
mode=(--dry-run -Werror)
if [ "${1:-}" = -i ]; then mode=(-i); fi
find src tests \( -name '*.cc' -o -name '*.h' \) -print0 | xargs -0 --no-run-if-empty "$clang_format" "${mode[@]}"
