#!/usr/bin/env bash
# Ends the tasks of one experiment on all its hosts.
set -euo pipefail
# shellcheck source=scripts/dist.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/dist.sh"

usage() {
  cat <<'USAGE'
usage: scripts/stop_dist.sh [--config=FILE] [--experiment=ID] [--seconds=N]

Ends what scripts/run_dist.sh started for one experiment, on every host, and
nothing else: what the PID files name, if it still is that process. A host that
cannot be reached is named, and the others are stopped. Tunnels end last, on the
machine that opened them.

  --config=FILE    hosts and folders (default: scripts/config_dist.sh). The
                   experiment's own is WORKSPACE/ID/config_dist.sh.
  --experiment=ID  which (default: the one that was started last)
  --seconds=N      what has not ended then is killed (default: 60). The chief
                   saves a checkpoint when it is asked to end.
  --help           print this

The status is 1 if a host could not be reached.
USAGE
}

config=$root/scripts/config_dist.sh
experiment=
seconds=60
while (($#)); do
  case "$1" in
    --config=*) config=${1#*=} ;;
    --experiment=*) experiment=${1#*=} && check_experiment ;;
    --seconds=*) seconds=${1#*=} ;;
    --help | -h) usage && exit 0 ;;
    *) bad_argument "$1" ;;
  esac
  shift
done
check_seconds "$seconds"
load_config
choose_experiment
end_all "$seconds"
