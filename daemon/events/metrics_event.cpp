// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/metrics_event.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/base/timestamp.h"

namespace meshloom::events {
namespace {

using Json = nlohmann::ordered_json;

/// What a key of a line is called, and whether a null is a number that is not finite.
struct Scalar {
  std::string tag;
  bool always = false;
};

struct Name {
  std::string_view key, tag;
  bool always;
};

constexpr Name kNames[] = {{"loss", "train/loss", true},
                           {"bits_per_byte", "train/bits_per_byte", false},
                           {"grad_norm", "train/grad_norm", true},
                           {"lr", "train/lr", true},
                           {"tokens", "train/tokens", true},
                           {"tokens_per_second", "speed/tokens_per_second", true},
                           {"mfu", "speed/mfu", false},
                           {"goodput", "speed/goodput", false},
                           {"memory_bytes", "memory/bytes", true},
                           {"validation_loss", "validation/loss", true},
                           {"perplexity", "validation/perplexity", true},
                           {"validation_bits_per_byte", "validation/bits_per_byte", false}};

/// Keys that have a name behind them: a phase, a cause, a validation set.
struct Family {
  std::string_view prefix, before, behind;
  bool always;
};

constexpr Family kFamilies[] = {
    {"seconds_", "seconds/", "", true},
    {"lost_seconds_", "lost_seconds/", "", true},
    {"validation_loss_", "validation_", "/loss", true},
    {"perplexity_", "validation_", "/perplexity", true},
    {"validation_bits_per_byte_", "validation_", "/bits_per_byte", false}};

std::optional<Scalar> scalar_of(std::string_view key) {
  for (const Name& name : kNames)
    if (key == name.key) return Scalar{std::string(name.tag), name.always};
  for (const Family& family : kFamilies) {
    if (!key.starts_with(family.prefix)) continue;
    std::string tag(family.before);
    tag += key.substr(family.prefix.size());
    tag += family.behind;
    return Scalar{std::move(tag), family.always};
  }
  return std::nullopt;
}

/// What a number is that is null: what "not_finite" says of it, "loss=inf,grad_norm=nan"; empty if
/// it says nothing.
std::string kind_of(const Json& line, const std::string& key) {
  const auto kinds = line.find("not_finite");
  if (kinds == line.end() || !kinds->is_string()) return "";
  const std::string all = "," + kinds->get<std::string>() + ",";
  const std::string begin = "," + key + "=";
  const std::size_t found = all.find(begin);
  if (found == std::string::npos) return "";
  const std::size_t value = found + begin.size();
  return all.substr(value, all.find(',', value) - value);
}

std::optional<float> value_of(const Json& line, const std::string& key, const Json& value,
                              bool always) {
  // What a double has beyond the largest float is an infinity.
  if (value.is_number()) return static_cast<float>(value.get<double>());
  if (!value.is_null()) return std::nullopt;
  const std::string kind = kind_of(line, key);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (kind == "inf") return kInfinity;
  if (kind == "-inf") return -kInfinity;
  if (kind == "nan" || always) return std::numeric_limits<float>::quiet_NaN();
  return std::nullopt;
}

}  // namespace

std::optional<Event> metrics_event(const Json& line) {
  if (!line.is_object()) return std::nullopt;
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return std::nullopt;
  Event event;
  event.set_step(step->get<std::int64_t>());
  const auto time = line.find("time");
  if (time != line.end() && time->is_string())
    event.set_wall_time(base::seconds_of_rfc3339(time->get<std::string>()).value_or(0.0));
  for (const auto& [key, value] : line.items()) {
    const auto scalar = scalar_of(key);
    if (!scalar) continue;
    const auto number = value_of(line, key, value, scalar->always);
    if (!number) continue;
    Summary::Value& told = *event.mutable_summary()->add_value();
    told.set_tag(scalar->tag);
    told.set_simple_value(*number);
  }
  return event.has_summary() ? std::optional(std::move(event)) : std::nullopt;
}

std::optional<Event> metrics_event(const std::string& line) {
  return metrics_event(Json::parse(line, nullptr, /*allow_exceptions=*/false));
}

bool is_validation(const Event& event) {
  return !event.summary().value().empty() &&
         event.summary().value(0).tag().starts_with("validation");
}

}  // namespace meshloom::events
