#!/usr/bin/env bash
# The gate: the checks that every change must pass. CONTRIBUTING.md lists them.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/test.sh [--all] [--help] [argument of pytest ...]

Installs the project (scripts/setup.sh), then checks imports, lint, format,
types, doctests, the documentation site and tests. Runs all sections, and exits
with the status of the first section that failed.

  --all   also the tests marked slow and cluster, and gpu if there is a GPU

Other arguments go to pytest: scripts/test.sh -x tests/codec
USAGE
}

marks='not slow and not cluster and not gpu'
arguments=()
has_path=false
all=false
for argument in "$@"; do
  case "$argument" in
    --all)
      marks=''
      all=true
      nvidia-smi -L >/dev/null 2>&1 || marks='not gpu'
      ;;
    --help | -h) usage && exit 0 ;;
    *)
      # pytest runs in another folder, so make paths (and path::test) absolute.
      if [[ $argument != -* && -e ${argument%%::*} ]]; then
        has_path=true
        [[ $argument == /* ]] || argument=$PWD/$argument
      fi
      arguments+=("$argument")
      ;;
  esac
done

started=$SECONDS
"$root/scripts/setup.sh"
keep_bytecode
bin=$root/.venv/bin

# Otherwise TensorFlow's runtime adds messages about the CPU and the devices to the
# output of every failing test. 2 shows its errors only.
export TF_CPP_MIN_LOG_LEVEL=2

# So that programs need not import JAX, which a configuration could name.
export KERAS_BACKEND=${KERAS_BACKEND:-tensorflow}

# As the programs do (terngrad/machine/onednn.py): the passes take half the time.
[[ $(uname -m) != x86_64 ]] ||
  export TF_ENABLE_ONEDNN_OPTS=${TF_ENABLE_ONEDNN_OPTS:-1}

# In a temporary folder, so that tests import the installed package.
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT

# All tests, and the programs that they start, share XLA's compilation cache.
mkdir -- "$folder/xla" "$folder/work"
export TF_XLA_FLAGS="--tf_xla_persistent_cache_directory=$folder/xla ${TF_XLA_FLAGS:-}"
cd -- "$folder/work"

# Sections that failed, with their exit statuses, a line each.
failures=$folder/failures
# section NAME COMMAND...
section() {
  local name=$1 code=0 before=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  "$@" || code=$?
  printf -- '--- %s: %s, %d s\n' "$name" \
    "$( ((code)) && echo "FAILED ($code)" || echo ok)" $((SECONDS - before))
  if ((code)); then printf '%d %s\n' "$code" "$name" >>"$failures"; fi
}

# shellcheck disable=SC2317  # `section` calls it.
pytest() {
  "$bin/python" -m pytest -c "$root/pyproject.toml" --rootdir "$root" -q "$@"
}

# In the root: the paths in its settings are relative.
# shellcheck disable=SC2317  # `section` calls it.
types() {
  (cd -- "$root" && "$bin/python" -m mypy --config-file "$root/pyproject.toml")
}

# shellcheck disable=SC2317  # `section` calls it.
doctests() {
  local package packages=() code=0
  # Programs define flags with the same names.
  for package in "$root"/terngrad/*/ "$root"/slim/*/; do
    [[ $package == */terngrad/bin/ ]] || packages+=("$package")
  done
  pytest --doctest-modules "${packages[@]}" || code=$?
  # 5 is pytest's "no tests collected": examples are welcome, not required.
  ((code == 5)) || return "$code"
}

# shellcheck disable=SC2317  # `section` calls it.
site() {
  NO_MKDOCS_2_WARNING=1 "$bin/python" -m mkdocs build --strict --quiet \
    --config-file "$root/mkdocs.yml" --site-dir "$folder/site"
}

# Two tests at a time: most wait for a process or use one core. The tests of a file
# run in one process, because they share fixtures; tests/conftest.py sorts the files.
# If one of the two processes is killed, the section ends and names its test: with a
# new process pytest-xdist would wait forever.
# shellcheck disable=SC2317  # `section` calls it.
parallel() {
  pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 \
    -m "$marks" "${arguments[@]}" "$@"
}

# With -k, a part may have no matching test, but some part must have one.
# shellcheck disable=SC2317  # `section` calls it.
part() {
  local code=0
  parallel "$@" || code=$?
  ((code == 5)) || touch -- "$folder/found"
  ((code == 5)) || return "$code"
}

# Most digests were recorded without oneDNN, whose last bits differ. The few of the
# gate take less time than a second process needs to start.
# shellcheck disable=SC2317  # `section` calls it.
recorded_bits() {
  local processes=0
  $all && processes=2
  TF_ENABLE_ONEDNN_OPTS=0 part -n "$processes" "$root/tests/bits"
}

structure=("$root/tests/test_imports.py" "$root/tests/test_layers.py")
# These sections use one core, so they run beside the others; their output comes last.
# Job control gives them a process group, which the trap ends.
checks() {
  failures=$folder/failed_checks
  section 'ruff check' "$bin/ruff" check --quiet "$root"
  section 'ruff format' "$bin/ruff" format --check --quiet "$root"
  section 'mypy' types
  section 'doctests' doctests
  section 'site' site
}
set -m
checks >"$folder/checks" 2>&1 &
checks=$!
set +m
trap 'kill -- "-$checks" 2>/dev/null || true; rm -rf -- "$folder"' EXIT
# Without conftest.py, which imports TensorFlow.
section 'imports' pytest --noconftest "${structure[@]}"
$has_path || section "tests/bits${marks:+ ($marks)}" recorded_bits
if $has_path; then
  section "tests${marks:+ ($marks)}" parallel
else
  parts=()
  # XLA frees compiled programs when a process ends. All tests in one process would
  # need more memory than many machines have.
  $all && parts=(bin cli codec examples exchange keras measure native reduce
    slim step training)
  # All other tests.
  rest=("${structure[@]/#/--ignore=}" "--ignore=$root/tests/bits")
  for names in "${parts[@]}"; do
    read -ra folders <<<"$names"
    section "tests/{${names// /,}}${marks:+ ($marks)}" \
      part "${folders[@]/#/$root/tests/}"
    rest+=("${folders[@]/#/--ignore=$root/tests/}")
  done
  section "tests${marks:+ ($marks)}" part "${rest[@]}" "$root/tests"
  if [[ ! -e $folder/found ]]; then
    printf 'No test was selected: expected one, received %s.\n' \
      "${arguments[*]}" >&2
    echo '5 tests' >>"$failures"
  fi
fi
wait "$checks"
cat -- "$folder/checks"
[[ ! -e $folder/failed_checks ]] || cat -- "$folder/failed_checks" >>"$failures"

printf '\n=== %d s in all; ' $((SECONDS - started))
if [[ ! -e $failures ]]; then
  printf 'everything passed\n'
  exit 0
fi
mapfile -t failed < <(cut -d ' ' -f 2- -- "$failures")
(IFS=, && printf 'FAILED: %s\n' "${failed[*]}")
read -r status _ <"$failures"
exit "$status"
