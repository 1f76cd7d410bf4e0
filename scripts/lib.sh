# shellcheck shell=bash disable=SC2034
# Sourced by the scripts beside it. Sets `root`, the project's folder.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

# fail WHAT EXPECTED RECEIVED REMEDY
# Explains on standard error and exits with status 2.
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

# check_seconds WORD
check_seconds() {
  [[ $1 =~ ^(0|[1-9][0-9]{0,5})$ ]] || fail 'no time' \
    '--seconds: a whole number, 0 or more' "$1" 'give one'
}
