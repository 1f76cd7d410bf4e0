# shellcheck shell=bash disable=SC2034,SC2154,SC2178
# Sourced by dist.sh: reads and checks a file like config_dist.sh, which is
# data. Nothing in it is executed or expanded. The caller sets `config`, its
# path.

config_lists=(PS_HOSTS WORKER_HOSTS WORKER_DEVICES DATA_DIR)
config_words=(WORKER_SCRIPT PS_SCRIPT WORKSPACE ALLOW_INSECURE_NETWORK)

# refuse EXPECTED RECEIVED REMEDY: the same as `fail`, for a line or variable.
refuse() {
  fail "cannot use $config" "$@"
}

# is_one_of WORD CHOICE...
is_one_of() {
  local choice word=$1
  shift
  for choice in "$@"; do [[ $choice != "$word" ]] || return 0; done
  return 1
}

# take_word: moves the first word of `rest` to `word`, without its quotes.
take_word() {
  # In quotes of either kind, or without special characters.
  local piece=$'^(\'([^\']*)\'|"([^"]*)"|([^][:space:]\'"()#;&|<>`$\\\\*?{}[]+))'
  word=
  [[ $rest =~ $piece ]] ||
    refuse 'a word, in quotes where it has special characters' \
      "line $number: $line" 'write it in single quotes'
  while [[ $rest =~ $piece ]]; do
    word+=${BASH_REMATCH[2]}${BASH_REMATCH[3]}${BASH_REMATCH[4]}
    rest=${rest:${#BASH_REMATCH[0]}}
  done
  [[ -z $rest || $rest == [[:space:]\)]* ]] ||
    refuse 'a space after a word' "line $number: $line" \
      'write the whole word in single quotes'
  [[ $word != *[[:cntrl:]]* ]] ||
    refuse 'words without control characters' "line $number" 'write it anew'
}

# begin_variable: takes NAME= from `rest`, and ( if it is a list.
begin_variable() {
  [[ $rest =~ ^([A-Z_]+)= ]] ||
    refuse 'NAME=word or NAME=(word ...)' "line $number: $line" \
      'compare with scripts/config_dist.sh'
  name=${BASH_REMATCH[1]}
  rest=${rest:${#BASH_REMATCH[0]}}
  [[ -z ${seen[$name]+set} ]] || refuse 'every variable once' \
    "line $number: $name again" 'leave one out'
  seen[$name]=1
  if [[ $rest == \(* ]]; then
    is_one_of "$name" "${config_lists[@]}" || refuse \
      "a list for one of ${config_lists[*]}" "line $number: $line" \
      "write a word, or another name"
    rest=${rest:1}
    open=$name
    return
  fi
  is_one_of "$name" "${config_words[@]}" || refuse \
    "a word for one of ${config_words[*]}" "line $number: $line" \
    'write a list, (...), or another name'
  take_word
  printf -v "$name" '%s' "$word"
}

# take_item: takes one word of the list `open`, or its end.
take_item() {
  if [[ $rest == \)* ]]; then
    rest=${rest:1}
    open=
    return
  fi
  take_word
  local -n list=$open
  list+=("$word")
}

# read_config: sets the variables of the file `config`.
read_config() {
  local line rest name open='' word number=0
  local -A seen=()
  PS_HOSTS=() WORKER_HOSTS=() WORKER_DEVICES=() DATA_DIR=()
  [[ -f $config && -r $config ]] || fail 'no configuration' \
    'a file like scripts/config_dist.sh' "$config" 'give --config=FILE'
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    rest=$line
    while rest=${rest#"${rest%%[![:space:]]*}"} && [[ -n $rest ]]; do
      [[ $rest != \#* ]] || break
      if [[ -n $open ]]; then take_item; else begin_variable; fi
    done
  done <"$config"
  [[ -z $open ]] || refuse "a ) that ends $open" 'none' 'add it'
  for name in "${config_lists[@]}" "${config_words[@]}"; do
    [[ -n ${seen[$name]+set} ]] || refuse "$name" 'nothing' \
      'take the line from scripts/config_dist.sh'
  done
}

# host_of ADDRESS: prints the host of host:port, without brackets.
host_of() {
  local host=${1%:*}
  host=${host#[}
  printf '%s' "${host%]}"
}

# is_loopback ADDRESS
is_loopback() {
  # 127.999.0.1 is the name of some host.
  local byte='(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])'
  [[ $1 =~ ^(localhost|127(\.$byte){3}|\[::1\]): ]]
}

# check_addresses: each is one, and no two are the same. Without parameter
# servers the workers are equal processes.
check_addresses() {
  local address port
  local -A known=()
  local form='^([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):'
  ((${#WORKER_HOSTS[@]})) || refuse 'WORKER_HOSTS: one or more' 'none' \
    'list host:port'
  for address in "${PS_HOSTS[@]}" "${WORKER_HOSTS[@]}"; do
    port=${address##*:}
    [[ $address =~ ${form}[1-9][0-9]{0,4}$ && $port -lt 65536 ]] || refuse \
      'host:port with a port from 1 to 65535' "$address" \
      'write host.example:2222, or [2001:db8::1]:2222 for IPv6'
    [[ -z ${known[$address]+set} ]] || refuse 'every address once' \
      "$address again" 'give each task its own port'
    known[$address]=1
  done
}

# check_network: all tasks can reach all, on a network that may be used.
check_network() {
  local address outside=''
  for address in "${PS_HOSTS[@]}" "${WORKER_HOSTS[@]}"; do
    is_loopback "$address" || outside=$address
  done
  [[ -n $outside ]] || return 0
  for address in "${PS_HOSTS[@]}" "${WORKER_HOSTS[@]}"; do
    ! is_loopback "$address" || refuse \
      'names that all hosts know, or localhost only' "$address and $outside" \
      "write this machine's name for $(host_of "$address")"
  done
  [[ $ALLOW_INSECURE_NETWORK == true ]] || refuse \
    'ALLOW_INSECURE_NETWORK=true for hosts other than localhost' \
    "$ALLOW_INSECURE_NETWORK with $outside" \
    'TensorFlow has no authentication: read docs/security.md first'
}

# check_path NAME PATH
check_path() {
  # shellcheck disable=SC2088  # It is compared, not expanded.
  [[ $2 == /* || $2 == '~/'* ]] || refuse \
    "$1: a path from / or ~/" "'$2'" 'hosts have no common folder to begin from'
}

# check_config: refuses what cannot be started; completes the scripts' paths.
check_config() {
  local name path
  is_one_of "$ALLOW_INSECURE_NETWORK" true false || refuse \
    'ALLOW_INSECURE_NETWORK: true or false' "$ALLOW_INSECURE_NETWORK" \
    'write one of these'
  check_addresses
  for name in WORKER_DEVICES DATA_DIR; do
    local -n words=$name
    ((${#words[@]} == ${#WORKER_HOSTS[@]})) || refuse \
      "$name: one a worker, ${#WORKER_HOSTS[@]}" "${#words[@]}" \
      "list as many as WORKER_HOSTS"
  done
  for path in "${WORKER_DEVICES[@]}"; do
    [[ $path =~ ^([0-9]{1,4}(,[0-9]{1,4})*)?$ ]] || refuse \
      "WORKER_DEVICES: numbers of GPUs, or ''" "$path" "write '0', '0,1' or ''"
  done
  for path in "${DATA_DIR[@]}"; do check_path DATA_DIR "$path"; done
  check_path WORKSPACE "$WORKSPACE"
  for name in WORKER_SCRIPT PS_SCRIPT; do
    local -n script=$name
    [[ -n $script && ($script != */* || $script == [/~]*) ]] || refuse \
      "$name: a name, or a path from / or ~/" "'$script'" \
      "write the script's whole path"
    [[ $script == */* ]] || script=$root/scripts/$script
    check_path "$name" "$script"
  done
}

# quoted WORD: prints it as `take_word` reads it.
quoted() {
  local quote="'" other="'\"'\"'"
  printf "'%s'" "${1//$quote/$other}"
}

# write_config: prints the configuration as `read_config` reads it.
write_config() {
  local name word
  for name in "${config_lists[@]}"; do
    local -n list=$name
    printf '%s=(\n' "$name"
    for word in "${list[@]}"; do printf '  %s\n' "$(quoted "$word")"; done
    printf ')\n'
  done
  for name in "${config_words[@]}"; do
    printf '%s=%s\n' "$name" "$(quoted "${!name}")"
  done
}
