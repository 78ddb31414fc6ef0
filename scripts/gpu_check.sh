#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/gpu_check.sh --part right|fast|attention [--device cuda|cuda-emulated] [--bundle FILE] [--build-dir DIR] [--out DIR]
#
# Tries the CUDA backend on a GPU of this machine, with what scripts/gpu_bundle.sh has packed elsewhere and with the
# libraries of NVIDIA that lie beside PyTorch. Each check has a limit of its own, and where one fails the rest goes on.
# Logs are at most 8 files; the table of all checks stands at the end, and in table.txt. Exits 1 where one failed.
#
#   --part right    whether it is right, in 4 minutes at most: kernels, golden cases, three steps of GPT-2 twice and on the
#                   CPU, compute-sanitizer
#   --part fast     how fast it is, in 6 minutes at most: GPT-2 124M and Llama 1B in bfloat16, products and attention over
#                   their ceilings, PyTorch's GPT-2 eager and compiled
#   --part attention  attention and generation, in 4 minutes at most: golden cases of all masks and models, cuDNN beside the own
#                   kernels by length, tokens of generation beside reading the weights once, a step by kernel beside its bounds
#   --device NAME   cuda (default), or cuda-emulated: the emulated device of the tests, at sizes that it can do
#   --bundle FILE   default: build/gpu-bundle.tar.xz, where it is there
#   --build-dir DIR   run what was built there instead (default for cuda-emulated: build/release)
#   --out DIR       where logs go (default: $OUT, else build/gpu-check)
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

part="" device=cuda bundle="" build="" out=${OUT:-$repository/build/gpu-check}
while [ $# -gt 0 ]; do
  case $1 in
    --part) part=${2:?"--part needs right, fast or attention"} && shift ;;
    --device) device=${2:?"--device needs a name"} && shift ;;
    --bundle) bundle=$(realpath -m "${2:?"--bundle needs a file"}") && shift ;;
    --build-dir) build=$(realpath -m "${2:?"--build-dir needs a folder"}") && shift ;;
    --out) out=$(realpath -m "${2:?"--out needs a folder"}") && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
case $part in
  right) budget=240 ;;
  fast) budget=360 ;;
  attention) budget=240 ;;
  *) usage_error "--part is \"$part\", expected right, fast or attention" ;;
esac
case $device in
  cuda | cuda-emulated) ;;
  *) usage_error "--device is \"$device\", expected cuda or cuda-emulated" ;;
esac

mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$repository"

# --- What is run

unpack_bundle() {
  # Where there is no xz, Python has one.
  tar -C "$work" -xJf "$bundle" 2>/dev/null ||
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle" "$work"
  build=$work/gpu-bundle
  export LD_LIBRARY_PATH=$build/libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# NVIDIA's libraries of the wheels beside PyTorch, without importing it.
torch_libraries() {
  python3 -c 'import glob, importlib.util, os
spec = importlib.util.find_spec("torch")
site = os.path.dirname(spec.submodule_search_locations[0]) if spec else ""
print(":".join(sorted(glob.glob(site + "/nvidia/*/lib"))) if site else "")' 2>/dev/null || true
}

if [ -z "$build" ]; then
  if [ -z "$bundle" ] && [ "$device" = cuda ]; then bundle=$repository/build/gpu-bundle.tar.xz; fi
  if [ -n "$bundle" ]; then
    [ -f "$bundle" ] || die "$bundle is missing: scripts/gpu_bundle.sh makes it"
    unpack_bundle
  else
    build=$repository/build/release
  fi
fi
for program in meshloom-conformance meshloom-bench; do
  [ -x "$build/bin/$program" ] || die "$build/bin/$program is missing"
done
found=$(torch_libraries)
[ -z "$found" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found
bench=$build/bin/meshloom-bench conformance=$build/bin/meshloom-conformance
golden=$repository/tests/golden

# --- How it is run

table=$out/table.txt
: >"$table"
failures=0
row() { printf '%-32s %-9s %4s s  %s\n' "$@" | tee -a "$table"; }

# What the table says of a check, from its output: its last line, what steps of training gave, or a tool's summary.
remark() {
  case $remark in
    steps | speed | generation) grep -q '^{' "$output" || { tail -n 1 "$output" && return; } ;;
  esac
  case $remark in
    steps) printf 'loss %s, grad_norm %s\n' "$(number last_loss)" "$(number last_grad_norm)" ;;
    speed)
      printf '%s tokens/s, %s TFLOP/s (%s of a product), %s MB, %s late allocations\n' "$(number tokens_per_second)" \
        "$(scaled model_flops_per_second 1e12)" "$(scaled model_flops_per_second "$product")" \
        "$(scaled allocator_peak_bytes 1e6)" "$(number system_allocations_after_first_step)"
      ;;
    generation)
      printf '%s tokens/s drawn, %s decoded, reading the weights once is %s of a token\n' "$(number drawn_tokens_per_second)" \
        "$(number decode_tokens_per_second)" "$(number weights_read_once_over_decode)"
      ;;
    # The kernel that takes the longest; the log has them all.
    profile) awk '/ of bound / { getline; print $2 " of a step, " $4 " of its bound: " $6, $7, $8, $9, $10, $11, $12, $13; exit }' "$output" ;;
    summary) grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$output" || tail -n 1 "$output" ;;
    *) tail -n 1 "$output" ;;
  esac
}
remark=last

# check NAME LIMIT LOG COMMAND...: the output goes behind what LOG.log holds already; `output` is that of this check.
check() {
  local name=$1 limit=$2 log=$out/$3.log begun=$SECONDS status=0 result=passed
  shift 3
  output=$work/output
  if [ $((budget - SECONDS)) -lt 3 ]; then
    row "$name" "no time" 0 ""
    failures=$((failures + 1))
    return 1
  fi
  [ "$limit" -le $((budget - SECONDS)) ] || limit=$((budget - SECONDS))
  printf '== %s: %s\n' "$name" "$*" >>"$log"
  timeout -k 5 "$limit" "$@" >"$output" 2>&1 </dev/null || status=$?
  cat "$output" >>"$log"
  case $status in
    0) ;;
    77) result=skipped ;;
    124 | 137) result="limit $limit" failures=$((failures + 1)) ;;
    *) result="FAILED $status" failures=$((failures + 1)) ;;
  esac
  row "$name" "$result" $((SECONDS - begun)) "$(remark | head -n 1 | cut -c 1-150)"
  [ "$status" = 0 ]
}
# number NAME: of a line of JSON in the output.
number() { sed -n "s/.*\"$1\":\\([-0-9.e+]*\\).*/\\1/p" "$output" | tail -n 1; }

# scaled NAME UNIT: the same over a unit.
scaled() { awk -v x="$(number "$1")" -v unit="$2" 'BEGIN { printf "%.3g", x / unit }'; }
product=1e12  # operations a second of a large product, once that is measured

# --- The checks

show_device() {
  if [ "$device" = cuda ]; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap,clocks.max.sm --format=csv,noheader || return
    printf 'libraries: %s\n' "${found:-none beside PyTorch}"
    local plugin missing
    plugin=$(find "$build" -name libmeshloom_cuda.so -print -quit)
    [ -n "$plugin" ] || { printf 'there is no libmeshloom_cuda.so in %s\n' "$build"; return 1; }
    ldd "$plugin"
    missing=$(ldd "$plugin" | awk '/not found/ { print $1 }' | tr '\n' ' ')
    [ -z "$missing" ] || { printf 'not found: %s\n' "$missing"; return 1; }
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  else
    printf 'the emulated device, on %s cores\n' "$(usable_cores)"
  fi
}
export -f show_device usable_cores say
export device found build

run_golden() {
  local kind cases
  for kind in "$@"; do
    cases=("$golden/$kind")
    # All models would take minutes on the emulated device.
    if [ "$kind" = model ] && [ "$device" != cuda ]; then
      cases=(--filter '*#dp1' "$golden"/model/{gpt2,llama,bert,gemma3}.json)
    fi
    check "golden $kind" "$golden_limit" golden "$conformance" --device "$device" \
      --may-refuse "is not built yet on cuda" "${cases[@]}" || true
  done
}

# train_steps WHERE NAME LIMIT: three steps in float32; the JSON line stays in the folder of this run as NAME.json.
train_steps() {
  local sizes=(--model gpt2_124m --seq 256 --batch 2)
  [ "$device" = cuda ] || sizes=(--model byte_gpt_tiny --seq 32 --batch 2)
  check "3 steps on $1, $2" "$3" train "$bench" train --device "$1" "${sizes[@]}" --dtype float32 --dropout 0 \
    --steps 2 --warmup 1 || return 1
  grep '^{' "$output" | tail -n 1 >"$work/$2.json"
}

run_steps() {
  remark=steps
  local made=true
  train_steps "$device" first 30 || made=false
  train_steps "$device" second 30 || made=false
  train_steps cpu cpu 40 || made=false
  remark=last
  if $made; then
    check "bit for bit, twice" 5 train scripts/gpu/compare_steps.py "$work/first.json" "$work/second.json" || true
    check "beside the CPU" 5 train scripts/gpu/compare_steps.py --tolerance 1e-4 "$work/first.json" "$work/cpu.json" || true
  fi
}

run_sanitizers() {
  local sanitizer tool
  sanitizer=$(command -v compute-sanitizer || find /usr/local/cuda/ /opt/nvidia -name compute-sanitizer -type f -perm -u+x \
    -print -quit 2>/dev/null) || true
  for tool in memcheck racecheck initcheck synccheck; do
    if [ "$device" != cuda ] || [ -z "$sanitizer" ]; then
      row "compute-sanitizer $tool" skipped 0 "$([ "$device" = cuda ] && echo "not installed" || echo "the emulated device looks at each access itself")"
      continue
    fi
    remark=summary
    check "compute-sanitizer $tool" 25 sanitizer "$sanitizer" --tool "$tool" --error-exitcode 9 "$conformance" \
      --device cuda --may-refuse "is not built yet on cuda" --filter '*gpt2*' "$golden/model" || true
  done
}

run_right() {
  check "device" 15 device bash -c show_device || true
  check "ceilings" 30 ceilings "$bench" device --device "$device" --only ceilings "${bench_sizes[@]}" || true
  if [ -x "$build/bin/unit_kernels_shared" ]; then
    check "kernels" "$kernels_limit" kernels "$build/bin/unit_kernels_shared" --device "$device" || true
  else
    row "kernels" skipped 0 "unit_kernels_shared is not in the bundle"
  fi
  run_golden op sdpa model
  run_steps
  run_sanitizers
}

# train_speed NAME LIMIT ARGUMENT...
train_speed() {
  local name=$1 limit=$2
  shift 2
  check "$name" "$limit" train "$bench" train --device "$device" --dropout 0 --dtype bfloat16 "$@" || true
}

run_fast() {
  check "device" 15 device bash -c show_device || true
  check "ceilings and shapes" 70 shapes "$bench" device --device "$device" "${bench_sizes[@]}" || true
  product=$(sed -n 's/.*matmul \([0-9.]*\) TFLOP.*/\1e12/p' "$out/shapes.log" | tail -n 1)
  awk -v rate="${product:-0}" 'BEGIN { exit !(rate > 0) }' || product=1e12
  remark=speed
  if [ "$device" = cuda ]; then
    train_speed "gpt2_124m, 16" 50 --model gpt2_124m --seq 1024 --batch 16 --steps 30 --warmup 5
    train_speed "gpt2_124m, 32" 50 --model gpt2_124m --seq 1024 --batch 32 --steps 20 --warmup 5
    train_speed "llama3_1b, 4 of 2048" 70 --model llama3_1b --seq 2048 --batch 4 --steps 10 --warmup 3
  else
    train_speed "byte_gpt_tiny" 120 --model byte_gpt_tiny --seq 32 --batch 2 --steps 2 --warmup 1
    train_speed "llama_tiny" 120 --model llama_tiny --seq 32 --batch 2 --steps 2 --warmup 1
  fi
  remark=last
  local mode batch
  for mode in eager compiled; do
    for batch in 16 32; do
      check "PyTorch $mode, $batch" 60 torch python3 scripts/gpu/torch_gpt2.py --mode "$mode" --micro-batch "$batch" || true
    done
  done
}

run_attention() {
  check "device" 15 device bash -c show_device || true
  run_golden sdpa model
  check "who computes what" 5 shapes "$bench" attention --plans || true
  check "cuDNN and own kernels" 60 shapes "$bench" device --device "$device" --only attention "${bench_sizes[@]}" || true
  local sequences model=gpt2_124m prompt=512 tokens=32 sizes=(--seq 1024 --batch 16 --steps 5 --warmup 2)
  [ "$device" = cuda ] || { model=byte_gpt_tiny prompt=8 tokens=2 sizes=(--seq 32 --batch 2 --steps 1 --warmup 1); }
  remark=generation
  for sequences in 1 8 64; do
    check "generation, $sequences" 20 generate "$bench" generate --device "$device" --model "$model" --dtype bfloat16 \
      --batch "$sequences" --prompt "$prompt" --tokens "$tokens" --rounds 1 || true
  done
  remark=profile
  check "a step by kernel" 40 profile "$bench" train --device "$device" --model "$model" --dtype bfloat16 --dropout 0 \
    --profile "${sizes[@]}" || true
  remark=last
  check "choices of products" 30 shapes "$bench" tune --device "$device" "${bench_sizes[@]}" || true
}

# The emulated device takes up to 20 s of CPU time for the kernels' tests.
bench_sizes=() kernels_limit=60 golden_limit=45
[ "$device" = cuda ] || bench_sizes=(--tiny) kernels_limit=90 golden_limit=120
# Each part's logs are its own.
rm -f "$out"/{device,ceilings,kernels,golden,train,sanitizer,shapes,torch,generate,profile}.log
"run_$part"

say "gpu_check: part $part on $device, $SECONDS s; logs in $out"
cat "$table"
if [ "$failures" -gt 0 ]; then
  say "gpu_check: FAILED, $failures checks"
  exit 1
fi
say "gpu_check: PASSED"
