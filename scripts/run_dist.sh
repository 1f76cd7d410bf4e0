#!/usr/bin/env bash
# Starts the parameter servers and workers of a configuration on their hosts, or
# equal processes.
set -euo pipefail
# shellcheck source=scripts/dist.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/dist.sh"
# shellcheck source=scripts/dist_watch.sh
source "$root/scripts/dist_watch.sh"

usage() {
  cat <<'USAGE'
usage: scripts/run_dist.sh [OPTION...] [-- FLAG...]

Starts the parameter servers and workers of a configuration, each on its host,
and returns. First it asks every host whether its tasks can start; where one
cannot, none is started. Flags after -- go to all workers, after those of
WORKER_SCRIPT. Logs, PID files and checkpoints are in WORKSPACE/ID of each host:
ps_0.log, worker_0.log, and worker_0/ for the checkpoints of the chief. Where
PS_HOSTS is empty, workers are equal processes that exchange by collectives.

  --config=FILE    hosts and folders (default: scripts/config_dist.sh)
  --experiment=ID  names the folder (default: now; with --status: the one that
                   was started last). That of an earlier run continues it.
  --restart=N      stay until the run ends. Where a task was killed, or lost
                   another one, stop all and start all again, from the last
                   checkpoint; N times at most, 0 for never. First the others
                   have 30 s to end: where one of them fails, that decides
  --tunnel         carry what tasks say to each other by ssh through this machine,
                   so that hosts need no private network; implies --restart=0
  --check          ask the hosts and start nothing; beside the above, print the
                   versions and GPUs that each task would have, and refuse
                   versions that differ and GPUs that are not there; with
                   --tunnel, open every tunnel and close it again
  --status         say which tasks run; the status is 1 unless all do
  --dry_run        print each host and command, and reach no host
  --help           print this

Status 2: refused before anything was started. Status 1: a task did not start,
and those that did were stopped. scripts/stop_dist.sh ends all tasks.

With --restart the status is that of the run: 0 all tasks came to their end; 75
one was lost, and there was no restart left or possible; 143 somebody stopped
it; 1, 2 and others: that of a task that failed, whose log says why. Nobody
restarts those. A signal to this program ends the tasks: 128 and its number.
USAGE
}

action=start
restarts=
config=$root/scripts/config_dist.sh
experiment=
worker_flags=()
while (($#)); do
  case "$1" in
    --config=*) config=${1#*=} ;;
    --experiment=*) experiment=${1#*=} && check_experiment ;;
    --tunnel) tunnel=true ;;
    --restart=*) restarts=${1#*=} && check_restarts ;;
    --check | --status | --dry_run) action=${1#--} ;;
    --help | -h) usage && exit 0 ;;
    --) shift && worker_flags=("$@") && break ;;
    *) bad_argument "$1" ;;
  esac
  shift
done

# shellcheck disable=SC2154  # `each_task` sets them, here and below.
print_task() {
  printf '%s on %s: ' "$name" "$(host_of "$address")"
  printf '%q ' "${command[@]}"
  printf '\n'
}

ask_task() {
  tell "$address" "$name" check_task "$folder" "$name" "${command[0]}" "$data"
}

ask_versions() {
  tell "$address" "$name" report_versions "$root/.venv/bin/python" "$devices"
}

# check_versions: prints those of every task; all must be the same.
check_versions() {
  local lines line other first=''
  lines=$(each_task ask_versions) || {
    printf '%s\n' "$lines" >&2
    fail 'tasks would not run' 'terngrad and GPUs on every host' 'the above' \
      'run scripts/setup.sh there, or repair WORKER_DEVICES'
  }
  printf '%s\n' "$lines"
  while IFS= read -r line; do
    # NAME on HOST: VERSIONS; GPUS. Shells may say more.
    [[ $line == *': terngrad '* ]] || continue
    other=${line#*: } other=${other%;*}
    first=${first:-$other}
    [[ $other == "$first" ]] || fail 'hosts differ' "$first everywhere" \
      "${line%;*}" 'install the same versions on all hosts'
  done <<<"$lines"
}

start() {
  tell "$address" "$name" start_task "$folder" "$name" "${command[@]}"
}

status() {
  tell "$address" "$name" task_status "$folder" "$name"
}

# record: leaves on this host what --status and stop_dist.sh need.
record() {
  local here
  here=$(at_home "$folder")
  mkdir -p -- "$here"
  write_config >"$here/.config_dist.sh"
  # The file may be the configuration itself, so it is replaced as a whole.
  mv -- "$here/.config_dist.sh" "$here/config_dist.sh"
  printf '%s\n' "$experiment" >"${here%/*}/latest_experiment"
}

load_config
if [[ -n $restarts && $action != start ]]; then
  fail 'nothing to restart' "--restart without --$action" "--$action" \
    'leave one out'
fi
if [[ $action == status ]]; then
  choose_experiment
  code=0
  each_task status || code=1
  tunnels_status || code=1
  exit "$code"
fi
if $tunnel; then
  check_tunnels
  restarts=${restarts:-0}
else
  check_network
fi
experiment=${experiment:-$(date +%Y-%m-%d_%H-%M-%S)}
folder=$WORKSPACE/$experiment
if [[ $action == dry_run ]]; then
  ! $tunnel || each_tunnel print_tunnel
  each_task print_task
  exit
fi
problems=$(each_task ask_task) || {
  printf '%s\n' "$problems" >&2
  fail 'nothing was started' 'hosts that can start their tasks' \
    'the above' 'repair it, and try with --check'
}
if [[ $action == check ]]; then
  check_versions
  if $tunnel; then
    problems=$(each_tunnel try_tunnel) || {
      printf '%s\n' "$problems" >&2
      fail 'tasks would not find each other' 'a tunnel to every host' \
        'the above' 'repair it'
    }
    printf '%s\n' "$problems"
  fi
  printf 'all tasks can start\n'
  exit
fi
record
[[ -z $restarts ]] || heed_signals
if ! open_tunnels || ! each_task start; then
  printf '%s: a task did not start; stopping the others\n' "${0##*/}" >&2
  end_all "$grace" || true
  exit 1
fi
printf 'experiment %s; its state: scripts/run_dist.sh --config=%q --status\n' \
  "$experiment" "$(at_home "$folder")/config_dist.sh"
[[ -z $restarts ]] || watch "$restarts"
