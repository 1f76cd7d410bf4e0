# shellcheck shell=bash disable=SC2154
# Sourced by run_dist.sh: looks after the tasks of an experiment until they end.
#
# One program, on the machine that started them, decides for all of them: tasks
# that were restarted one by one, each by its own host, could meet what is left
# of the others' last attempt. It needs no more than the hosts do already: ssh,
# PID files and exit codes.

# seconds between two looks
look_every=2
# seconds that a task has to end; nothing is lost by killing it after that
grace=10
# the same where somebody ends the run: tasks save, and end before
# (27 s, terngrad/signal_guard.py)
grace_to_save=29
# seconds that tasks have to end without a signal once one was lost, or its host
# cannot be reached: who lost another one may end before that one has failed
settle=30
# Exit codes: terngrad.cluster.watchdog.LOST, and a signal that asked to end.
lost_code=75
stopped_code=143
nobody='a host cannot be reached'

# check_restarts: of --restart=N.
check_restarts() {
  [[ $restarts =~ ^(0|[1-9][0-9]{0,5})$ ]] || fail 'no number of restarts' \
    '--restart: a whole number, 0 or more' "$restarts" 'give one'
}

say() {
  printf '%(%F %T)T %s\n' -1 "$1"
}

# look: asks for all tasks and tunnels. Sets `running`, `finished` and `unknown`
# to how many tasks are, and `failed`, `stopped` and `lost` to the line of one
# that is, or ''; also `code`, the exit code of the one that failed.
look() {
  local line lines cut=''
  local form='^[a-z]+_[0-9]+ on [^ ]+: (running|stopped|ended)( \((process|exit code) ([0-9]+)\))?$'
  running=0 finished=0 unknown=$((${#PS_HOSTS[@]} + ${#WORKER_HOSTS[@]}))
  failed='' stopped='' lost='' code=0
  lines=$(each_task status; tunnels_status) || true
  while IFS= read -r line; do
    [[ $line != 'tunnel to '*': ended, log '* ]] || cut=$line
    # Shells may say more.
    [[ $line =~ $form ]] || continue
    unknown=$((unknown - 1))
    case ${BASH_REMATCH[1]}${BASH_REMATCH[4]} in
      running*) running=$((running + 1)) ;;
      ended0) finished=$((finished + 1)) ;;
      stopped | ended130 | ended143) stopped=$line ;;
      # Killed, or its host restarted: it could not say why.
      "ended$lost_code" | ended12[89] | ended1[3-9]? | ended2?? | ended)
        lost=$line ;;
      *) failed=$line code=${BASH_REMATCH[4]} ;;
    esac
  done <<<"$lines"
  # It does not come back by itself, and tasks may wait for each other for long.
  [[ -z $cut || (-z $lost && $running == 0) ]] || lost=$cut
}

# wait_for_end: returns when the cause of the end is known; see `look`. A failure
# is one. Where a task was lost, another one may be about to fail: the others get
# `settle` seconds to end.
wait_for_end() {
  local end=''
  while :; do
    look
    [[ -z $failed ]] && ((running + unknown)) || return 0
    if ((!running)) || [[ -n $lost && -z $stopped ]]; then
      [[ -n $end ]] || say "${lost:-$nobody}; waiting up to $settle s for the others"
      end=${end:-$((SECONDS + settle))}
      ((SECONDS < end)) || return 0
    else
      end=''
    fi
    sleep "$look_every" || true
  done
}

# quit NUMBER: ends the tasks with this program.
quit() {
  trap - INT TERM HUP
  say "signal $1: stopping all tasks"
  end_all "$grace_to_save" || true
  exit $((128 + $1))
}

# heed_signals: from now on the tasks end with this program.
heed_signals() {
  trap 'quit 1' HUP
  trap 'quit 2' INT
  trap 'quit 15' TERM
}

# watch RESTARTS: starts all again where one was lost, as often as that. Exits
# with the code of the run.
watch() {
  local restart
  for ((restart = 1; ; restart++)); do
    wait_for_end
    if [[ -n $failed ]]; then
      say "$failed; stopping the others"
      end_all "$grace" || true
      exit "$code"
    elif [[ -n $stopped ]]; then
      say "$stopped: somebody stopped it"
      close_tunnels
      exit "$stopped_code"
    elif [[ -z $lost ]] && ((!unknown)); then
      say 'all tasks are done'
      close_tunnels
      exit 0
    fi
    lost=${lost:-$nobody}
    if ((restart > $1)); then
      say "$lost; stopping the others: no restart of $1 is left"
      end_all "$grace" || true
      exit "$lost_code"
    fi
    say "$lost; restart $restart of $1, of all tasks, from the last checkpoint"
    # Where an old task may still run, none may be started.
    if ! end_all "$grace" || ! open_tunnels || ! each_task start; then
      say 'cannot restart, because of the above; stopping the others'
      end_all "$grace" || true
      exit "$lost_code"
    fi
  done
}
