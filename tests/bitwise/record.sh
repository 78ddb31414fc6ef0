#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tests/bitwise/record.sh [--build-dir DIR] [--before RECORD] [--classes "LIST"] [--only PATTERN] RECORD
#
# Writes into the new folder RECORD what a build computes and says, in files that can be compared: losses with all
# digits, digests of every file of checkpoints and exports, collectives and bytes of a step, conformance results, answers of
# the client. Trains gpt2, llama and bert of uneven sizes on meshes of 1 to 4 ranks, in float32 and bfloat16, on
# every class of CPU that this machine can be. Times, process ids, ports, folders and measured memory are masked.
#
#   tests/bitwise/record.sh --build-dir old/build/release /tmp/old
#   tests/bitwise/record.sh --before /tmp/old /tmp/new && diff -r /tmp/old/outputs /tmp/new/outputs
#
#   --build-dir DIR     the programs in DIR/bin (default build/release)
#   --before RECORD     jobs that are resumed go on from the state folders of this record, written by another build
#   --classes "LIST"    classes of CPU, as MESHLOOM_CPU_CLASS spells them; native: this machine's own (default
#                       "avx2 avx512 native")
#   --only PATTERN      jobs whose name this bash pattern matches, such as "tp2*"; no conformance, no client
set -euo pipefail
shopt -s nullglob
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"

build_dir=$repository/build/release before="" classes="avx2 avx512 native" only="*" record=""
while [ $# -gt 0 ]; do
  case $1 in
    --build-dir) build_dir=$(cd "${2:?"--build-dir needs a folder"}" && pwd) && shift ;;
    --before) before=$(cd "${2:?"--before needs a folder"}" && pwd) && shift ;;
    --classes) classes=${2:?"--classes needs a list"} && shift ;;
    --only) only=${2:?"--only needs a pattern"} && shift ;;
    -h | --help) print_help && exit 0 ;;
    -*) usage_error "unknown argument $1" ;;
    *) [ -z "$record" ] || usage_error "unknown argument $1" && record=$1 ;;
  esac
  shift
done
[ -n "$record" ] || usage_error "name a folder for the record"
[ ! -e "$record" ] || usage_error "$record exists; a record is written into a new folder"
need_programs "$build_dir"
allow_mpi_as_root
mkdir -p "$record/outputs" "$record/data" "$record/states"
record=$(cd "$record" && pwd)

daemon_session=""
clean_up() { [ -z "$daemon_session" ] || end_session "$daemon_session" 0 KILL; }
trap clean_up EXIT

meshloom() { MESHLOOM_ADDRESS=$(cat "$state/address") "$build_dir/bin/meshloom" "$@"; }

# The jobs: ranks, name, model, steps of training, plan (mesh and plan in YAML's flow form, dtype added) and training.
# Widths, heads, vocabulary and batches do not divide by the ranks wherever a plan allows it.
jobs() {
  cat <<'JOBS'
1 one               gpt   5 mesh: {}                    plan: {}                                                      batch: 3
1 accumulate        gpt   4 mesh: {}                    plan: {}                                                      batch: 5 micro: 2
1 recompute         gpt   4 mesh: {}                    plan: {activation_checkpoint: full}                           batch: 3
1 selective         llama 4 mesh: {}                    plan: {activation_checkpoint: selective}                      batch: 3
1 dropout           drop  4 mesh: {}                    plan: {}                                                      batch: 3
1 llama             llama 4 mesh: {}                    plan: {}                                                      batch: 3
1 bert              bert  4 mesh: {}                    plan: {}                                                      batch: 3
2 dp2               gpt   5 mesh: {dp: 2}               plan: {}                                                      batch: 4
2 dp2_accumulate    drop  4 mesh: {dp: 2}               plan: {}                                                      batch: 7 micro: 2
2 fsdp2             gpt   5 mesh: {fsdp: 2}             plan: {fully_shard: true}                                     batch: 4
2 fsdp2_keep        llama 4 mesh: {fsdp: 2}             plan: {fully_shard: true, fully_shard_options: {reshard_after_forward: false}}  batch: 5 micro: 1
2 fsdp2_recompute   gpt   4 mesh: {fsdp: 2}             plan: {fully_shard: true, activation_checkpoint: full}        batch: 4
2 tp2               gpt   5 mesh: {tp: 2}               plan: {tensor_parallel: true}                                 batch: 3
2 tp2_llama         llama 4 mesh: {tp: 2}               plan: {tensor_parallel: true}                                 batch: 3 micro: 2
2 tp2_sequence      gpt   5 mesh: {tp: 2}               plan: {tensor_parallel: true, sequence_parallel: true}        batch: 3
2 tp2_seq_dropout   drop  4 mesh: {tp: 2}               plan: {tensor_parallel: true, sequence_parallel: true, activation_checkpoint: selective}  batch: 3
2 tp2_bert          bert  4 mesh: {tp: 2}               plan: {tensor_parallel: true}                                 batch: 3
3 tp3               gpt   4 mesh: {tp: 3}               plan: {tensor_parallel: true}                                 batch: 2
3 tp3_sequence      gpt   4 mesh: {tp: 3}               plan: {tensor_parallel: true, sequence_parallel: true}        batch: 2
3 dp3_bert          bert  4 mesh: {dp: 3}               plan: {}                                                      batch: 2
3 fsdp3             llama 4 mesh: {fsdp: 3}             plan: {fully_shard: true}                                     batch: 4
4 dp2_fsdp2         gpt   4 mesh: {dp: 2, fsdp: 2}      plan: {fully_shard: true}                                     batch: 6
4 fsdp2_tp2         gpt   4 mesh: {fsdp: 2, tp: 2}      plan: {tensor_parallel: true, fully_shard: true, sequence_parallel: true}  batch: 3
4 dp2_tp2           llama 4 mesh: {dp: 2, tp: 2}        plan: {tensor_parallel: true}                                 batch: 5
4 dp4_bert          bert  4 mesh: {dp: 4}               plan: {}                                                      batch: 3
JOBS
}

write_data() {
  local data=$record/data dropout
  awk 'BEGIN { srand(7); for (i = 0; i < 30000; ++i) printf "%s%s", substr("abcdefghijklmnop", 1 + int(rand() * 16), 1), i % 7 ? "" : " " }' \
    >"$data/text.txt"
  for dropout in 0.0 0.1; do
    cat >"$data/gpt$dropout.json" <<JSON
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
 "attn_pdrop": $dropout, "embd_pdrop": $dropout, "resid_pdrop": $dropout, "layer_norm_epsilon": 1e-05,
 "initializer_range": 0.02, "n_embd": 60, "n_head": 3, "n_layer": 2, "n_positions": 48, "bos_token_id": null,
 "eos_token_id": null, "pad_token_id": null, "tie_word_embeddings": true, "vocab_size": 259}
JSON
  done
  mv "$data/gpt0.0.json" "$data/gpt.json"
  mv "$data/gpt0.1.json" "$data/drop.json"
  cat >"$data/llama.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "attention_dropout": 0.0,
 "head_dim": 10, "hidden_act": "silu", "hidden_size": 60, "initializer_range": 0.02, "intermediate_size": 101,
 "max_position_embeddings": 64, "mlp_bias": false, "num_attention_heads": 6, "num_hidden_layers": 3,
 "num_key_value_heads": 3, "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
 "bos_token_id": null, "eos_token_id": null, "pad_token_id": null, "tie_word_embeddings": false, "vocab_size": 257}
JSON
  cat >"$data/bert.json" <<'JSON'
{"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 259, "hidden_size": 36,
 "intermediate_size": 50, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 40,
 "type_vocab_size": 2, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
 "layer_norm_eps": 1e-12, "initializer_range": 0.1, "tie_word_embeddings": true}
JSON
}

# write_job FILE MODEL STEPS MESH PLAN DTYPE BATCH MICRO
write_job() {
  local masked=""
  [ "$2" != bert ] || masked=", masked_lm: {mask_token: 256}"
  cat >"$1" <<YAML
run:
  model: {config: $2.json}
  $4
  ${5%\}}${6:+$([ "$5" = "plan: {}" ] || say ", ")dtype: $6}}
  training: {steps: $3, seq_len: 37, global_batch_size: $7, seed: 3${8:+, micro_batch_size: $8}}
  optimizer: {lr: 1.0e-3}
  data: {path: text.txt, tokenizer: bytes$masked}
  validation: {interval: 2, steps: 2}
  checkpoint: {interval: 3, keep_latest_k: 9}
  export: {hf_folder: hf}
YAML
}

# start_daemon RANKS CLASS: on $state.
start_daemon() {
  local environment=()
  [ "$2" = native ] || environment=("MESHLOOM_CPU_CLASS=$2")
  [ "$2" != avx2 ] || environment+=("OPENBLAS_CORETYPE=Haswell")
  rm -f "$state/address"
  setsid env "${environment[@]}" mpirun -n "$1" --bind-to none --oversubscribe "$build_dir/bin/meshloomd" \
    --listen 127.0.0.1:0 --state-dir "$state" --data-dir "$record/data" --threads 2 \
    </dev/null >"$record/daemon.log" 2>&1 &
  daemon_session=$!
  disown
  wait_until 60 daemon_serves "$state" || die "the daemon did not start: $(tail -n 5 "$record/daemon.log")"
}

stop_daemon() {
  meshloom shutdown >/dev/null
  end_session "$daemon_session" 20
  daemon_session=""
}

# What changes from run to run: times, rates and memory, ids and ports of processes, folders.
mask() {
  sed -E -e 's/"(tokens_per_second|memory_bytes|seconds|seconds_[a-z]+|ran_seconds|elapsed|[a-z_]*_time|[a-z_]*_at|pid|uptime_seconds)": ?("[^"]*"|\{[^}]*\}|[0-9.e+-]+)/"\1": */g' \
    -e 's/"(goodput|lost_seconds_[a-z]+|productive|queue|start|tokenize|validation|sample|save|recovery|held|paused|drained|until)": ?[0-9.e+-]+/"\1": */g' \
    -e 's/20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z?/TIME/g' -e 's/127\.0\.0\.1:[0-9]+/ADDRESS/g' \
    -e 's/saved at step ([0-9]+) in .*$/saved at step \1 */' -e "s#$record/[a-z_0-9/-]*#FOLDER#g" -e 's/[0-9.]+ ?ms\b/* ms/g'
}

# keep_job NAME OUTPUT: everything that the job left behind.
keep_job() {
  local folder=$state/jobs/$1 file
  {
    say "losses"
    mask <"$folder/metrics.jsonl"
    say "files"
    (cd "$folder" && find . -type f ! -name metrics.jsonl ! -path './tensorboard/*' | sort | while read -r file; do
      case $file in
        *.json | *.yaml | *.log) say "$file $(mask <"$file" | sha256sum | cut -c1-32)" ;;
        *) say "$file $(sha256sum <"$file" | cut -c1-32)" ;;
      esac
    done)
    say "told"
    meshloom job show "$1" --json | mask
  } >"$2"
}

# wanted_jobs RANKS
wanted_jobs() {
  local ranks name line
  while IFS= read -r line; do
    read -r ranks name _ <<<"$line"
    # shellcheck disable=SC2254
    case $name in $only) ;; *) continue ;; esac
    [ "$ranks" != "$1" ] || say "$line"
  done < <(jobs)
}

# run_jobs RANKS CLASS
run_jobs() {
  local name model steps mesh plan training dtype batch micro line
  while IFS= read -r line; do
    read -r _ name model steps _ <<<"$line"
    mesh=$(grep -o 'mesh: {[^}]*}' <<<"$line")
    plan=$(sed -E 's/.*(plan: \{.*\}) +batch:.*/\1/' <<<"$line")
    training=${line##* batch: }
    batch=${training%% *} micro=""
    case $training in *micro:*) micro=${training##*micro: } ;; esac
    for dtype in float32 bfloat16; do
      write_job "$record/job.yaml" "$model" "$steps" "$mesh" "$plan" "$dtype" "$batch" "$micro"
      meshloom job submit "$record/job.yaml" --name "$name-$dtype" --follow >"$record/follow.log" 2>&1 ||
        die "job $name-$dtype on class $2: $(tail -n 3 "$record/follow.log")"
      keep_job "$name-$dtype" "$record/outputs/$2/$name-$dtype.txt"
    done
  done < <(wanted_jobs "$1")
}

# resume_jobs RANKS CLASS: each job once more, from its first checkpoint.
resume_jobs() {
  local name
  for name in "$state"/jobs/*; do
    name=$(basename "$name")
    case $name in resumed-*) continue ;; esac
    meshloom job resume "$name" --checkpoint step-3 --name "resumed-$name" >/dev/null
    meshloom job watch "resumed-$name" >"$record/follow.log" 2>&1 ||
      die "job resumed-$name on class $2: $(tail -n 3 "$record/follow.log")"
    keep_job "resumed-$name" "$record/outputs/$2/resumed-$name.txt"
  done
}

record_jobs() {
  local class=$1 ranks
  mkdir -p "$record/outputs/$class"
  for ranks in 1 2 3 4; do
    [ -n "$(wanted_jobs "$ranks")" ] || continue
    say "record: jobs of $ranks ranks on class $class"
    state=$record/states/$class-$ranks
    start_daemon "$ranks" "$class"
    run_jobs "$ranks" "$class"
    stop_daemon
    # What is resumed is the other build's where one is named; a copy, since a record is not to change.
    state=$record/state
    cp -a "${before:-$record}/states/$class-$ranks" "$state"
    start_daemon "$ranks" "$class"
    resume_jobs "$ranks" "$class"
    stop_daemon
    rm -rf "$state"
  done
}

# Collectives and bytes of a step, by mesh: what travels does not depend on the class of the CPU.
record_traffic() {
  local mesh flags bench=$build_dir/bin/meshloom-bench
  [ -x "$bench" ] || die "$bench is missing: build it first"
  for mesh in "dp=2" "fsdp=2" "fsdp=2 --no-reshard" "tp=2" "tp=2 --sequence-parallel" "dp=2,fsdp=2" "fsdp=2,tp=2" "tp=3"; do
    read -r mesh flags <<<"$mesh"
    # shellcheck disable=SC2086
    "$bench" train --model byte_gpt_tiny --seq 32 --batch 4 --steps 1 --warmup 1 --dtype float32 --mesh "$mesh" $flags \
      --local-ranks "$(tr ',' '\n' <<<"$mesh" | cut -d= -f2 | paste -sd'*' | bc)" 2>/dev/null |
      grep -oE '"(last_loss|last_grad_norm|sent_by_rank_0_in_a_step)":(\{([^{}]|\{[^{}]*\})*\}|[0-9.e+-]+)' | sed "s/^/$mesh $flags /"
  done >"$record/outputs/traffic.txt"
}

record_client() {
  local client=$build_dir/bin/meshloom command model mesh
  for command in "" status shutdown job "job submit" "job resume" "job list" "job show" "job watch" "job cancel" "job release" \
    "job delete" checkpoint "checkpoint list" "checkpoint download" generate plan "plan show" "plan estimate" "plan search"; do
    # shellcheck disable=SC2086
    "$client" $command --help
  done >"$record/outputs/help.txt"
  for model in gpt2_124m llama3_1b bert_base "$record/data/gpt.json"; do
    for mesh in dp=2 fsdp=2 tp=2 tp=3 dp=2,fsdp=2 fsdp=2,tp=2; do
      say "== $(basename "$model") $mesh"
      "$client" plan show --model "$model" --mesh "$mesh" || say "exit code $?"
      "$client" plan estimate --model "$model" --mesh "$mesh" --json || say "exit code $?"
      "$client" plan estimate --model "$model" --mesh "$mesh" --dtype bfloat16 --activation-checkpoint full || say "exit code $?"
    done
    "$client" plan search --model "$model" --ranks 4 || say "exit code $?"
  done 2>&1 | mask >"$record/outputs/plans.txt"
}

record_conformance() {
  local ranks conformance=$build_dir/bin/meshloom-conformance class=$1
  [ -x "$conformance" ] || die "$conformance is missing: build it first"
  for ranks in 1 2 4; do
    say "record: conformance of $ranks ranks on class $class"
    if [ "$class" = native ]; then unset MESHLOOM_CPU_CLASS; else export MESHLOOM_CPU_CLASS=$class; fi
    "$conformance" --local-ranks "$ranks" --out "$record/conformance" "$repository/tests/golden" >/dev/null 2>&1 || true
    (cd "$record/conformance" && find . -type f | sort | while read -r file; do
      say "$file $(sed '/^ *"seconds":/d' "$file" | sha256sum | cut -c1-32)"
    done) >"$record/outputs/conformance-$class-$ranks.txt"
    rm -rf "$record/conformance"
    unset MESHLOOM_CPU_CLASS
  done
}

write_data
for class in $classes; do
  record_jobs "$class"
  [ "$only" != "*" ] || record_conformance "$class"
done
if [ "$only" = "*" ]; then
  record_traffic
  record_client
fi
rm -f "$record/job.yaml" "$record/follow.log" "$record/daemon.log"
say "record: $(find "$record/outputs" -type f | wc -l) files in $record/outputs"
