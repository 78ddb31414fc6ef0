// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/sdpa_kind.h"

#include <optional>

#include "daemon/tensor/ops/attention.h"
#include "kernels/base/error.h"
#include "tests/conformance/context_parallel_json.h"
#include "tests/conformance/local_run.h"
#include "tests/conformance/sharded_sdpa.h"

namespace meshloom::conformance {
namespace {

constexpr const char* kBias = "bias";
constexpr const char* kDocuments = "in.document_ids";

ops::SdpaOptions read_options(const Case& c) {
  static const Json kNoAttributes = Json::object();
  const Json& attributes = c.keys.contains("attributes") ? c.keys["attributes"] : kNoAttributes;
  ObjectReader reader(attributes, "attributes of sdpa");
  ops::SdpaOptions options;
  options.is_causal = reader.boolean_or("is_causal", false);
  const std::string alignment = reader.string_or("causal_alignment", "top_left");
  check(alignment == "top_left" || alignment == "bottom_right",
        "sdpa: causal_alignment is '{}', expected top_left or bottom_right", alignment);
  options.causal_bottom_right = alignment == "bottom_right";
  if (reader.has("scale")) {
    options.scale = static_cast<float>(reader.number("scale"));
    check(options.scale != 0.0f, "sdpa: scale is 0");
  }
  if (reader.has("window")) {
    const std::vector<std::int64_t> window = reader.integers("window");
    check(window.size() == 2 && window[0] >= -1 && window[1] >= -1,
          "sdpa: window must be [left, right], each -1 or more");
    options.window_left = window[0];
    options.window_right = window[1];
  }
  options.alibi = reader.boolean_or("alibi", false);
  options.enable_gqa = reader.boolean_or("enable_gqa", false);
  options.dropout_p = static_cast<float>(reader.number_or("dropout_p", 0.0));
  options.dropout_random.seed = static_cast<std::uint64_t>(reader.integer_or("dropout_seed", 0));
  options.dropout_random.stream =
      static_cast<std::uint64_t>(reader.integer_or("dropout_stream", 0));
  reader.finish();
  return options;
}

std::vector<std::string> present_inputs(const TensorFile& file) {
  std::vector<std::string> names{"q", "k", "v"};
  if (file.has(std::string("in.") + kBias)) names.push_back(kBias);
  return names;
}

std::optional<ContextParallelCase> read_context_parallel(const Case& c) {
  if (!c.keys.contains("context_parallel")) return std::nullopt;
  ObjectReader reader(c.keys["context_parallel"], "context_parallel");
  ContextParallelCase result;
  result.mesh_dim = reader.string("mesh_dim");
  result.plan = read_context_parallel_plan(reader);
  reader.finish();
  return result;
}

void validate(const Case& c, const TensorFile& file) {
  read_options(c);
  read_context_parallel(c);
  const std::vector<std::string> names = present_inputs(file);
  for (const std::string& name : names)
    check(dtype_is_floating(file.dtype("in." + name)),
          "sdpa: in.{} is {}, expected a floating dtype", name,
          dtype_name(file.dtype("in." + name)));
  if (file.has(kDocuments))
    check(file.dtype(kDocuments) == DType::kInt64, "sdpa: {} is {}, expected int64", kDocuments,
          dtype_name(file.dtype(kDocuments)));
  check_gradients(file, names);
  check(!file.has("grad_out.lse"), "sdpa: lse has no gradient, but grad_out.lse is given");
}

void run_local(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results) {
  ops::SdpaOptions options = read_options(c);
  std::vector<NamedTensor> inputs;
  for (const std::string& name : present_inputs(file))
    inputs.push_back({name, load_input(file, rank.context, name)});
  if (inputs.size() > 3) options.bias = inputs[3].value;
  if (file.has(kDocuments)) options.document_ids = file.load(rank.context, kDocuments);
  const ops::SdpaResult result =
      ops::scaled_dot_product_attention(inputs[0].value, inputs[1].value, inputs[2].value, options);
  finish_local(c, file, rank.context, inputs, {{"o", result.o}, {"lse", result.lse}}, results);
}

void run(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results) {
  const auto context_parallel = read_context_parallel(c);
  if (c.mesh.size() == 1 && !context_parallel)
    run_local(c, file, rank, results);
  else
    run_sharded_sdpa(file, rank, read_options(c), context_parallel, results);
}

}  // namespace

const Kind& sdpa_kind() {
  static const Kind kind{"sdpa", {"attributes", "context_parallel"}, validate, run};
  return kind;
}

}  // namespace meshloom::conformance
