# shellcheck shell=bash
# Starts, checks and stops the tasks of one host, on that host. Sourced by
# kill_local.sh. `terngrad launch` sends this file and a call of one function to
# `bash -s` on other hosts, so it uses nothing else of the project. Linux only:
# it identifies processes by /proc.
set -euo pipefail

# at_home PATH: prints the path, with this host's home instead of a leading ~/.
at_home() {
  # shellcheck disable=SC2088  # It is compared, not expanded. HOME may be unset.
  [[ $1 != '~/'* ]] || set -- ~/"${1:2}"
  printf '%s' "$1"
}

# stat_of PID: sets `fields` to those of /proc/PID/stat after the name.
stat_of() {
  local line=''
  # No subprocess for each PID: `members` reads all of them.
  { IFS= read -r -d '' line <"/proc/$1/stat"; } 2>/dev/null || true
  [[ -n $line ]] || return 1
  # The name is in brackets and may contain anything.
  read -ra fields <<<"${line##*) }"
}

# identity PID: prints a line that is unique to this process: the boot, the
# number and the start time.
identity() {
  local fields
  stat_of "$1" || return 1
  printf '%s %s %s\n' "$1" "${fields[19]}" \
    "$(cat /proc/sys/kernel/random/boot_id)"
}

# leader PID_FILE: prints the number of the process if it still runs.
leader() {
  local line='' fields pid
  [[ -f $1 ]] && { read -r line <"$1" || return 1; }
  [[ $line =~ ^([1-9][0-9]{0,9})\ [0-9]+\ [0-9a-f-]+$ ]] || return 1
  pid=${BASH_REMATCH[1]}
  [[ $(identity "$pid") == "$line" ]] && stat_of "$pid" &&
    [[ ${fields[0]} != [ZX] ]] || return 1
  printf '%s' "$pid"
}

# members SESSION...: prints the numbers of all processes in these sessions.
members() {
  local fields stat session
  for stat in /proc/[0-9]*/stat; do
    stat=${stat%/stat}
    stat_of "${stat#/proc/}" || continue
    [[ ${fields[0]} != [ZX] ]] || continue
    for session in "$@"; do
      [[ ${fields[3]} != "$session" ]] || printf '%s\n' "${stat#/proc/}"
    done
  done
}

# check_task FOLDER TASK SCRIPT DATA_DIR: prints what would prevent its start.
# DATA_DIR is '' for a task without data.
check_task() {
  local folder script data pid program status=0
  folder=$(at_home "$1") script=$(at_home "$3") data=$(at_home "$4")
  [[ -d ${folder%/*} && -w ${folder%/*} ]] || {
    printf 'WORKSPACE: expected a writable folder, received %s\n' \
      "${folder%/*}"
    status=1
  }
  [[ -f $script && -x $script ]] || {
    printf 'expected an executable script, received %s\n' "$script"
    status=1
  }
  [[ -z $data || (-d $data && -r $data) ]] || {
    printf 'DATA_DIR: expected a folder, received %s\n' "$data"
    status=1
  }
  for program in flock setsid; do
    command -v "$program" >/dev/null || {
      printf 'expected %s (package util-linux), received none\n' "$program"
      status=1
    }
  done
  if pid=$(leader "$folder/$2.pid"); then
    printf 'expected a task that is not running, received process %s\n' "$pid"
    status=1
  fi
  ((status)) || printf 'can start\n'
  return "$status"
}

# report_versions PYTHON [DEVICES]: prints the versions on this host. Refuses if
# the GPUs DEVICES ('0,1') do not exist. With DEVICES, PYTHON in the environment
# has precedence, as in the scripts of tasks. Without them the task is PYTHON
# itself, with all GPUs.
report_versions() {
  local python=$1 text status=0 gpus='' variables=(TF_CPP_MIN_LOG_LEVEL=3)
  if (($# > 1)); then
    python=${PYTHON:-$1} gpus=${2:+x}${2//[!,]/}
    variables+=("CUDA_VISIBLE_DEVICES=$2")
  fi
  local word='[^ ,;]+'
  local line="^terngrad $word, TensorFlow $word, Python $word; ([0-9]+) GPUs\$"
  # Standard input is this program. An import may hang on a network disk.
  text=$(env "${variables[@]}" timeout 300 "$python" \
    -m terngrad.bin.versions 2>&1 </dev/null) || status=$?
  text=${text##*$'\n'}
  if ((status)) || [[ ! $text =~ $line ]]; then
    printf 'expected an interpreter with terngrad, received %s: %s\n' \
      "$python" "${text:-status $status}"
    return 1
  fi
  printf '%s\n' "$text"
  (($# < 2 || BASH_REMATCH[1] == ${#gpus})) || {
    printf 'WORKER_DEVICES: expected the GPUs %s, received %s of %s\n' "$2" \
      "${BASH_REMATCH[1]}" "${#gpus}"
    return 1
  }
}

# watch_task FILE SCRIPT ARGUMENT...: starts a task, prints its identity, waits
# for its end and writes its exit code to FILE.code. FILE.waiter is the identity
# of the waiting shell.
watch_task() {
  local file=$1 pid code=0
  shift
  identity "$BASHPID" >"$file.waiter" || true
  # A separate session: the task outlives the connection, and the session
  # identifies every process that it starts.
  setsid -- "$@" </dev/null >>"$file.log" 2>&1 &
  pid=$!
  identity "$pid" || true
  # The reader of the identity must not wait for the end of the task.
  exec >/dev/null 2>&1
  wait "$pid" || code=$?
  printf '%s\n' "$code" >"$file.code"
}

# start_task FOLDER TASK SCRIPT ARGUMENT...: writes FOLDER/TASK.pid and .log.
# WORKSPACE is in the environment of SCRIPT. Arguments that begin with ~/ are
# paths on this host. Of two calls at once the second refuses, or one process would
# be unknown.
start_task() (
  local folder file line='' lock pid word words=()
  folder=$(at_home "$1") file=$(at_home "$1")/$2
  shift 2
  mkdir -p -- "$folder"
  # Until this subshell ends. The task must not inherit it.
  exec {lock}>"$file.lock"
  flock -- "$lock"
  if pid=$(leader "$file.pid"); then
    printf 'expected a task that is not running, received process %s\n' "$pid"
    return 1
  fi
  rm -f -- "$file.code"
  for word in "$@"; do words+=("$(at_home "$word")"); done
  # The waiting shell has a session too, so that closing a terminal does not end it.
  read -r line < <(
    WORKSPACE=${folder%/*} exec setsid -- bash -c \
      "$(declare -f stat_of identity watch_task)"$'\nwatch_task "$@"' bash \
      "$file" "${words[@]}" </dev/null {lock}>&-
  ) || true
  printf '%s\n' "$line" >"$file.pid" || {
    # Without this file, such as on a full disk, nothing could stop the task.
    pid=${line%% *}
    # It may not lead its group yet.
    [[ -z $pid ]] || kill -KILL -- "-$pid" "$pid" 2>/dev/null || true
    rm -f -- "$file.pid" || true
    printf 'killed the task (process %s): expected to write %s\n' "$pid" \
      "$file.pid"
    return 1
  }
  [[ -n $line ]] || {
    printf 'the task ended at once; its output is in %s\n' "$file.log"
    return 1
  }
  printf 'started (process %s), log %s\n' "${line%% *}" "$file.log"
)

# task_status FOLDER TASK: prints the state of the task; status 0 while it runs.
task_status() {
  local file pid code=''
  file=$(at_home "$1")/$2
  if [[ ! -e $file.pid ]]; then
    printf 'stopped\n'
    return 1
  fi
  # A task runs until the waiting shell has written its exit code. After a restart
  # of the host there is no such shell.
  if pid=$(leader "$file.pid") || pid=$(leader "$file.waiter"); then
    printf 'running (process %s)\n' "$pid"
    return
  fi
  { read -r code <"$file.code"; } 2>/dev/null || true
  if [[ $code =~ ^[0-9]{1,3}$ ]]; then
    printf 'ended (exit code %s)\n' "$code"
  else
    printf 'ended\n'
  fi
  return 1
}

# stop_tasks FOLDER SECONDS: sends the tasks of this host SIGTERM, and after
# SECONDS kills the remaining ones. It ignores PID files of processes that have
# ended and of other hosts.
stop_tasks() {
  local folder file pid end sessions=() files=() left=()
  folder=$(at_home "$1")
  for file in "$folder"/*.pid; do
    pid=$(leader "$file") || continue
    sessions+=("$pid")
    files+=("$file")
  done
  ((${#sessions[@]})) || {
    printf 'no task of %s runs on this host\n' "$folder"
    return
  }
  end=$((SECONDS + $2))
  mapfile -t left < <(members "${sessions[@]}")
  # Some may have ended. A stopped task (SIGSTOP) gets the signal when it continues.
  kill -TERM "${left[@]}" 2>/dev/null || true
  kill -CONT "${left[@]}" 2>/dev/null || true
  while ((SECONDS < end && ${#left[@]})); do
    sleep 0.1
    mapfile -t left < <(members "${sessions[@]}")
  done
  if ((${#left[@]})); then
    printf 'killed processes that had not ended after %s s: %s\n' "$2" \
      "${left[*]}"
    kill -KILL "${left[@]}" 2>/dev/null || true
  fi
  for file in "${files[@]}"; do
    file=${file##*/}
    printf 'stopped %s\n' "${file%.pid}"
  done
  rm -f -- "${files[@]}"
}
