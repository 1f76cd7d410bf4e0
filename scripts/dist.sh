# shellcheck shell=bash
# Sourced by run_dist.sh and stop_dist.sh: the tasks of a configuration, and how
# their hosts are reached.

# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/dist_config.sh
source "$root/scripts/dist_config.sh"
# shellcheck source=scripts/dist_tasks.sh
source "$root/scripts/dist_tasks.sh"
# shellcheck source=scripts/dist_tunnel.sh
source "$root/scripts/dist_tunnel.sh"

# BatchMode: no question that nobody would answer. ServerAlive*: a host that
# falls silent is given up after 15 s.
ssh_options=(
  -T -o BatchMode=yes -o ConnectTimeout=10
  -o ServerAliveInterval=5 -o ServerAliveCountMax=3
)

# load_config: reads and checks the file `config`.
load_config() {
  read_config
  check_config
}

# at ADDRESS FUNCTION ARGUMENT...: calls one of `task_functions` on the host of
# that address. The program goes through standard input, so that no login shell
# reads its words.
at() {
  local address=$1 program
  shift
  program="set -euo pipefail
$(declare -f "${task_functions[@]}")
$(printf '%q ' "$@")"
  if is_loopback "$address"; then
    bash -s <<<"$program"
  else
    ssh "${ssh_options[@]}" -- "$(host_of "$address")" bash -s <<<"$program"
  fi
}

# tell ADDRESS WHO FUNCTION ARGUMENT...: the same, with WHO and the host before
# each line of output.
tell() {
  local address=$1 host who=$2 line status=0 text
  shift 2
  host=$(host_of "$address")
  text=$(at "$address" "$@" 2>&1) || status=$?
  # Other hosts' words are for a terminal.
  text=$(tr -d '\000-\011\013-\037\177' <<<"$text")
  # 255 is ssh's own.
  ((status != 255)) || text="expected: ssh -o BatchMode=yes $host to work
received: $text
remedy: add a key and connect once by hand (docs/distributed.md)"
  while IFS= read -r line; do
    printf '%s on %s: %s\n' "$who" "$host" "$line"
  done <<<"$text"
  return "$status"
}

# task I: sets `name`, `address`, `devices` and `data` ('' without) and `command`,
# the script and its arguments as 2017 had them, of the I-th task. Servers are
# the first.
task() {
  local i=$1 ps_list worker_list
  ps_list=$(seen "${PS_HOSTS[@]}") worker_list=$(seen "${WORKER_HOSTS[@]}")
  if ((i < ${#PS_HOSTS[@]})); then
    name=ps_$i address=${PS_HOSTS[i]} devices='' data=''
    command=("$PS_SCRIPT" "$ps_list" "$worker_list" ps "$i" "$experiment")
  else
    i=$((i - ${#PS_HOSTS[@]}))
    name=worker_$i address=${WORKER_HOSTS[i]} devices=${WORKER_DEVICES[i]}
    data=${DATA_DIR[i]}
    command=("$WORKER_SCRIPT" "$ps_list" "$worker_list" worker "$i"
      "$devices" "$data" "$experiment")
  fi
  $tunnel || ! $ALLOW_INSECURE_NETWORK || command+=(--allow_insecure_network)
  [[ $name == ps_* ]] || command+=("${worker_flags[@]}")
}

# each_task ACTION: calls it after `task` for every task; 1 if one failed.
each_task() {
  local i name address devices data command status=0
  for ((i = 0; i < ${#PS_HOSTS[@]} + ${#WORKER_HOSTS[@]}; i++)); do
    task "$i"
    "$1" || status=1
  done
  return "$status"
}

# each_host FUNCTION ARGUMENT...: calls it once a host; 1 if one failed.
each_host() {
  local address host status=0
  local -A done_hosts=()
  for address in "${PS_HOSTS[@]}" "${WORKER_HOSTS[@]}"; do
    host=$(host_of "$address")
    [[ -z ${done_hosts[$host]+set} ]] || continue
    done_hosts[$host]=1
    tell "$address" "$experiment" "$@" || status=1
  done
  return "$status"
}

# choose_experiment: sets `folder`, and `experiment` if it was not given.
choose_experiment() {
  local latest
  latest=$(at_home "$WORKSPACE")/latest_experiment
  if [[ -z $experiment ]]; then
    { read -r experiment <"$latest"; } 2>/dev/null || fail 'no experiment' \
      "one that was started here, in $latest" 'none' 'give --experiment=ID'
  fi
  check_experiment
  folder=$WORKSPACE/$experiment
}

check_experiment() {
  [[ $experiment =~ ^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$ ]] || fail \
    'no name of an experiment' 'letters, digits, _ . and -' "$experiment" \
    'give another --experiment'
}
