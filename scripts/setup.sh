#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/setup.sh [--lint] [--python] [--terminal] [--cuda | --cuda-headers] [--dry-run]
#
# Installs the Debian packages that Meshloom is built, tested and run with, as far as they are missing.
# Works on Debian 12 and 13 as root or through sudo; a second run finds everything and does nothing.
#
#   --lint      also the developer tools of scripts/lint.sh, and mold
#   --python    also what the Python package of scripts/python is built, used and tested with
#   --terminal  also the shells and the terminal that completion and progress are tested in
#   --cuda      also what the CUDA backend is built and run with, into build/cuda-toolkit, as far as there is no CUDA
#               toolkit (scripts/cuda_toolkit.sh)
#   --cuda-headers  only what its tests are compiled with, and only where pip reaches it
#   --dry-run   only say what would be installed
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

build_packages=(
  g++ cmake ninja-build pkg-config ccache
  libopenmpi-dev libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev
  libspdlog-dev libfmt-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
  libdnnl-dev ocl-icd-opencl-dev libopenblas-openmp-dev libhwy-dev libxxhash-dev libssl-dev libpcre2-dev
  python3  # writes the Python package out of the protocol; no program needs it
)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev)
run_packages=(openmpi-bin bible-kjv)
lint_packages=(clang-format clang-tidy shellcheck mold)
python_packages=(
  python3-grpcio python3-protobuf python3-numpy python3-setuptools python3-wheel python3-venv protobuf-compiler-grpc mypy
)
terminal_packages=(zsh fish tmux)
cuda_packages=(python3-venv)  # has pip

# Prints those of its arguments that are not installed.
missing_packages() {
  local installed
  # ${Status} is dpkg's, not the shell's.
  # shellcheck disable=SC2016
  installed=$(dpkg-query -W -f '${Package} ${Status}\n' "$@" 2>/dev/null |
    awk '$2 == "install" && $4 == "installed" { print $1 }') || true
  local package
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || printf '%s\n' "$package"
  done
}

check_platform() {
  local ID="" VERSION_ID="" PRETTY_NAME="this system"
  # shellcheck disable=SC1091
  [ -r /etc/os-release ] && . /etc/os-release
  if [ "$ID" = debian ] && { [ "$VERSION_ID" = 12 ] || [ "$VERSION_ID" = 13 ]; }; then
    return
  fi
  die "$PRETTY_NAME is not Debian 12 or 13. Install what matches these packages by hand: $*"
}

# Fills `as_root` with what must stand before a command that needs root.
as_root=()
check_rights() {
  if [ "$(id -u)" = 0 ]; then
    return
  fi
  command -v sudo >/dev/null || die "needs root or sudo to install: $*"
  as_root=(sudo)
  if [ ! -t 0 ] && ! sudo -n true 2>/dev/null; then
    die "sudo asks for a password and there is no terminal; run as root: apt-get install $*"
  fi
}

apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

install_packages() {
  # The package lists are fetched only where they do not know a package, or know one that is gone by now.
  if ! apt-get --simulate --no-install-recommends install "$@" >/dev/null 2>&1; then
    say "setup: apt-get update"
    apt_get update
  fi
  say "setup: apt-get install --no-install-recommends $*"
  if ! apt_get -y --no-install-recommends install "$@"; then
    say "setup: that failed; once more with fresh package lists"
    apt_get update
    apt_get -y --no-install-recommends install "$@"
  fi
}

main() {
  local dry_run=() cuda=() packages=("${build_packages[@]}" "${test_packages[@]}" "${run_packages[@]}")
  while [ $# -gt 0 ]; do
    case $1 in
      --lint) packages+=("${lint_packages[@]}") ;;
      --python) packages+=("${python_packages[@]}") ;;
      --terminal) packages+=("${terminal_packages[@]}") ;;
      --cuda) packages+=("${cuda_packages[@]}") cuda=("$repository/scripts/cuda_toolkit.sh") ;;
      --cuda-headers)
        packages+=("${cuda_packages[@]}") cuda=("$repository/scripts/cuda_toolkit.sh" --headers)
        ;;
      --dry-run) dry_run=(--dry-run) ;;
      -h | --help) print_help && exit 0 ;;
      *) usage_error "unknown argument $1" ;;
    esac
    shift
  done
  set_up_packages "${packages[@]}"
  [ ${#cuda[@]} = 0 ] || "${cuda[@]}" "${dry_run[@]}"
}

# Installs those of its arguments that are missing; with a dry run it says which.
set_up_packages() {
  command -v dpkg-query >/dev/null || check_platform "$@"
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if [ ${#missing[@]} = 0 ]; then
    say "setup: all $# packages are installed, nothing to do"
    return
  fi
  check_platform "${missing[@]}"
  if [ ${#dry_run[@]} -gt 0 ]; then
    say "setup: would install ${missing[*]}"
    return
  fi
  check_rights "${missing[@]}"
  install_packages "${missing[@]}"
  say "setup: installed ${#missing[@]} packages"
}

main "$@"
