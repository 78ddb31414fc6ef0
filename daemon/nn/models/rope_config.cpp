// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/rope_config.h"

#include "daemon/nn/models/config_keys.h"
#include "kernels/base/error.h"
#include "planner/limits.h"

namespace meshloom::nn {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

struct RopeSettings {
  double theta = 10000.0;
  std::optional<RopeScaling> scaling;

  bool operator==(const RopeSettings&) const = default;
};

/// A number that is given, above 0.
double needed(const JsonReader& rope, const char* key) {
  if (!rope.has(key)) rope.fail(key, "is missing");
  const double value = rope.number(key, 0.0);
  if (!(value > 0.0)) rope.fail(key, fmt::format("is {}, but a number above 0 is expected", value));
  return value;
}

/// 0 counts as not given, as in transformers.
std::optional<double> unless_zero(const JsonReader& rope, const char* key) {
  const double value = rope.number(key, 0.0);
  if (value < 0.0) rope.fail(key, fmt::format("is {}, which is negative", value));
  return value == 0.0 ? std::nullopt : std::optional(value);
}

/// The length that the model was trained on: one beside the object counts first.
std::int64_t original_length(const JsonReader& json, const JsonReader& rope, ModelConfig& config) {
  const std::int64_t inner =
      rope.size_or_null(kOriginal, config.max_position_embeddings, planner::kMostPositions);
  const std::int64_t outer = json.size_or_null(kOriginal, inner, planner::kMostPositions);
  if (rope.has(kOriginal) && outer != inner)
    config.notes.push_back(fmt::format("config.json: {} {} counts, not {}{} {}", kOriginal, outer,
                                       rope.prefix(), kOriginal, inner));
  return outer;
}

void parse_llama3(const JsonReader& rope, RopeScaling& scaling) {
  scaling.low_freq_factor = needed(rope, "low_freq_factor");
  scaling.high_freq_factor = needed(rope, "high_freq_factor");
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    rope.fail("high_freq_factor", "is not greater than low_freq_factor");
}

void parse_yarn(const JsonReader& rope, double theta, RopeScaling& scaling) {
  if (theta == 1.0) rope.fail("rope_theta", "is 1, of which yarn has no logarithm to divide by");
  if (rope.has("attention_factor")) scaling.attention_factor = needed(rope, "attention_factor");
  scaling.mscale = unless_zero(rope, "mscale");
  scaling.mscale_all_dim = unless_zero(rope, "mscale_all_dim");
  scaling.beta_fast = unless_zero(rope, "beta_fast").value_or(scaling.beta_fast);
  scaling.beta_slow = unless_zero(rope, "beta_slow").value_or(scaling.beta_slow);
  // null is not the default here.
  scaling.truncate = rope.boolean("truncate", !rope.written("truncate"));
  rope.boolean("finetuned", false);  // of older files, and no part of the formula
}

std::optional<RopeType> parse_type(const JsonReader& rope) {
  const bool older = rope.has("type") && !rope.has("rope_type");
  const char* key = older ? "type" : "rope_type";
  const std::string type = rope.string(key, "default");
  if (type == "default") return std::nullopt;
  if (type == "linear") return RopeType::kLinear;
  if (type == "dynamic") return RopeType::kDynamic;
  if (type == "yarn") return RopeType::kYarn;
  if (type == "llama3") return RopeType::kLlama3;
  rope.refuse(
      key, fmt::format("is '{}'; default, linear, dynamic, yarn and llama3 are supported", type));
}

RopeScaling parse_scaling(const JsonReader& json, const JsonReader& rope, RopeType type,
                          double theta, ModelConfig& config) {
  RopeScaling scaling{.type = type};
  if (type == RopeType::kYarn || type == RopeType::kLlama3)
    scaling.original_max_position_embeddings = original_length(json, rope, config);
  const bool by_lengths = type == RopeType::kYarn && rope.written("factor") && !rope.has("factor");
  scaling.factor = by_lengths ? static_cast<double>(config.max_position_embeddings) /
                                    static_cast<double>(scaling.original_max_position_embeddings)
                              : needed(rope, "factor");
  if (scaling.factor < 1.0)
    config.notes.push_back(
        fmt::format("config.json: {}factor is {}: less than 1 makes the context shorter",
                    rope.prefix(), scaling.factor));
  if (type == RopeType::kLlama3) parse_llama3(rope, scaling);
  if (type == RopeType::kYarn) parse_yarn(rope, theta, scaling);
  if (type == RopeType::kDynamic && config.head_dim == 2)
    json.fail("head_dim", "is 2, where RoPE of type dynamic needs more than one pair");
  return scaling;
}

RopeSettings parse_rope_object(const JsonReader& json, const char* key, double theta,
                               ModelConfig& config) {
  const nlohmann::json& object = json.at(key);
  if (!object.is_object()) json.fail(key, "is not an object");
  const JsonReader rope(object, std::string(key) + ".");
  for (const char* layers : {"full_attention", "sliding_attention"})
    if (rope.has(layers))
      rope.refuse(layers, "is there; settings of their own for layers are not supported");
  RopeSettings settings{.theta = rope.number("rope_theta", theta), .scaling = {}};
  if (!(settings.theta > 0.0)) rope.fail("rope_theta", "is not positive");
  rope.expect("partial_rotary_factor", 1.0);
  if (const std::optional<RopeType> type = parse_type(rope))
    settings.scaling = parse_scaling(json, rope, *type, settings.theta, config);
  add_unread_keys(rope, config);
  return settings;
}

nlohmann::ordered_json scaling_json(const RopeScaling& s) {
  nlohmann::ordered_json json = {{"factor", s.factor}};
  const auto put = [&](const char* key, const std::optional<double>& value) {
    if (value) json[key] = *value;
  };
  switch (s.type) {
    case RopeType::kLinear: json["rope_type"] = "linear"; return json;
    case RopeType::kDynamic: json["rope_type"] = "dynamic"; return json;
    case RopeType::kLlama3:
      json["high_freq_factor"] = s.high_freq_factor;
      json["low_freq_factor"] = s.low_freq_factor;
      json[kOriginal] = s.original_max_position_embeddings;
      json["rope_type"] = "llama3";
      return json;
    case RopeType::kYarn: break;
  }
  put("attention_factor", s.attention_factor);
  json["beta_fast"] = s.beta_fast;
  json["beta_slow"] = s.beta_slow;
  put("mscale", s.mscale);
  put("mscale_all_dim", s.mscale_all_dim);
  json[kOriginal] = s.original_max_position_embeddings;
  json["rope_type"] = "yarn";
  json["truncate"] = s.truncate;
  return json;
}

}  // namespace

void parse_rope(const JsonReader& json, ModelConfig& config) {
  json.expect("partial_rotary_factor", 1.0);
  const double theta = json.number("rope_theta", 10000.0);
  if (!(theta > 0.0)) json.fail("rope_theta", "is not positive");
  json.size_or_null(kOriginal, 1, planner::kMostPositions);
  RopeSettings settings{.theta = theta, .scaling = {}};
  const bool older =
      json.has("rope_scaling") && json.at("rope_scaling") != nlohmann::json::object();
  if (older) settings = parse_rope_object(json, "rope_scaling", theta, config);
  if (json.has("rope_parameters")) {
    const RopeSettings newer = parse_rope_object(json, "rope_parameters", theta, config);
    if (older && newer != settings)
      json.fail("rope_scaling", "and rope_parameters say different things");
    settings = newer;
  }
  config.rope_theta = settings.theta;
  config.rope_scaling = settings.scaling;
}

void write_rope(const ModelConfig& config, nlohmann::ordered_json& json) {
  nlohmann::ordered_json scaling = nullptr;
  nlohmann::ordered_json parameters = {{"rope_theta", config.rope_theta}, {"rope_type", "default"}};
  if (config.rope_scaling) {
    scaling = scaling_json(*config.rope_scaling);
    parameters = scaling;
    parameters["rope_theta"] = config.rope_theta;
  }
  json["rope_parameters"] = parameters;
  json["rope_scaling"] = scaling;
  json["rope_theta"] = config.rope_theta;
}

}  // namespace meshloom::nn
