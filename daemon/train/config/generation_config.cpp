// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/generation_config.h"

#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/base/disk.h"
#include "daemon/base/strict_json.h"
#include "daemon/train/files/model_source.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFile = "generation_config.json";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
constexpr std::size_t kMostShown = 80;  // bytes of a value in a note

/// Lists and objects may be nested as deeply as the file is long, and are never walked through.
std::string shown(const Json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kMostShown) text.replace(kMostShown, std::string::npos, "...");
  return text;
}

/// Keys that would change what is drawn, with the value at which they do not.
const std::array<std::pair<const char*, Json>, 10>& not_offered() {
  static const std::array<std::pair<const char*, Json>, 10> keys = {{
      {"repetition_penalty", 1.0},
      {"num_beams", 1},
      {"min_p", 0.0},
      {"typical_p", 1.0},
      {"no_repeat_ngram_size", 0},
      {"penalty_alpha", 0.0},
      {"bad_words_ids", Json::array()},
      {"suppress_tokens", Json::array()},
      {"begin_suppress_tokens", Json::array()},
      {"stop_strings", Json::array()},
  }};
  return keys;
}

/// Reads key by key; null counts as missing.
class Reader {
 public:
  Reader(const Json& object, GenerationConfig* out) : object_(object), out_(*out) {}

  void end_tokens(std::int64_t vocab_size) {
    const Json* given = find("eos_token_id");
    if (!given) return;
    std::vector<std::int64_t> tokens;
    const Json* wrong = nullptr;  // the first that is
    const auto add = [&](const Json& id) {
      if (id.is_number_integer() && id >= 0 && id < vocab_size)
        tokens.push_back(id.get<std::int64_t>());
      else if (!wrong)
        wrong = &id;
    };
    if (given->is_array())
      for (const Json& id : *given) add(id);
    else
      add(*given);
    if (wrong)
      out_.end_notes.push_back(
          fmt::format("{}: eos_token_id holds {}, expected token ids below {}: it ends no sequence",
                      kFile, shown(*wrong), vocab_size));
    if (!tokens.empty()) out_.end_tokens = std::move(tokens);
  }

  void defaults() {
    out_.temperature = number("temperature", "a number of 0 or more",
                              [](double value) { return std::isfinite(value) && value >= 0.0; });
    out_.top_p = number("top_p", "a number above 0 and at most 1",
                        [](double value) { return value > 0.0 && value <= 1.0; });
    if (const Json* given = find("top_k")) {
      if (given->is_number_integer() && *given >= 0 && *given <= std::numeric_limits<int>::max())
        out_.top_k = given->get<int>();
      else
        leave_out("top_k", *given, "a whole number from 0 on");
    }
    if (const Json* given = find("do_sample")) {
      if (!given->is_boolean())
        leave_out("do_sample", *given, "true or false");
      else if (!given->get<bool>())
        out_.greedy = true;
    }
    if (out_.greedy) out_.temperature = 0.0;
    for (const auto& [key, neutral] : not_offered())
      if (const Json* given = find(key); given && *given != neutral)
        out_.notes.push_back(
            fmt::format("{}: {} is {}: not offered, it is left out", kFile, key, shown(*given)));
  }

 private:
  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void leave_out(const char* key, const Json& value, const char* expected) {
    out_.notes.push_back(fmt::format("{}: {} is {}, expected {}: it is left out", kFile, key,
                                     shown(value), expected));
  }
  template <typename Fits>
  std::optional<double> number(const char* key, const char* expected, const Fits& fits) {
    const Json* given = find(key);
    if (!given) return std::nullopt;
    if (given->is_number() && fits(given->get<double>())) return given->get<double>();
    leave_out(key, *given, expected);
    return std::nullopt;
  }

  const Json& object_;
  GenerationConfig& out_;
};

}  // namespace

GenerationConfig read_generation_config(const fs::path& folder, std::int64_t vocab_size) {
  GenerationConfig config;
  const auto unusable = [&](const std::string& why) {
    config.end_notes.push_back(fmt::format("{} is left out: {}", kFile, why));
  };
  if (folder.empty() || !base::own_disk().has(folder / kFile)) return config;
  try {
    const std::string text = base::own_disk().open(folder / kFile).read_text(kMostBytes);
    Json json;
    try {
      json = base::parse_strict_json(text);
    } catch (const Error& error) {
      unusable(fmt::format("it {}", error.what()));
      return config;
    }
    if (!json.is_object())
      unusable("it is not a JSON object");
    else {
      Reader reader(json, &config);
      reader.end_tokens(vocab_size);
      reader.defaults();
    }
  } catch (const Error& error) {
    unusable(error.what());
  }
  return config;
}

GenerationConfig find_generation_config(const v1::ModelSource& source, const fs::path& data_dir,
                                        const fs::path& model_folder, std::int64_t vocab_size) {
  return read_generation_config(source_folder(source, data_dir, model_folder), vocab_size);
}

void note_end_tokens(const v1::ModelSource& source, const fs::path& data_dir,
                     const fs::path& model_folder, std::int64_t vocab_size,
                     std::vector<std::string>* warnings) {
  if (!warnings) return;
  const GenerationConfig config =
      find_generation_config(source, data_dir, model_folder, vocab_size);
  warnings->insert(warnings->end(), config.end_notes.begin(), config.end_notes.end());
}

std::vector<std::string> take_generation_defaults(const GenerationConfig& config,
                                                  v1::SamplingParams* params) {
  std::vector<std::string> taken;
  if (!params->has_temperature() && config.temperature) {
    params->set_temperature(*config.temperature);
    taken.push_back(fmt::format("temperature {}{}", *config.temperature,
                                config.greedy ? " (do_sample: false)" : ""));
  }
  // The likeliest token is among any number of the likeliest.
  const bool draws = !params->has_temperature() || params->temperature() != 0.0;
  if (draws && !params->has_top_k() && config.top_k.value_or(0) > 0) {
    params->set_top_k(*config.top_k);
    taken.push_back(fmt::format("top_k {}", *config.top_k));
  }
  if (draws && !params->has_top_p() && config.top_p && *config.top_p < 1.0) {
    params->set_top_p(*config.top_p);
    taken.push_back(fmt::format("top_p {}", *config.top_p));
  }
  std::vector<std::string> notes;
  if (!taken.empty())
    notes.push_back(fmt::format("the model's {} gives {}", kFile, fmt::join(taken, ", ")));
  notes.insert(notes.end(), config.end_notes.begin(), config.end_notes.end());
  notes.insert(notes.end(), config.notes.begin(), config.notes.end());
  return notes;
}

}  // namespace meshloom::train
