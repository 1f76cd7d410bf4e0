# shellcheck shell=bash
# Sourced by the recipes beside it, which call `from_scratch` or `fine_tune`.

# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

usage() {
  cat <<USAGE
usage: [VARIABLE=value ...] slim/scripts/${0##*/} [--dry_run] [--FLAG=value...]

$1

  --dry_run     print the commands, one per line, and run none of them
  --FLAG=value  more flags for every training command, such as
                --num_clones=2, --grad_bits=1 and --clip_factor=2.5

From the environment:
  DATA_DIR    folder of the data set, which is downloaded or converted into
              it if it has no shards.json (default: ~/dataset/$dataset-data)
  TRAIN_DIR   folder for the results; an existing one continues its training
              (default: ~/dataset/results/${0##*/}, without .sh)
  CHECKPOINT  the published checkpoint, for recipes that fine-tune
              (default: ~/dataset/checkpoints/<net>.ckpt)
  PYTHON      an interpreter with terngrad (default: that of scripts/setup.sh)
USAGE
}

# begin WHAT ARGUMENT...: reads the arguments and the environment.
begin() {
  local what=$1 argument name=${0##*/}
  shift
  dry_run=false
  further=()
  for argument in "$@"; do
    case $argument in
      --dry_run) dry_run=true ;;
      --help | -h) usage "$what" && exit 0 ;;
      --?*=*) further+=("$argument") ;;
      *) fail 'unknown argument' '--dry_run or --FLAG=value' "$argument" \
        'see --help' ;;
    esac
  done
  data_dir=${DATA_DIR:-$HOME/dataset/$dataset-data}
  train_dir=${TRAIN_DIR:-$HOME/dataset/results/${name%.sh}}
  find_python
}

# run MODULE FLAG...
run() {
  local command=("$python" -m "slim.$1" "${@:2}")
  if $dry_run; then
    printf '%q ' "${command[@]}" && printf '\n'
  else
    # For `-m`, from wherever the script is called.
    PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "${command[@]}"
  fi
}

convert() {
  [[ -e $data_dir/shards.json ]] || run download_and_convert_data \
    --dataset_name="$dataset" --dataset_dir="$data_dir"
}

# train FOLDER FLAG...
train() {
  run train_image_classifier --train_dir="$1" --dataset_name="$dataset" \
    --dataset_split_name=train --dataset_dir="$data_dir" --model_name="$net" \
    "${@:2}" "${further[@]}"
}

# score FOLDER SPLIT
score() {
  run eval_image_classifier --checkpoint_path="$1" --eval_dir="$1/eval" \
    --dataset_name="$dataset" --dataset_split_name="$2" \
    --dataset_dir="$data_dir" --model_name="$net"
}

# from_scratch NET DATASET ARGUMENT...
# with the trainer's flags in `flags`.
# shellcheck disable=SC2154
from_scratch() {
  net=$1 dataset=$2
  begin "Trains $net on $dataset from scratch, and scores it." "${@:3}"
  convert
  train "$train_dir" --optimizer=sgd "${flags[@]}"
  score "$train_dir" test
}

# fine_tune NET SCOPES STEPS ALL_STEPS ALL_RATE DECAY ARGUMENT...
#   SCOPES     of the last layers, which are trained first, alone
#   STEPS      of that
#   ALL_STEPS  of all layers, after that
#   ALL_RATE   learning rate of these
#   DECAY      of both rates, --learning_rate_decay_type
fine_tune() {
  net=$1 dataset=flowers
  local same=(
    --learning_rate_decay_type="$6" --batch_size=32 --optimizer=rmsprop
    --weight_decay=0.00004
  )
  local scopes=$2 steps=$3 all_steps=$4 all_rate=$5
  begin "Trains the last layer of $net on flowers, then all layers." "${@:7}"
  local checkpoint=${CHECKPOINT:-$HOME/dataset/checkpoints/$net.ckpt}
  local archive=download.tensorflow.org/models/${net}_2016_08_28.tar.gz
  $dry_run || [[ -e $checkpoint || -e $checkpoint.index ]] ||
    fail 'no checkpoint' "CHECKPOINT: the published one of $net" \
      "$checkpoint" "unpack $archive, or set CHECKPOINT to another path"
  convert
  train "$train_dir" --checkpoint_path="$checkpoint" \
    --checkpoint_exclude_scopes="$scopes" --trainable_scopes="$scopes" \
    --max_number_of_steps="$steps" --learning_rate=0.01 "${same[@]}"
  score "$train_dir" validation
  train "$train_dir/all" --checkpoint_path="$train_dir" \
    --max_number_of_steps="$all_steps" --learning_rate="$all_rate" "${same[@]}"
  score "$train_dir/all" validation
}
