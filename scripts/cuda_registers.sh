#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/cuda_registers.sh [--architectures LIST] [FILE.cu...]
#
# Compiles .cu files (default: all of kernels/cuda) as the CUDA backend does, for each architecture, and prints a line for
# each file and architecture: kernels, the most registers, stack, spilled bytes and static shared memory of one, and what the
# compilers warned of. Exits 1 where a file does not compile, spills or is warned of. All files for the three architectures
# take about six minutes of CPU time.
#
#   --architectures LIST   compute capabilities with commas (default: 80,90,100)
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

architectures=80,90,100 files=()
while [ $# -gt 0 ]; do
  case $1 in
    --architectures) architectures=${2:?"--architectures needs a list"} && shift ;;
    -h | --help) print_help && exit 0 ;;
    -*) usage_error "unknown argument $1" ;;
    *) files+=("$(realpath "$1")") ;;
  esac
  shift
done
[[ $architectures =~ ^[0-9]+[af]?(,[0-9]+[af]?)*$ ]] ||
  usage_error "--architectures is \"$architectures\", expected numbers with commas, as 80,90,100"

nvcc=$(find "$repository"/build/cuda-toolkit/nvidia/cu*/bin -name nvcc -print -quit 2>/dev/null) || true
[ -n "$nvcc" ] || nvcc=$(command -v nvcc) || nvcc=/usr/local/cuda/bin/nvcc
[ -x "$nvcc" ] || die "there is no nvcc: scripts/setup.sh --cuda gets it"
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(find "$repository/kernels/cuda" -name '*.cu' | sort)

options=(-std=c++20 -O3 -DNDEBUG --expt-relaxed-constexpr -lineinfo "-Xcompiler=-Wall,-ffp-contract=off" -Xptxas=-v)
for architecture in ${architectures//,/ }; do
  options+=("-gencode=arch=compute_$architecture,code=sm_$architecture")
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Sums up what ptxas says, in lines that follow each other for one kernel.
summarise() {
  awk -v file="$1" '
    function most(what, value) { if (value + 0 > table[what, architecture]) table[what, architecture] = value + 0 }
    /Compiling entry function/ {
      architecture = $0
      sub(/.* for .sm_/, "", architecture)
      sub(/[^0-9a-z].*/, "", architecture)
      if (!(architecture in kernels)) order[++count] = architecture
      ++kernels[architecture]
    }
    /bytes stack frame/ { most("stack", $1); most("spills", $5 + $9) }
    /Used [0-9]+ registers/ {
      for (i = 1; i < NF; ++i) {
        if ($i == "Used") most("registers", $(i + 1))
        if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) most("shared", $i)
      }
    }
    /warning/ { ++warnings }
    END {
      for (i = 1; i <= count; ++i) {
        a = order[i]
        printf "%-32s sm_%-5s %7d %9d %6d %7d %7d %9d\n", file, a, kernels[a], table["registers", a], table["stack", a],
          table["spills", a], table["shared", a], warnings
        bad = bad || table["spills", a] > 0
      }
      exit bad || warnings > 0 || count == 0
    }' "$2"
}

failed=0
printf '%-32s %-8s %7s %9s %6s %7s %7s %9s\n' file for kernels registers stack spilled shared warnings
for file in "${files[@]}"; do
  name=$(realpath --relative-base="$repository/kernels/cuda" "$file")
  if ! "$nvcc" "${options[@]}" -I "$repository" -c "$file" -o "$work/kernels.o" >"$work/said" 2>&1; then
    cat "$work/said"
    say "$name: does not compile"
    failed=$((failed + 1))
    continue
  fi
  summarise "$name" "$work/said" || {
    grep -B 2 -A 3 -E 'warning|[1-9][0-9]* bytes spill' "$work/said" || true
    failed=$((failed + 1))
  }
done
[ "$failed" = 0 ] || die "$failed of ${#files[@]} files do not compile, spill or are warned of"
say "cuda_registers: ${#files[@]} files, none spills, no warnings"
