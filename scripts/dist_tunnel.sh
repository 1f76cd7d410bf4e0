# shellcheck shell=bash disable=SC2154
# Sourced by dist.sh: connections between hosts that share no private network,
# carried by ssh.
#
# All tasks are given the same addresses: 127.0.0.1, and the port of each task.
# One ssh goes from this machine to each host. It brings the ports of that host's
# tasks here (-L) and the ports of all others there (-R). So no host needs a key
# of another one, and all that tasks say to each other passes through here.

# The wish of --tunnel.
tunnel=false

# -f: it returns when all forwards stand, and stays in the background. -M: it
# then tells its process's number.
tunnel_options=(-f -N -M -o ExitOnForwardFailure=yes)

# check_tunnels: a port can stand for a task only if no other task has it.
check_tunnels() {
  local address port
  local -A known=()
  for address in "${PS_HOSTS[@]}" "${WORKER_HOSTS[@]}"; do
    port=${address##*:}
    [[ -z ${known[$port]+set} ]] || refuse \
      'with --tunnel every port once, on whatever host' \
      "$address and ${known[$port]}" 'give each task its own port'
    known[$port]=$address
  done
}

# seen ADDRESS...: prints them with commas, as the tasks are given them.
seen() {
  local address list=() IFS=,
  for address in "$@"; do
    ! $tunnel || address=127.0.0.1:${address##*:}
    list+=("$address")
  done
  printf '%s' "${list[*]}"
}

# each_tunnel FUNCTION: calls it with every host but this one; 1 if one failed.
each_tunnel() {
  local address host status=0
  local -A done_hosts=()
  for address in "${PS_HOSTS[@]}" "${WORKER_HOSTS[@]}"; do
    host=$(host_of "$address")
    if is_loopback "$address" || [[ -n ${done_hosts[$host]+set} ]]; then
      continue
    fi
    done_hosts[$host]=1
    "$1" "$host" || status=1
  done
  return "$status"
}

# forwards_of HOST: sets `forwards` to the options of its ssh.
forwards_of() {
  local address port
  forwards=()
  for address in "${PS_HOSTS[@]}" "${WORKER_HOSTS[@]}"; do
    port=127.0.0.1:${address##*:}
    if [[ $(host_of "$address") == "$1" ]]; then
      forwards+=(-L "$port:$port")
    else
      forwards+=(-R "$port:$port")
    fi
  done
}

print_tunnel() {
  local forwards
  forwards_of "$1"
  printf 'tunnel to %s: ' "$1"
  printf '%q ' ssh "${ssh_options[@]}" "${tunnel_options[@]}" \
    "${forwards[@]}" -- "$1"
  printf '\n'
}

# open_tunnel HOST: leaves tunnels/tunnel_HOST.pid and .log in the experiment's
# folder.
open_tunnel() {
  local file sockets forwards text status=0
  file=$(at_home "$folder")/tunnels/tunnel_$1
  forwards_of "$1"
  mkdir -p -- "${file%/*}"
  # The path of a socket must be short.
  sockets=$(mktemp -d)
  : >"$file.log"
  # -E: what stays in the background says there why it ended, and what it cannot
  # forward. A file, because a pipe would be held open.
  ssh "${ssh_options[@]}" "${tunnel_options[@]}" -S "$sockets/s" \
    -E "$file.log" "${forwards[@]}" -- "$1" \
    </dev/null >>"$file.log" 2>&1 || status=$?
  text=$(ssh -S "$sockets/s" -O check -- "$1" 2>&1 </dev/null) || true
  # Nobody else is to command it.
  rm -rf -- "$sockets"
  if ((status == 0)) && [[ $text =~ pid=([1-9][0-9]{0,9}) ]] &&
    identity "${BASH_REMATCH[1]}" >"$file.pid"; then
    printf 'tunnel to %s: open (process %s)\n' "$1" "${BASH_REMATCH[1]}"
    return
  fi
  text=$(tr -d '\000-\011\013-\037\177' <"$file.log")
  printf 'tunnel to %s: expected: %s\nreceived: %s\nremedy: %s\n' "$1" \
    'the forwards that --dry_run prints' "${text:-status $status}" \
    'free these ports there, and let its sshd forward (AllowTcpForwarding)'
  return 1
}

# try_tunnel HOST: opens it, closes it again and waits for its end.
try_tunnel() {
  local folder text status=0
  # That of no experiment, for the functions that are called here.
  folder=$(mktemp -d)
  text=$(open_tunnel "$1") || status=1
  close_tunnels >/dev/null
  rm -rf -- "$folder"
  ((status)) || text="tunnel to $1: can be opened"
  printf '%s\n' "$text"
  return "$status"
}

open_tunnels() {
  ! $tunnel || each_tunnel open_tunnel
}

# close_tunnels: ends those of the experiment, if it has any.
close_tunnels() {
  local here
  here=$(at_home "$folder")/tunnels
  ! compgen -G "$here/*.pid" >/dev/null || stop_tasks "$here" 5
}

# tunnels_status: prints how each is; 1 unless all of them run.
tunnels_status() {
  local file pid status=0
  for file in "$(at_home "$folder")"/tunnels/tunnel_*.pid; do
    [[ -f $file ]] || continue
    pid=${file##*/tunnel_}
    printf 'tunnel to %s: ' "${pid%.pid}"
    if pid=$(leader "$file"); then
      printf 'running (process %s)\n' "$pid"
    else
      printf 'ended, log %s\n' "${file%.pid}.log"
      status=1
    fi
  done
  return "$status"
}

# end_all SECONDS: ends all tasks, then their tunnels; 1 if a host could not be
# reached.
end_all() {
  local status=0
  each_host stop_tasks "$folder" "$1" || status=1
  close_tunnels
  return "$status"
}
