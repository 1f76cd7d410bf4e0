#!/usr/bin/env bash
# Installs the project and compares float32 with ternary gradients.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/quickstart.sh [--help]

Installs the project (scripts/setup.sh), converts MNIST, trains LeNet with
float32 and with ternary gradients, evaluates both and prints them side by side,
with what a step of each would take on four hosts at 100 Mbit/s and 1 Gbit/s.
A second call continues from the existing files.

environment:
  QUICKSTART_DIR    folder for all results (default: quickstart)
  STEPS             training steps of each run (default: 1000)
  MNIST_SOURCE_DIR  a folder with MNIST's four .gz files; without it they are
                    downloaded
USAGE
}

check_known '' "$@"

steps=${STEPS:-1000}
[[ $steps =~ ^[1-9][0-9]*$ ]] || fail 'invalid number of steps' \
  'STEPS: a whole number, 1 or more' "STEPS=$steps" 'set it to one, or unset it'

folder=${QUICKSTART_DIR:-quickstart}
mkdir -p -- "$folder"
# An absolute path cannot be mistaken for an option.
folder=$(cd -- "$folder" && pwd -P)
experiment=$root/experiments/lenet
started=$SECONDS

"$root/scripts/setup.sh"
keep_bytecode
python=$root/.venv/bin/python

title() {
  printf '\n=== %s (at %d s)\n' "$1" $((SECONDS - started))
}

# train NAME FLAG...
train() {
  local name=$1
  shift
  title "training with $name gradients: $steps steps"
  "$python" -m terngrad.bin.mnist_train \
    "--flagfile=$experiment/base.flags" "$@" "--max_steps=$steps" \
    "--data_dir=$folder/mnist" "--train_dir=$folder/$name/train"
  title "evaluating $name"
  "$python" -m terngrad.bin.mnist_eval \
    "--flagfile=$experiment/eval.flags" --run_once "--max_steps=$steps" \
    "--data_dir=$folder/mnist" "--checkpoint_dir=$folder/$name/train" \
    "--eval_dir=$folder/$name/eval"
}

title 'converting MNIST'
"$python" -m slim.download_and_convert_data --dataset_name=mnist \
  "--dataset_dir=$folder/mnist" \
  ${MNIST_SOURCE_DIR:+"--source_dir=$MNIST_SOURCE_DIR"}

train float32
train ternary "--flagfile=$experiment/terngrad.flags"

title 'comparison'
# Quoted, since the folder's name may contain a comma.
quoted=${folder//\"/\"\"}
runs="--runs=\"float32=$quoted/float32\",\"ternary=$quoted/ternary\""
"$python" -m terngrad.bin.compare_runs "$runs" "--output=$folder"
# base.flags has the net and the number of nodes.
"$python" -m terngrad.cli.main report hosts --net=lenet --num_nodes=4 \
  "$runs" --codecs=identity --codecs=ternary
printf '\n%d s in all; everything is in %s\n' $((SECONDS - started)) "$folder"
