#!/usr/bin/env bash
# Splits the training shards of a data set among workers, by links.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/split_dataset.sh [--uneven] <dir> <workers> <index>
       scripts/split_dataset.sh [--uneven] --all <dir> <workers>

Makes <dir>/worker_<index>_of_<workers> with links to that worker's part of the
files <dir>/train-*: consecutive files in the order of their names. It links
labels.txt and shards.json too, so that an epoch has the length of the whole set.
An existing folder must contain exactly these links.

  <dir>      folder of a converted data set
  <workers>  number of workers, 1 or more
  <index>    number of the worker, from 0

  --all      make the folders of all workers
  --uneven   if the number of workers does not divide the files, the first workers
             get one file more
  --help     print this
USAGE
}

all=false
uneven=false
arguments=()
while (($#)); do
  case "$1" in
    --all) all=true ;;
    --uneven) uneven=true ;;
    --help | -h) usage && exit 0 ;;
    --) shift && arguments+=("$@") && break ;;
    -*) bad_argument "$1" ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

expected=3
! $all || expected=2
((${#arguments[@]} == expected)) || fail 'wrong number of arguments' \
  "$expected" "${#arguments[@]}" 'see --help'
dir=${arguments[0]}
workers=${arguments[1]}
[[ -d $dir ]] || fail 'no data set' 'a folder' "$dir" \
  'convert the data set first: terngrad convert dataset'
# Ten or more digits could overflow.
[[ $workers =~ ^[1-9][0-9]{0,8}$ ]] || fail 'cannot split' \
  '<workers>: a whole number, 1 or more' "$workers" 'give such a number'
first=0
last=$((workers - 1))
if ! $all; then
  index=${arguments[2]}
  if [[ ! $index =~ ^(0|[1-9][0-9]{0,8})$ ]] || ((index > last)); then
    fail 'no such worker' "<index>: a whole number from 0 to $last" "$index" \
      'give such a number'
  fi
  first=$index
  last=$index
fi
# An absolute path cannot be mistaken for an option.
dir=$(cd -- "$dir" && pwd -P)

# Globs sort by the locale, readers by bytes.
LC_ALL=C
shopt -s nullglob
shards=()
for file in "$dir"/train-*; do
  [[ ! -f $file ]] || shards+=("${file##*/}")
done
count=${#shards[@]}
((count)) || fail 'nothing to split' "files $dir/train-*" 'none' \
  'convert the data set first: terngrad convert dataset'
((workers <= count)) || fail 'too few files' "$workers or more, one per worker" \
  "$count" "convert again with --train_shards=$workers --overwrite (convert dataset: \
also --shard), or use fewer workers"
rest=$((count % workers))
((rest == 0)) || $uneven || fail 'the files cannot be split evenly' \
  "a multiple of $workers" "$count" \
  'change the number of shards or workers, or give --uneven'

# part INDEX: sets `begin` and `size` to the worker's block.
part() {
  local share=$((count / workers))
  begin=$(($1 * share + ($1 < rest ? $1 : rest)))
  size=$((share + ($1 < rest)))
}

# wanted INDEX: prints the names of the worker's links, each ended by a zero
# byte.
wanted() {
  local begin size name
  part "$1"
  printf '%s\0' "${shards[@]:begin:size}"
  for name in labels.txt shards.json; do
    [[ ! -f $dir/$name ]] || printf '%s\0' "$name"
  done
}

# check FOLDER NAME...: fails unless the folder contains exactly links with these
# names to the files of the data set. Hidden files belong to the readers.
check() {
  local folder=$1 name path remedy
  local -A known=()
  shift
  remedy="remove $folder and run this again"
  [[ -d $folder && ! -L $folder ]] || fail 'the name is in use' 'a folder' \
    "$folder" "$remedy"
  for name in "$@"; do
    known[$name]=1
    [[ -L $folder/$name && $folder/$name -ef $dir/$name ]] ||
      fail 'unexpected contents' "$folder/$name -> ../$name" \
        "$(describe "$folder/$name")" "$remedy"
  done
  for path in "$folder"/*; do
    [[ -n ${known[${path##*/}]+set} ]] ||
      fail 'unexpected contents' "$# links" "also $path" "$remedy"
  done
}

describe() {
  if [[ -L $1 ]]; then
    printf 'a link to %s' "$(readlink -- "$1")"
  elif [[ -e $1 ]]; then
    printf 'not a link'
  else
    printf 'nothing'
  fi
}

# look INDEX: sets `folder` and `names` of the worker, and checks the folder if it
# exists; returns 1 if it does not.
look() {
  folder=$dir/worker_$1_of_$workers
  mapfile -d '' -t names < <(wanted "$1")
  [[ -e $folder || -L $folder ]] || return 1
  check "$folder" "${names[@]}"
}

# make_folder INDEX: makes or checks the worker's folder.
make_folder() {
  local name
  if look "$1"; then
    printf 'unchanged %s\n' "$folder"
    return
  fi
  # Renamed when it is complete, so that no worker trains on a part of it.
  staging=$(mktemp -d -- "$dir/.split-XXXXXX")
  chmod --reference="$dir" -- "$staging"
  for name in "${names[@]}"; do ln -s -- "../$name" "$staging/$name"; done
  # -T: another process may have made the folder meanwhile, and `mv` must not
  # move `staging` into it.
  mv -T -- "$staging" "$folder" 2>/dev/null || look "$1" ||
    fail 'cannot make the folder' "$dir can be written" "$folder" \
      'check its permissions'
  rm -rf -- "$staging"
  staging=
  printf 'made %s\n' "$folder"
}

staging=
trap '[[ -z $staging ]] || rm -rf -- "$staging"' EXIT
# Checks all existing folders before it makes any.
for ((i = first; i <= last; i++)); do look "$i" || true; done
for ((i = first; i <= last; i++)); do make_folder "$i"; done
