# shellcheck shell=bash
# Sourced by run_multi_gpus_*.sh with the arguments of `run_multi_gpus`. Runs a
# trainer and an evaluator side by side. Hyper-parameters are in experiments/.
set -euo pipefail

# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<USAGE
usage: [VARIABLE=value ...] scripts/${0##*/} [--dry_run] [--help]

Trains on $dataset and evaluates the checkpoints during training. Returns when
both are done, with the trainer's status, or the evaluator's if the trainer's is
0. A signal stops both.

  --dry_run  print the two commands; start and create nothing

Folders, from the environment:
  ROOT_WORKSPACE  folder for results; must exist
                  (default: ~/dataset/results/$dataset)
  DATA_DIR        the converted data set (default: ~/dataset/$dataset-data)
  RUN_DATE        end of the folders' names (default: now). The value of an
                  earlier run continues that run.
  PYTHON          an interpreter with terngrad (default: that of
                  scripts/setup.sh)
  TRAIN_FLAGFILE  flags of the trainer after experiments/$experiment/base.flags,
                  '' for none (default: ${variant:-none})

Flags, from the environment; defaults are in experiments/$experiment/base.flags,
TRAIN_FLAGFILE and experiments/$experiment/eval.flags:
  both        NET IMAGE_SIZE
  trainer     NUM_GPUS NUM_NODES OPTIMIZER MOMENTUM BASE_LR LR_DECAY_TYPE
              LR_DECAY_FACTOR NUM_EPOCHS_PER_DECAY WEIGHT_DECAY
              DROPOUT_KEEP_PROB GRAD_BITS CLIP_FACTOR QUANTIZE_LOGITS
              SIZE_TO_BINARIZE FLOATING_GRAD_EPOCH TRAIN_BATCH_SIZE MAX_STEPS
              SAVE_ITER SEED
  evaluator   VAL_BATCH_SIZE VAL_TOWER EVAL_INTERVAL_SECS EVAL_DEVICE
              RESTORE_AVG_VAR
CUDA_VISIBLE_DEVICES chooses the GPUs, as for every CUDA program.
USAGE
}

# variable=flag. The flag files set what the environment does not set.
both=(NET=net IMAGE_SIZE=image_size)
trainer_only=(
  NUM_GPUS=num_gpus NUM_NODES=num_nodes OPTIMIZER=optimizer MOMENTUM=momentum
  BASE_LR=initial_learning_rate LR_DECAY_TYPE=learning_rate_decay_type
  LR_DECAY_FACTOR=learning_rate_decay_factor
  NUM_EPOCHS_PER_DECAY=num_epochs_per_decay WEIGHT_DECAY=weight_decay
  DROPOUT_KEEP_PROB=dropout_keep_prob GRAD_BITS=grad_bits
  CLIP_FACTOR=clip_factor QUANTIZE_LOGITS=quantize_logits
  SIZE_TO_BINARIZE=size_to_binarize FLOATING_GRAD_EPOCH=floating_grad_epoch
  TRAIN_BATCH_SIZE=batch_size MAX_STEPS=max_steps SAVE_ITER=save_iter SEED=seed
)
evaluator_only=(
  VAL_BATCH_SIZE=batch_size VAL_TOWER=tower
  EVAL_INTERVAL_SECS=eval_interval_secs EVAL_DEVICE=device
  RESTORE_AVG_VAR=restore_avg_var
)
# The parts of the folders' names, in order, before the counts of devices.
named=(
  net image_size optimizer grad_bits initial_learning_rate clip_factor
  floating_grad_epoch weight_decay momentum size_to_binarize batch_size
)

# overrides VARIABLE=flag...
# Prints --flag=value for each variable that is set, each with a zero byte at its end.
overrides() {
  local pair variable
  for pair in "$@"; do
    variable=${pair%%=*}
    [[ -z ${!variable+set} ]] ||
      printf -- '--%s=%s\0' "${pair#*=}" "${!variable}"
  done
}

# value_of FLAG: prints the value that the trainer will use.
value_of() {
  local file
  {
    # The last line of a file may lack its newline.
    for file in "${train_files[@]}"; do cat -- "$file" && printf '\n'; done
    printf '%s\n' "${train_flags[@]}"
  } | sed -n "s/^ *--$1=//p" | tail -n 1
}

# check_paths: refuses missing folders before it makes any.
check_paths() {
  local file
  $dry_run || [[ -d $workspace ]] || fail 'no folder for results' \
    'ROOT_WORKSPACE: a folder that exists' "$workspace" \
    'create it (mkdir -p), or set ROOT_WORKSPACE to another folder'
  find_python
  for file in "${train_files[@]}"; do
    [[ -r $file ]] || fail 'no flag file' 'a file of flags' "$file" \
      'set TRAIN_FLAGFILE to one, or unset it'
  done
}

# name_run: sets `name`, the name of the run's folders, by the scheme of 2017.
name_run() {
  local flag
  name=$dataset
  for flag in "${named[@]}"; do name+=_$(value_of "$flag"); done
  name+=_${RUN_DATE:-$(LC_ALL=C date)}
  name=${name// /_}
  name=${name//:/-}
  [[ $name != */* && $name != *$'\n'* ]] || fail 'cannot name the folders' \
    "flags without '/' and line breaks" "$name" \
    'change the variable that contains one'
}

# stop SIGNAL: signals the running children, and returns when they have ended.
# A stopped child (SIGSTOP) gets the signal when it continues.
# shellcheck disable=SC2317  # The traps call it.
stop() {
  local pid
  for pid in $(jobs -pr); do
    kill "-$1" "$pid" 2>/dev/null && kill -CONT "$pid" 2>/dev/null || true
  done
  # A trap ends `wait` early, hence the loop.
  while [[ -n $(jobs -pr) ]]; do wait || true; done
}

# interrupted SIGNAL STATUS
# shellcheck disable=SC2317  # The traps call it.
interrupted() {
  trap - EXIT
  # A second signal is for children that ignore TERM.
  trap 'stop KILL' INT TERM HUP
  printf '%s: %s; stopping trainer and evaluator\n' "${0##*/}" "$1" >&2
  stop TERM
  exit "$2"
}

# run_both: starts `evaluator` and `trainer`, waits for both, exits.
run_both() {
  local evaluator_pid trainer_pid status=0
  trap 'stop TERM' EXIT
  trap 'interrupted SIGINT 130' INT
  trap 'interrupted SIGTERM 143' TERM
  trap 'interrupted SIGHUP 129' HUP
  mkdir -p -- "$train_dir" "$eval_dir" "$info_dir"
  "${evaluator[@]}" >>"$info_dir/eval_${name}_info.txt" 2>&1 &
  evaluator_pid=$!
  "${trainer[@]}" >>"$info_dir/training_${name}_info.txt" 2>&1 &
  trainer_pid=$!
  printf 'trainer %s, evaluator %s; their output is in\n  %s\n  %s\n' \
    "$trainer_pid" "$evaluator_pid" "$info_dir/training_${name}_info.txt" \
    "$info_dir/eval_${name}_info.txt"
  wait "$trainer_pid" || status=$?
  if ((status)); then
    # There will be no last checkpoint, so the evaluator would wait forever.
    printf '%s: the trainer failed with status %s; stopping the evaluator\n' \
      "${0##*/}" "$status" >&2
    exit "$status"
  fi
  wait "$evaluator_pid" || status=$?
  ((status == 0)) ||
    printf '%s: the evaluator failed with status %s\n' "${0##*/}" "$status" >&2
  exit "$status"
}

# parse_arguments ARGUMENT...: sets `dry_run`.
parse_arguments() {
  local argument
  dry_run=false
  for argument in "$@"; do
    case "$argument" in
      --dry_run) dry_run=true ;;
      --help | -h) usage && exit 0 ;;
      *) bad_argument "$argument" ;;
    esac
  done
}

# set_flags: sets `train_flags` and `eval_flags`. As in absl, the last flag
# of a name wins.
set_flags() {
  local file
  train_flags=()
  for file in "${train_files[@]}"; do train_flags+=("--flagfile=$file"); done
  mapfile -d '' -O "${#train_flags[@]}" -t train_flags \
    < <(overrides "${both[@]}" "${trainer_only[@]}")
  eval_flags=("--flagfile=$folder/eval.flags")
  mapfile -d '' -O 1 -t eval_flags \
    < <(overrides "${both[@]}" "${evaluator_only[@]}")
  # The evaluator stops when it has evaluated the trainer's last step.
  eval_flags+=("--max_steps=$(value_of max_steps)")
}

# run_multi_gpus DATASET EXPERIMENT VARIANT COUNTED ARGUMENT...
#   DATASET     the one in the programs' names, mnist for mnist_train
#   EXPERIMENT  the folder in experiments/
#   VARIANT     a flag file there that is read after base.flags, or ''
#   COUNTED     the flags at the end of the folders' names: 'num_gpus num_nodes'
#   ARGUMENT    the arguments of the script
run_multi_gpus() {
  local counted
  dataset=$1 experiment=$2 variant=$3
  read -ra counted <<<"$4"
  named+=("${counted[@]}")
  shift 4
  parse_arguments "$@"
  workspace=${ROOT_WORKSPACE:-$HOME/dataset/results/$dataset}
  data_dir=${DATA_DIR:-$HOME/dataset/$dataset-data}
  folder=$root/experiments/$experiment
  local second=${TRAIN_FLAGFILE-${variant:+$folder/$variant}}
  train_files=("$folder/base.flags" ${second:+"$second"})
  check_paths
  set_flags
  name_run
  train_dir=$workspace/${dataset}_training_data/$name
  eval_dir=$workspace/${dataset}_eval_data/$name
  info_dir=$workspace/${dataset}_info
  trainer=(
    "$python" -m "terngrad.bin.${dataset}_train" "${train_flags[@]}"
    "--data_dir=$data_dir" "--train_dir=$train_dir"
  )
  evaluator=(
    "$python" -m "terngrad.bin.${dataset}_eval" "${eval_flags[@]}"
    "--data_dir=$data_dir" "--checkpoint_dir=$train_dir"
    "--eval_dir=$eval_dir"
  )
  if $dry_run; then
    printf '%q ' "${evaluator[@]}" && printf '\n'
    printf '%q ' "${trainer[@]}" && printf '\n'
    exit 0
  fi
  run_both
}

run_multi_gpus "$@"
