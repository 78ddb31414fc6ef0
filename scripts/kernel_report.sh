#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/kernel_report.sh [--write] [--architectures LIST] [--build-dir DIR] [FILE.cu...]
#
# Compiles the kernels of the CUDA backend (all, or those of some files) as the plugin is compiled, and prints a line for each
# kernel of sm_90: registers, bytes of registers that spill, of stack and of static shared memory; then of its largest launch
# in the tests on the emulated device threads of a block, dynamic shared memory, and the share of a multiprocessor's warps that
# fit beside each other; then, where memory bounds it, bytes moved over the fewest possible. Other architectures get a line
# each. At last come the CPU seconds of nvcc by file.
#
# Exits 1 where a file does not compile or is warned of, a kernel spills or moves more than 1.05 times what it must, or where
# lines differ from kernels/cuda/kernel_report.txt, and prints the difference. Registers are those of one release of nvcc,
# which the first line of that file names; of another release nothing is compared. Of some files no launches are shown.
#
#   --write                put what was found into kernels/cuda/kernel_report.txt
#   --architectures LIST   compute capabilities with commas (default: 90); 80,90,100 take about three times as long
#   --build-dir DIR        where unit_kernels_shared and unit_cuda_calls were built (default: build/release)
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

write=false architectures=90 build=$repository/build/release files=()
while [ $# -gt 0 ]; do
  case $1 in
    --write) write=true ;;
    --architectures) architectures=${2:?"--architectures needs a list"} && shift ;;
    --build-dir) build=$(realpath -m "${2:?"--build-dir needs a folder"}") && shift ;;
    -h | --help) print_help && exit 0 ;;
    -*) usage_error "unknown argument $1" ;;
    *.cu) files+=("$(realpath --relative-to="$repository" "$1")") ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
[[ $architectures =~ ^[0-9]+[af]?(,[0-9]+[af]?)*$ ]] ||
  usage_error "--architectures is \"$architectures\", expected numbers with commas, as 80,90,100"
cd "$repository"
export LC_ALL=C # one order of names, wherever it runs
pinned=kernels/cuda/kernel_report.txt
has_sm_90=false all_files=false
case ,$architectures, in *,90,*) has_sm_90=true ;; esac
if [ ${#files[@]} = 0 ]; then
  all_files=true
  mapfile -t files < <(find kernels/cuda -name '*.cu' | sort)
fi
if $write && ! { $all_files && $has_sm_90; }; then usage_error "--write takes all files, for 90"; fi

nvcc=$(find build/cuda-toolkit/nvidia/cu*/bin -name nvcc -print -quit 2>/dev/null) || true
[ -n "$nvcc" ] || nvcc=$(command -v nvcc) || nvcc=/usr/local/cuda/bin/nvcc
[ -x "$nvcc" ] || die "there is no nvcc: scripts/setup.sh --cuda gets it"
release=$("$nvcc" --version | sed -n 's/.*release [0-9.]*, V\([0-9.]*\).*/\1/p')
options=(-std=c++20 -O3 -DNDEBUG --expt-relaxed-constexpr -lineinfo "-Xcompiler=-Wall,-ffp-contract=off" -Xptxas=-v -I.)
for architecture in ${architectures//,/ }; do
  options+=("-gencode=arch=compute_$architecture,code=sm_$architecture")
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bad=0

# Kernels' names lose their namespaces, return types and parameters; a template's arguments tell instances apart.
short_names='
  function short_name(name,   i, c, depth, short) {
    sub(/^void /, "", name)
    gsub(/meshloom::kernels::(cuda::)?|\(anonymous namespace\)::|_GLOBAL__N__[0-9a-zA-Z_]*::/, "", name)
    for (i = 1; i <= length(name); ++i) {
      c = substr(name, i, 1)
      if (c == "<") ++depth
      if (c == ">") --depth
      if (c == "(" && depth == 0) break
      short = short c
    }
    gsub(/ /, "", short)
    return short
  }'

# Lines "ARCHITECTURE FILE KERNEL REGISTERS SPILLED STACK SHARED" from what ptxas says on its standard input.
kernels_of() {
  c++filt | awk -v file="$1" "$short_names"'
    /Compiling entry function/ {
      name = architecture = $0
      sub(/^[^\047]*\047/, "", name)
      sub(/\047 for \047.*/, "", name)
      sub(/.*\047 for \047/, "", architecture)
      sub(/\047.*/, "", architecture)
    }
    /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
      shared = 0
      for (i = 2; i <= NF; ++i) if ($i ~ /^smem/) shared = $(i - 2)
      for (i = 1; i <= NF; ++i) if ($i == "Used") registers = $(i + 1)
      printf "%s %s %s %d %d %d %d\n", architecture, file, short_name(name), registers, spilled, stack, shared
    }'
}

compile_all() {
  local file TIMEFORMAT='%U %S'
  for file in "${files[@]}"; do
    { time "$nvcc" "${options[@]}" -c "$file" -o "$scratch/object.o" >"$scratch/said" 2>&1; } 2>"$scratch/time" || {
      cat "$scratch/said" >&2
      die "nvcc does not compile $file"
    }
    awk -v file="$file" '{ printf "%s %.1f\n", file, $1 + $2 }' "$scratch/time" >>"$scratch/seconds"
    kernels_of "${file#kernels/cuda/}" <"$scratch/said" >>"$scratch/compiled"
    if grep -B 1 -A 3 -i 'warning' "$scratch/said" >"$scratch/warnings"; then
      say "kernel_report: warnings of $file:"
      cat "$scratch/warnings"
      bad=1
    fi
  done
}

# Lines "KERNEL THREADS DYNAMIC MOVED LEAST" of what a program launched on the emulated device.
launches_of() {
  [ -x "$build/bin/$1" ] || die "$build/bin/$1 is missing: ninja -C $build $1"
  "$build/bin/$1" --device cuda-emulated --launches "$scratch/launches" >"$scratch/said" 2>&1 || {
    cat "$scratch/said" >&2
    die "$1 fails on the emulated device"
  }
  awk "$short_names"'{
    name = $0
    sub(/^([0-9]+ )([0-9]+ )([0-9]+ )([0-9]+ )([0-9]+ )/, "", name)
    print short_name(name), $2, $3, $4, $5
  }' "$scratch/launches"
}

# Joins kernels of sm_90 with their launches: occupancy by the limits of a multiprocessor of sm_90, which has 65,536 registers in
# four parts (given in 256 to a warp), 228 KiB of shared memory (1 KiB of it for each block), 64 warps and 32 blocks.
join_launches() {
  awk '
    function least(a, b) { return a < b ? a : b }
    function occupancy(registers, shared, threads,   warps, blocks, share) {
      warps = int((threads + 31) / 32)
      blocks = int(int(16384 / (int((registers * 32 + 255) / 256) * 256)) * 4 / warps)
      share = int((shared + 1024 + 127) / 128) * 128
      return least(least(blocks, int(233472 / share)), least(32, int(64 / warps))) * warps / 64
    }
    FILENAME == ARGV[1] { threads[$1] = $2; dynamic[$1] = $3; next }
    FILENAME == ARGV[2] {
      if (!($1 in threads)) { threads[$1] = $2; dynamic[$1] = $3 }
      if ($5 >= 262144) moved[$1] = $4 / $5
      next
    }
    $1 == "sm_90" {
      line = sprintf("%s %s registers %d spilled %d stack %d shared %d", $2, $3, $4, $5, $6, $7)
      if ($3 in threads)
        line = line sprintf(" threads %d dynamic %d occupancy %d%%", threads[$3], dynamic[$3],
          100 * occupancy($4, $7 + dynamic[$3], threads[$3]))
      if ($3 in moved) line = line sprintf(" moved %.2f", moved[$3])
      print line
    }' "$scratch/shared" "$scratch/traffic" "$scratch/compiled" | sort >"$scratch/found"
}

compile_all
: >"$scratch/shared"
: >"$scratch/traffic"
if $all_files && $has_sm_90; then
  launches_of unit_kernels_shared >"$scratch/shared"
  launches_of unit_cuda_calls >"$scratch/traffic"
fi
join_launches
cat "$scratch/found"
awk '$1 != "sm_90" { ++kernels[$1]; if ($4 > registers[$1]) registers[$1] = $4 }
  END { for (a in kernels) printf "%s: %d kernels, %d registers at most\n", a, kernels[a], registers[a] }' "$scratch/compiled"
awk '{ printf "nvcc %5.1f s %s\n", $2, $1; all += $2 } END { printf "nvcc %5.1f s in all\n", all }' "$scratch/seconds"

if awk '$5 > 0 { print "spills: " $0; bad = 1 } END { exit !bad }' "$scratch/compiled"; then bad=1; fi
if awk '$(NF - 1) == "moved" && $NF > 1.05 { print "moves too much: " $0; bad = 1 } END { exit !bad }' "$scratch/found"; then
  bad=1
fi
if $write; then
  { say "nvcc $release sm_90" && cat "$scratch/found"; } >"$pinned"
elif $has_sm_90 && [ "$(head -n 1 "$pinned")" != "nvcc $release sm_90" ]; then
  say "kernel_report: nvcc is $release, $pinned of $(head -n 1 "$pinned"): not compared"
elif $has_sm_90; then
  for file in "${files[@]}"; do awk -v file="${file#kernels/cuda/}" '$1 == file' "$pinned"; done | sort >"$scratch/old"
  if ! $all_files; then
    for list in old found; do
      cut -d ' ' -f 1-10 "$scratch/$list" >"$scratch/cut"
      mv "$scratch/cut" "$scratch/$list"
    done
  fi
  diff -u --label pinned --label found "$scratch/old" "$scratch/found" || bad=1
fi
exit "$bad"
