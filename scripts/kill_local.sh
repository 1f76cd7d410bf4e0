#!/usr/bin/env bash
# Ends the tasks of one experiment on this host.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/dist_tasks.sh
source "$root/scripts/dist_tasks.sh"

usage() {
  cat <<'USAGE'
usage: scripts/kill_local.sh [--seconds=N] <folder>

Ends the tasks of one experiment on this host, and nothing else: the processes
of its PID files, if they are still the same processes.

  <folder>     folder of the experiment, WORKSPACE/ID
  --seconds=N  seconds until the remaining tasks are killed (default: 60)
  --help       print this
USAGE
}

seconds=60
arguments=()
while (($#)); do
  case "$1" in
    --seconds=*) seconds=${1#*=} ;;
    --help | -h) usage && exit 0 ;;
    -*) bad_argument "$1" ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
((${#arguments[@]} == 1)) || fail 'wrong number of arguments' 1 \
  "${#arguments[@]}" 'see --help'
[[ $seconds =~ ^(0|[1-9][0-9]{0,5})$ ]] || fail 'invalid time' \
  '--seconds: a whole number, 0 or more' "$seconds" 'give such a number'
[[ -d ${arguments[0]} ]] || fail 'no experiment' 'a folder of an experiment' \
  "${arguments[0]}" 'give WORKSPACE/ID'
stop_tasks "${arguments[0]}" "$seconds"
tunnels=${arguments[0]}/tunnels
[[ ! -d $tunnels ]] || stop_tasks "$tunnels" "$seconds"
