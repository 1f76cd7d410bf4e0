# shellcheck shell=bash
# Sourced by run_single_*.sh with its arguments: runs one task in the
# foreground. Hyper-parameters are in experiments/.
set -euo pipefail

# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  local arguments='<ps hosts> <worker hosts>'
  case $job in
    ps) arguments+=' ps <task> <experiment>' ;;
    worker) arguments+=' worker <task> <devices> <data dir> <experiment>' ;;
  esac
  cat <<USAGE
usage: scripts/${0##*/} $arguments [--FLAG...]

Runs one task of a run on $dataset until it ends. scripts/run_dist.sh starts all
tasks.

  <ps hosts>      host:port,host:port of all parameter servers; '' for none: then
                  workers are equal processes that exchange by collectives
  <worker hosts>  the same for all workers
  <task>          the index of this task in the list of its kind, from 0
  <devices>       of a worker: its GPUs, 0 or 0,1; '' for none
  <data dir>      of a worker: its part of the data (scripts/split_dataset.sh)
  <experiment>    name of the folder in WORKSPACE; an existing one continues
  --FLAG...       further flags of terngrad.bin.${dataset}_distributed_train,
                  of ${dataset}_train without parameter servers

From the environment: WORKSPACE, a folder for results (default:
~/dataset/results/$dataset), and PYTHON, an interpreter with terngrad (default:
that of scripts/setup.sh).
USAGE
}

# check_task_id WORD
check_task_id() {
  [[ $1 =~ ^(0|[1-9][0-9]{0,3})$ ]] || fail 'no such task' \
    '<task>: a whole number, 0 or more' "$1" 'give its index in the list'
}

# begin COUNT ARGUMENT...: checks the first COUNT arguments.
begin() {
  local count=$1
  shift
  if [[ ${1:-} == --help || ${1:-} == -h ]]; then usage && exit 0; fi
  (($# >= count)) || fail 'wrong number of arguments' "$count or more" "$#" \
    'see --help'
  [[ $3 == "$job" ]] || fail 'wrong kind of task' "$job" "$3" 'see --help'
  check_task_id "$4"
  workspace=${WORKSPACE:-$HOME/dataset/results/$dataset}
  find_python
}

run_worker() {
  local commas
  begin 7 "$@"
  export CUDA_VISIBLE_DEVICES=$5
  # A CPU counts as one device.
  commas=${5//[!,]/}
  set -- "$1" --worker_hosts="$2" --task_id="$4" \
    --num_gpus="$((${#commas} + 1))" --data_dir="$6" \
    --train_dir="$workspace/$7/worker_$4" "${@:8}"
  if [[ -z $1 ]]; then
    # One node per device; the nodes share the batch of base.flags.
    exec "$python" -m "terngrad.bin.${dataset}_train" \
      --flagfile="$folder/base.flags" --exchange=collective --num_nodes=-1 \
      "${@:2}"
  fi
  with_servers --ps_hosts="$1" --job_name=worker "${@:2}"
}

run_ps() {
  begin 5 "$@"
  # The server keeps parameters in CPU memory; the workers use the GPUs.
  export CUDA_VISIBLE_DEVICES=
  with_servers --ps_hosts="$1" --worker_hosts="$2" --job_name=ps \
    --task_id="$4" --num_gpus=1 --train_dir="$workspace/$5/ps_$4" "${@:6}"
}

# with_servers FLAG...
with_servers() {
  exec "$python" -m "terngrad.bin.${dataset}_distributed_train" \
    --flagfile="$folder/base.flags" --flagfile="$folder/distributed.flags" "$@"
}

# JOB DATASET EXPERIMENT ARGUMENT...
#   JOB         worker or ps
#   DATASET     the one in the program's name, cifar10 for cifar10_distributed_train
#   EXPERIMENT  the folder in experiments/
job=$1 dataset=$2 folder=$root/experiments/$3
"run_$job" "${@:4}"
