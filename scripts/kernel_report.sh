#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/kernel_report.sh [--write] [FILE.cu...]
#
# Compiles every kernel of the CUDA backend (or of some files) for sm_90 and prints for each its registers, the bytes
# of registers that spill, of stack and of static shared memory, then the seconds that nvcc takes for each file.
# Registers and memory are pinned in kernels/cuda/kernel_report.txt: it exits 1 where a kernel spills, or where one
# differs from what is pinned, and prints the difference. The figures are those of one release of nvcc, which the first
# line of the file names; another one says so and compares nothing.
#
#   --write   put what was found into kernels/cuda/kernel_report.txt
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

write=false
files=()
while [ $# -gt 0 ]; do
  case $1 in
    --write) write=true ;;
    -h | --help) print_help && exit 0 ;;
    -*) usage_error "unknown argument $1" ;;
    *.cu) files+=("$(realpath --relative-to="$repository" "$1")") ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
cd "$repository"
export LC_ALL=C # one order of names, wherever it runs
! $write || [ ${#files[@]} = 0 ] || usage_error "--write takes all files"
pinned=kernels/cuda/kernel_report.txt
nvcc=$(command -v nvcc) || nvcc=/usr/local/cuda/bin/nvcc
[ -x "$nvcc" ] || nvcc=$(find build/cuda-toolkit -name nvcc -type f 2>/dev/null | head -n 1)
[ -x "$nvcc" ] || die "no nvcc on the PATH, in /usr/local/cuda or in build/cuda-toolkit"
release=$("$nvcc" --version | sed -n 's/.*release [0-9.]*, V\([0-9.]*\).*/\1/p')
if [ ${#files[@]} = 0 ]; then mapfile -t files < <(find kernels/cuda -name '*.cu' | sort); fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Lines "FILE KERNEL REGISTERS SPILLED STACK SHARED" from what ptxas says on its standard input. Names lose their
# namespaces and parameters; what is left of a template's arguments tells instances apart.
kernels_of() {
  c++filt | awk -v file="$1" '
    /Compiling entry function/ {
      name = $0
      sub(/^[^\047]*\047/, "", name)
      sub(/\047 for \047.*/, "", name)
      sub(/^void /, "", name)
      gsub(/meshloom::kernels::(cuda::)?|\(anonymous namespace\)::|_GLOBAL__N__[0-9a-zA-Z_]*::/, "", name)
      depth = 0
      short = ""
      for (i = 1; i <= length(name); ++i) {
        c = substr(name, i, 1)
        if (c == "<") ++depth
        if (c == ">") --depth
        if (c == "(" && depth == 0) break
        short = short c
      }
      gsub(/ /, "", short)
    }
    /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
      shared = 0
      for (i = 2; i <= NF; ++i) if ($i ~ /^smem/) shared = $(i - 2)
      for (i = 1; i <= NF; ++i) if ($i == "Used") registers = $(i + 1)
      printf "%s %s registers %d spilled %d stack %d shared %d\n", file, short, registers, spilled, stack, shared
    }' | sort
}

found=$scratch/found
: >"$scratch/seconds"
for file in "${files[@]}"; do
  TIMEFORMAT='%U %S'
  { time "$nvcc" -std=c++20 --expt-relaxed-constexpr -Xcompiler=-ffp-contract=off -arch=sm_90 -O3 -I. -Xptxas -v \
    -c "$file" -o "$scratch/object.o" >"$scratch/ptxas" 2>&1; } 2>"$scratch/time" || {
    cat "$scratch/ptxas" >&2
    die "nvcc does not compile $file"
  }
  awk -v file="$file" '{ printf "%s %.1f\n", file, $1 + $2 }' "$scratch/time" >>"$scratch/seconds"
  kernels_of "${file#kernels/cuda/}" <"$scratch/ptxas" >>"$found"
done

cat "$found"
awk '{ printf "nvcc %5.1f s %s\n", $2, $1; all += $2 } END { printf "nvcc %5.1f s in all\n", all }' "$scratch/seconds"
bad=0
if awk '$6 > 0 { print "spills: " $0; bad = 1 } END { exit !bad }' "$found"; then bad=1; fi
if $write; then
  { say "nvcc $release sm_90" && cat "$found"; } >"$pinned"
elif [ "$(head -n 1 "$pinned")" != "nvcc $release sm_90" ]; then
  say "kernel_report: nvcc is $release, $pinned of $(head -n 1 "$pinned"): not compared"
else
  for file in "${files[@]}"; do
    awk -v file="${file#kernels/cuda/}" '$1 == file' "$pinned" >"$scratch/old"
    awk -v file="${file#kernels/cuda/}" '$1 == file' "$found" >"$scratch/new"
    diff -u --label "pinned ${file}" --label "found ${file}" "$scratch/old" "$scratch/new" || bad=1
  done
fi
exit "$bad"
