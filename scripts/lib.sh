# shellcheck shell=bash disable=SC2034
# Sourced by the scripts in this folder. Sets `root`, the project's folder.

# With CDPATH, `cd` may go to another folder and print it.
unset CDPATH
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

# fail WHAT EXPECTED RECEIVED REMEDY
# Prints an error on standard error and exits with status 2.
fail() {
  printf '%s: %s\n  expected: %s\n  received: %s\n  remedy:   %s\n' \
    "${0##*/}" "$@" >&2
  exit 2
}

# bad_argument ARGUMENT
# For a script that defines `usage`.
bad_argument() {
  printf '%s: unknown argument: %s\n' "${0##*/}" "$1" >&2
  usage >&2
  exit 2
}

# keep_bytecode: lets Python keep the modules that it compiles, in .venv. Containers
# often forbid it (PYTHONDONTWRITEBYTECODE); then each process would compile
# TensorFlow's modules again, for ten seconds. Nothing is written beside the sources.
keep_bytecode() {
  [[ -n ${PYTHONDONTWRITEBYTECODE:-} ]] || return 0
  unset PYTHONDONTWRITEBYTECODE
  export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$root/.venv/bytecode}
}

# find_python: sets `python`, the interpreter of the tasks.
find_python() {
  python=${PYTHON:-$root/.venv/bin/python}
  command -v -- "$python" >/dev/null || fail 'no interpreter' \
    'an interpreter with terngrad' "$python" \
    'run scripts/setup.sh, or set PYTHON to one'
}

# run_tests_module MODULE ARGUMENT...: execs the module, in the project's folder.
# Paths of --input and --output stay relative to the caller's folder.
run_tests_module() {
  local argument before='' words=()
  for argument in "$@"; do
    case "$before$argument" in
      --input=[!/]* | --output=[!/]*)
        argument=${argument%%=*}=$PWD/${argument#*=}
        ;;
      '--input '[!/]* | '--output '[!/]*) argument=$PWD/$argument ;;
    esac
    before=''
    case "$argument" in --input | --output) before="$argument " ;; esac
    words+=("$argument")
  done
  cd -- "$root"
  exec "$root/.venv/bin/python" -m "${words[@]}"
}

# launch ARGUMENT...: execs `terngrad launch`. PYTHON is the interpreter of the
# tasks. Set TERNGRAD_PYTHON if the launcher needs another interpreter.
launch() {
  local python=${TERNGRAD_PYTHON:-} found words=(-m terngrad.cli.main)
  [[ -n $python ]] || find_python
  # With -m, Python would look for modules in the user's folder first.
  found=$(command -v -- "$python") || true
  [[ ! -f ${found%/*}/terngrad ]] || words=("${found%/*}/terngrad")
  exec "$python" "${words[@]}" launch "--scripts=$root/scripts" \
    "--config=$root/scripts/config_dist.sh" "$@"
}

# usage: for scripts that exec `terngrad launch`; other scripts define `usage`.
usage() {
  printf 'usage: scripts/%s [--FLAG=value ...]\n\n' "${0##*/}"
  (launch --help)
}

# check_known NAMES ARGUMENT...: refuses arguments that are not in NAMES, such
# as '--config= --check'. After `--` in NAMES it accepts all. --help prints `usage`.
check_known() {
  local argument names
  read -rd '' -a names <<<"$1" || true
  for argument in "${@:2}"; do
    case $argument in
      --help | -h) usage && exit 0 ;;
      --*=*) is_one_of "${argument%%=*}=" "${names[@]}" ;;
      *) is_one_of "$argument" "${names[@]}" ;;
    esac || bad_argument "$argument"
    [[ $argument != -- ]] || return 0
  done
}

# is_one_of WORD CHOICE...
is_one_of() {
  local choice
  for choice in "${@:2}"; do [[ $choice != "$1" ]] || return 0; done
  return 1
}
