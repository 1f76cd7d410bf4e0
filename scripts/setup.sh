#!/usr/bin/env bash
# Makes .venv in the project's root and installs the project into it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/setup.sh [--gpu] [--help]

Makes .venv in the project's root and installs the project into it, editable,
with the requirements of its tests. Does nothing if .venv is up to date.

  --gpu   install TensorFlow's CUDA libraries too (also in later calls)

environment:
  PYTHON            the interpreter; the default is the newest suitable one of
                    python3.13, python3.12, ... and python3 on the PATH
  TERNGRAD_KERNELS  avx2, avx512 or generic: compiles the kernels for these
                    processors only, which is faster (also in later calls, until
                    it is all); the default is all
USAGE
}

gpu=false
for argument in "$@"; do
  case "$argument" in
    --gpu) gpu=true ;;
    --help | -h) usage && exit 0 ;;
    *) bad_argument "$argument" ;;
  esac
done

venv=$root/.venv
stamp=$venv/terngrad-setup-stamp
gpu_mark=$venv/terngrad-gpu
kernels_mark=$venv/terngrad-kernels
# Written when the empty environment is complete; contains its folder.
made_for=$venv/terngrad-made-for

# Only setup.py has the bounds of Python's minor version.
bounds=$(sed -n "s/^ *python_requires='>=3\.\([0-9]*\),<3\.\([0-9]*\)',$/\1 \2/p" \
  "$root/setup.py")
[[ $bounds =~ ^[0-9]+\ [0-9]+$ ]] || fail 'cannot read the Python versions' \
  "a line python_requires='>=3.x,<3.y' in setup.py" 'none' 'restore setup.py'
lowest=${bounds% *}
highest=$((${bounds#* } - 1))

# Prints x.y.z; fails when the interpreter is missing or broken.
version_of() {
  "$1" -I -S -c 'import sys; print(*sys.version_info[:3], sep=".")' 2>/dev/null
}

in_bounds() {
  [[ $1 =~ ^3\.([0-9]+)\. ]] &&
    ((BASH_REMATCH[1] >= lowest && BASH_REMATCH[1] <= highest))
}

has_venv() {
  "$1" -I -c 'import ensurepip, venv' 2>/dev/null
}

# The installation depends on three files, the sources of the kernels, the extras,
# the interpreter, and the folder, because a virtual environment cannot be moved.
key() {
  local version
  version=$(version_of "$venv/bin/python") || return 1
  {
    shopt -s nullglob
    cat -- "$root/setup.py" "$root/pyproject.toml" "$root/terngrad/version.py" \
      "$root"/terngrad/native/src/*.* "$root"/terngrad/native/src/*/*
    printf '%s\n' "$root" "$version" "$gpu"
    [[ $TERNGRAD_KERNELS == all ]] || printf '%s\n' "$TERNGRAD_KERNELS"
  } | sha256sum | cut -d ' ' -f 1
}

up_to_date() {
  local now version
  [[ -f $stamp ]] && now=$(key) && [[ $(<"$stamp") == "$now" ]] || return 1
  # Without PYTHON any suitable interpreter is used; with it, only that version.
  [[ -z ${PYTHON:-} ]] && return 0
  version=$(version_of "$PYTHON") || return 1
  [[ $version == "$(version_of "$venv/bin/python")" ]]
}

# Sets `python` and `python_version`, or prints an error and exits.
choose_python() {
  local name version without_venv='' seen=''
  local wanted="Python 3.$lowest to 3.$highest"
  if [[ -n ${PYTHON:-} ]]; then
    version=$(version_of "$PYTHON") || fail 'PYTHON does not run' "$wanted" \
      "PYTHON=$PYTHON" 'set PYTHON to an interpreter, or unset it'
    in_bounds "$version" || fail 'PYTHON has the wrong version' "$wanted" \
      "PYTHON=$PYTHON, which is Python $version" \
      "set PYTHON to an interpreter of 3.$lowest to 3.$highest, or unset it"
    has_venv "$PYTHON" || fail 'PYTHON cannot make virtual environments' \
      'the modules venv and ensurepip' "PYTHON=$PYTHON without them" \
      "install them (Debian, Ubuntu: apt-get install python3-venv)"
    python=$PYTHON python_version=$version
    return
  fi
  for name in $(seq -f 'python3.%.0f' "$highest" -1 "$lowest") python3; do
    version=$(version_of "$name") || continue
    seen+="$name is $version; "
    in_bounds "$version" || continue
    if has_venv "$name"; then
      python=$name python_version=$version
      return
    fi
    without_venv=$name
  done
  [[ -z $without_venv ]] || fail 'no Python that makes virtual environments' \
    "$wanted with the modules venv and ensurepip" "$without_venv without them" \
    "install them (Debian, Ubuntu: apt-get install $without_venv-venv)"
  fail 'no suitable Python' "$wanted on the PATH" "${seen:-none}" \
    "install one, or set PYTHON to one (PYTHON=/path/to/python3.$highest)"
}

install() {
  local current=none extras=dev pip requires build_system=()
  requires=$(sed -n 's/^requires = //p' "$root/pyproject.toml")
  while [[ $requires =~ \"([^\"]*)\"(.*) ]]; do
    build_system+=("${BASH_REMATCH[1]}")
    requires=${BASH_REMATCH[2]}
  done
  # Until the last line the installation counts as outdated, so that an interrupted
  # run is repeated.
  rm -f -- "$stamp"
  # An incomplete environment, or one that was moved (its programs contain the
  # old folder), is made again.
  if [[ -f $made_for && $(<"$made_for") == "$root" ]]; then
    current=$(version_of "$venv/bin/python") || current=none
  fi
  if [[ -n ${PYTHON:-} ]] || ! in_bounds "$current"; then
    choose_python
    if [[ $current != "$python_version" ]]; then
      printf 'setup.sh: making %s with Python %s\n' "$venv" "$python_version" >&2
      "$python" -m venv --clear -- "$venv"
      printf '%s\n' "$root" >"$made_for"
    fi
  fi
  if $gpu; then
    extras=dev,gpu
    : >"$gpu_mark"
  fi
  local started=$SECONDS quiet=()
  # pip shows downloads and the build on a terminal; into a file, errors only.
  [[ -t 2 ]] || quiet=(-qq)
  printf 'setup.sh: installing into %s: first TensorFlow and other packages, then\n%s\n' \
    "$venv" 'the C++ kernels are compiled; together two to six minutes the first time' >&2
  # Install the build requirements first and let pip build with them. Otherwise
  # pip would download them every time; this way a repeated run needs no network.
  # The pip of Python 3.10 and 3.11 once took 18 minutes to resolve what a pip of
  # 2025 resolves in half a minute.
  # Python compiles a module when it first imports it, which few of them ever are:
  # pip would take half a minute for all 15,000. See keep_bytecode too.
  pip=("$venv/bin/python" -m pip --disable-pip-version-check install --no-compile
    ${quiet[@]+"${quiet[@]}"})
  "${pip[@]}" 'pip>=25' "${build_system[@]}" >&2
  # If the kernels cannot be built, those of older sources must not remain.
  rm -f -- "$root"/terngrad/native/_kernels.*.so
  # Before the build, because edits during the build are not in its result.
  key >"$stamp.new"
  (cd -- "$root" && "${pip[@]}" --no-build-isolation --editable ".[$extras]") >&2
  [[ ! -d $root/terngrad/native ]] ||
    compgen -G "$root/terngrad/native/_kernels.*.so" >/dev/null ||
    printf 'setup.sh: the native kernels are not built (pip install -v shows why); %s\n' \
      'training works without them, slower' >&2
  printf '%s\n' "$TERNGRAD_KERNELS" >"$kernels_mark"
  mv -f -- "$stamp.new" "$stamp"
  printf 'setup.sh: installed in %d s\n' $((SECONDS - started)) >&2
}

[[ -e $gpu_mark ]] && gpu=true
[[ -n ${TERNGRAD_KERNELS:-} || ! -e $kernels_mark ]] ||
  TERNGRAD_KERNELS=$(<"$kernels_mark")
export TERNGRAD_KERNELS=${TERNGRAD_KERNELS:-all}
up_to_date && exit 0
# If two run at once, the second waits and then has nothing to do. The lock is on
# the root folder itself, so that no lock file remains.
if command -v flock >/dev/null; then
  exec 9<"$root"
  flock 9
  up_to_date && exit 0
fi
install
