#!/bin/bash
# Usage: build_wheel.sh PYTHON TORCH_DIR TORCH_VERSION OUT.whl SOURCE...     (run by Bazel in its execution root)
# Builds the wheel with the same backend as `pip wheel`: pyproject.toml, scikit-build-core, CMakeLists.txt.
set -euo pipefail
python=$1 torch_dir=$2 torch_version=$3 out=$(realpath -m "$4")
shift 4
# Bazel looks at the torch package once per server start; stop if it has changed since.
grep -q "^__version__ = '$torch_version'" "$torch_dir/version.py" || {
  echo "torch in $torch_dir is no longer $torch_version: run bazel shutdown and build again" >&2
  exit 1
}
# A fixed folder, so that ccache hits, and one build at a time. Bazel's sandbox can write there, not in the home folder.
folder=${TMPDIR:-/tmp}/torch_tpu-bazel-$(id -u)
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
rm -rf "$folder/src" "$folder/out"
mkdir "$folder/src"
# Copy the declared inputs and nothing else: without a sandbox the whole checkout is visible here.
printf '%s\n' "$@" | tar -chf - -T - | tar -xf - -C "$folder/src"
export TORCH_TPU_TORCH_DIR=$torch_dir CCACHE_DIR=$folder/ccache LC_ALL=C.UTF-8
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-315532800}  # 1980-01-01: the same bytes from the same sources
PATH=$(dirname "$python"):$PATH                           # cmake and ninja of that interpreter first
export PATH
"$python" -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --no-index \
  --wheel-dir "$folder/out" "$folder/src" 1>&2
cp "$folder/out/$(basename "$out")" "$out"
