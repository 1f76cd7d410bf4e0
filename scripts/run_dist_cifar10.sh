#!/usr/bin/env bash
# Trains cifar10_alexnet on CIFAR-10 with one parameter server and two workers
# on this machine.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: [VARIABLE=value ...] scripts/run_dist_cifar10.sh [OPTION...] [-- FLAG...]

Splits the data set between two workers (scripts/split_dataset.sh), starts them
and a parameter server on this machine, and returns. If the kernel allows it, they
get a private network that no one else can connect to. Flags after -- go to the
workers:

  scripts/run_dist_cifar10.sh -- --grad_bits=1 --clip_factor=2.5

Options are those of scripts/run_dist.sh without --config: --experiment=ID,
--check, --dry_run, --help. It prints the commands for the state and for stopping.

From the environment:
  WORKSPACE       folder for results; must exist
                  (default: ~/dataset/results/cifar10)
  DATA_DIR        the converted data set (default: ~/dataset/cifar10-data)
  WORKER_DEVICES  the GPU of each worker, '0 1'; may be the same
                  (default: none, the CPU)
  PYTHON          an interpreter with terngrad (default: that of
                  scripts/setup.sh)
USAGE
}

# complete PATH: prints the absolute path.
complete() {
  if [[ $1 == /* ]]; then printf '%s' "$1"; else printf '%s' "$PWD/$1"; fi
}

# quoted WORD...: prints the words with the quotes that `terngrad launch` reads.
quoted() {
  local quote="'" other="'\"'\"'"
  printf "'%s' " "${@//$quote/$other}"
}

check_known '--experiment= --check --dry_run --' "$@"
experiment=$(date +%Y-%m-%d_%H-%M-%S)
start=true
dry_run=false
for argument in "$@"; do
  case $argument in
    --experiment=*) experiment=${argument#*=} ;;
    --check) start=false ;;
    --dry_run) start=false dry_run=true ;;
    --) break ;;
  esac
done
workspace=$(complete "${WORKSPACE:-$HOME/dataset/results/cifar10}")
data=$(complete "${DATA_DIR:-$HOME/dataset/cifar10-data}")
read -ra devices <<<"${WORKER_DEVICES:-}"
((${#devices[@]})) || devices=('' '')
config=$(mktemp)
trap 'rm -f -- "$config"' EXIT
cat >"$config" <<CONFIG
PS_HOSTS=(localhost:2222)
WORKER_HOSTS=(localhost:2224 localhost:2226)
WORKER_DEVICES=($(quoted "${devices[@]}"))
DATA_DIR=($(quoted "$data/worker_0_of_2" "$data/worker_1_of_2"))
WORKER_SCRIPT=run_single_worker_cifarnet.sh
PS_SCRIPT=run_single_ps_cifar10.sh
WORKSPACE=$(quoted "$workspace")
ALLOW_INSECURE_NETWORK=false
CONFIG
run=("$root/scripts/run_dist.sh" "--config=$config" "--experiment=$experiment")
# It refuses an unreadable configuration before the data is split.
"${run[@]}" --dry_run >/dev/null
$dry_run || "$root/scripts/split_dataset.sh" --all "$data" 2
if ! $start; then
  "${run[@]}" "$@"
  exit
fi
# In a private network all ports are free, and no one else can connect to them.
network=(unshare --map-root-user --net)
if "${network[@]}" ip link set lo up 2>/dev/null; then
  # shellcheck disable=SC2016  # The inner shell expands it.
  network+=(bash -c 'ip link set lo up && exec "$@"' bash)
else
  network=()
  printf '%s: no network of its own: expected unshare --net and ip to work; %s\n' \
    "${0##*/}" 'the ports 2222, 2224 and 2226 are open to this network' >&2
fi
# The configuration stays in the experiment's folder after this script ends.
"${network[@]}" "${run[@]}" "$@" >/dev/null
launcher=${TERNGRAD_PYTHON:-${PYTHON:-}}
printf 'started; logs and checkpoints: %s\nstate: %s\nstop:  %s\n' \
  "$workspace/$experiment" \
  "$(printf '%q ' ${launcher:+env "TERNGRAD_PYTHON=$launcher"} \
    "$root/scripts/run_dist.sh" --status \
    "--config=$workspace/$experiment/config_dist.sh" \
    "--experiment=$experiment")" \
  "$(printf '%q ' "$root/scripts/kill_local.sh" "$workspace/$experiment")"
