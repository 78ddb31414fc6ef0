#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/cuda_toolkit.sh [--headers] [--wheels] [--dry-run]
#
# Puts what the CUDA backend is built and run with into build/cuda-toolkit, as far as it is not on this machine, as
# wheels from where pip takes packages: CUDA's compiler and runtime, cuBLAS, cuDNN and NCCL where no toolkit is found
# (nvcc 12.8 or newer on the PATH or in /usr/local/cuda), and the headers of the cudnn-frontend. A second run finds
# everything and does nothing. scripts/setup.sh runs it with --cuda and --cuda-headers.
#
#   --headers   only what tests need: CUDA's headers (2.4 MB) where there is no toolkit, and where there is one the
#               cudnn-frontend, with which the backend itself is built too. Where pip reaches nothing, it is said and
#               nothing else
#   --wheels    all of it (1.1 GB), also where a toolkit is found; the build then uses it
#   --dry-run   only say what would be installed
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

# PyTorch 2.11 for CUDA 13.0 pins the same versions, so that a program finds what it was linked with beside that too.
compiler=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85)
headers=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88)
libraries=(nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88) # cuDNN opens nvrtc
cudnn=nvidia-cudnn-cu13==9.19.0.56
nccl=nvidia-nccl-cu13==2.28.9
frontend=nvidia-cudnn-frontend==1.32.0

folder=$repository/build/cuda-toolkit
only_headers=false all_wheels=false dry_run=false
while [ $# -gt 0 ]; do
  case $1 in
    --headers) only_headers=true ;;
    --wheels) all_wheels=true ;;
    --dry-run) dry_run=true ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done

# Prints the folder of the toolkit that is on this machine; false where there is none, or an old one.
find_toolkit() {
  local nvcc release
  ! $all_wheels || return 1
  nvcc=$(command -v nvcc) || nvcc=/usr/local/cuda/bin/nvcc
  [ -x "$nvcc" ] || return 1
  release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  if [ "$(printf '%s\n' 12.8 "$release" | sort -V | head -n 1)" != 12.8 ]; then
    say "cuda_toolkit: $nvcc is of CUDA ${release:-unknown}, 12.8 or newer is needed" >&2
    return 1
  fi
  dirname "$(dirname "$(realpath "$nvcc")")"
}

# has_header TOOLKIT NAME: in the toolkit, or where Debian packages put it.
has_header() {
  local place
  for place in "$1/include" "$1"/targets/*/include /usr/include /usr/include/*-linux-gnu; do
    [ ! -f "$place/$2" ] || return 0
  done
  return 1
}

wanted_wheels() {
  local toolkit major
  if toolkit=$(find_toolkit); then
    printf '%s\n' "$frontend"
    ! $only_headers || return 0
    major=$("$toolkit/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    has_header "$toolkit" cudnn.h || printf '%s\n' "${cudnn/cu13/cu$major}"
    has_header "$toolkit" nccl.h || printf '%s\n' "${nccl/cu13/cu$major}"
  elif $only_headers; then
    printf '%s\n' "${headers[@]}"
  else
    printf '%s\n' "${headers[@]}" "${compiler[@]}" "${libraries[@]}" "$cudnn" "$nccl" "$frontend"
  fi
}

# Prints those of its arguments that are not in the folder, by the marks that pip leaves.
missing_wheels() {
  local wheel name
  for wheel; do
    name=${wheel%%==*}
    [ -d "$folder/${name//-/_}-${wheel##*==}.dist-info" ] || printf '%s\n' "$wheel"
  done
}

# fetch TEMPORARY WHEEL...: pip replaces folders that packages share (nvidia/), so what is new comes into a folder of its
# own first. Debian's python3 has no pip; one of a virtual environment does.
fetch() {
  local temporary=$1 python=python3
  shift
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    /usr/bin/python3 -m venv "$temporary/venv" || return 1
    python=$temporary/venv/bin/python
  fi
  local impatient=()
  ! $only_headers || impatient=(timeout 240)
  "${impatient[@]}" "$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --root-user-action=ignore --retries 2 --timeout 20 --target "$temporary/wheels" "$@" || return 1
  # The frontend is headers; its Python package is 45 MB.
  rm -rf "$temporary"/wheels/{cudnn,bin,nvidia_cudnn_frontend.libs}
  cp -al "$temporary/wheels/." "$folder/"
}

# CMake looks for libraries in lib64, and by names without a version.
make_links() {
  local root library
  for root in "$folder"/nvidia/cu[0-9]*; do
    [ ! -d "$root/lib" ] || ln -sfn lib "$root/lib64"
  done
  for library in "$folder"/nvidia/*/lib/lib{cudart,cublas,cublasLt,cudnn,nccl,nvrtc}.so.[0-9]*; do
    [ ! -e "$library" ] || ln -sfn "$(basename "$library")" "${library%%.so.*}.so"
  done
}

mapfile -t wheels < <(wanted_wheels)
mapfile -t missing < <(missing_wheels "${wheels[@]}")
if [ ${#missing[@]} = 0 ]; then
  say "cuda_toolkit: all ${#wheels[@]} wheels are there, nothing to do"
  exit
fi
if $dry_run; then
  say "cuda_toolkit: would install ${missing[*]}"
  exit
fi
case $(uname -m) in
  x86_64 | aarch64) ;;
  *) die "there are no CUDA wheels for $(uname -m)" ;;
esac

mkdir -p "$folder"
temporary=$(mktemp -d "$folder/new.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
say "cuda_toolkit: pip install ${missing[*]}"
if fetch "$temporary" "${missing[@]}"; then
  make_links
  say "cuda_toolkit: installed ${#missing[@]} wheels into build/cuda-toolkit"
elif $only_headers; then
  say "cuda_toolkit: pip could not get them; what needs them is left out"
else
  die "pip could not get ${missing[*]}"
fi
