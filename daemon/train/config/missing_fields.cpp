// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/missing_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "daemon/train/files/model_source.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

struct MissingField {
  std::string field;
  std::string need;  ///< what it is for, or what to give
};

/// A config whose files cannot be read is refused by those that read them next.
template <typename Look>
auto looked_at(const Look& look) -> std::optional<decltype(look())> {
  try {
    return look();
  } catch (const Error&) {
    return std::nullopt;
  }
}

class MissingFields {
 public:
  MissingFields(const v1::RunConfig& config, const TokenizerSource& source)
      : config_(config), source_(source) {}

  std::vector<MissingField> find() {
    const auto model = find_model();
    if (!model) return {};
    if (config_.training().steps() == 0) add("run.training.steps", "the job's optimizer steps");
    if (config_.training().global_batch_size() == 0)
      add("run.training.global_batch_size", "samples of an optimizer step");
    if (config_.data().path().empty()) add("run.data.path", "a file or a folder below --data-dir");
    find_text_fields(*model);
    return std::move(missing_);
  }

 private:
  void add(const char* field, std::string need) { missing_.push_back({field, std::move(need)}); }

  /// With the head that it lacks, if it does.
  std::optional<nn::ModelConfig> find_model() {
    v1::ModelSource model = config_.model();
    const auto load = [&] {
      return load_declared_config(model, source_.data_dir, source_.model_folder).model;
    };
    try {
      return load();
    } catch (const Error& error) {
      const auto field = error.metadata().find("field");
      const bool lacks_head = field != error.metadata().end() &&
                              field->second == "run.model.fresh_head" && !model.fresh_head();
      if (!lacks_head) return std::nullopt;
      add("run.model.fresh_head",
          "true: the model has no output head, and is trained with a new one");
      model.set_fresh_head(true);
    }
    return looked_at(load);
  }

  void find_text_fields(const nn::ModelConfig& model) {
    const auto folder = looked_at([&] { return tokenizer_folder(config_, source_); });
    if (!folder) return;
    const bool is_bytes = config_.data().tokenizer() == "bytes" ||
                          (config_.data().tokenizer().empty() && model.vocab_size == 256);
    if (folder->empty() && !is_bytes && has_text())
      add("run.data.tokenizer", "a Hugging Face folder with a tokenizer: the data are text");
    if (model.is_causal() || config_.data().masked_lm().has_mask_token()) return;
    const auto tokenizer = folder->empty()
                               ? std::optional(text::FolderTokenizer{})
                               : looked_at([&] { return text::open_tokenizer(*folder); });
    if (tokenizer && !tokenizer->mask)
      add("run.data.masked_lm.mask_token",
          folder->empty() ? "the token that hides others"
                          : "the token that hides others: the tokenizer names no mask_token");
  }

  bool has_text() const {
    const auto files =
        looked_at([&] { return find_run_files(config_, source_.data_dir, "run.data"); });
    if (!files) return false;
    const auto is_text = [](const DataFiles& found) {
      return found.format == TokenFormat::kText || found.format == TokenFormat::kJsonLines;
    };
    return is_text(files->training) || (files->validation && is_text(*files->validation)) ||
           std::any_of(files->sets.begin(), files->sets.end(), is_text);
  }

  const v1::RunConfig& config_;
  const TokenizerSource& source_;
  std::vector<MissingField> missing_;
};

}  // namespace

void check_missing_fields(const v1::RunConfig& config, const TokenizerSource& source) {
  const std::vector<MissingField> missing = MissingFields(config, source).find();
  if (missing.size() < 2) return;
  std::vector<std::string> needs, fields;
  for (const auto& [field, need] : missing) {
    needs.push_back(fmt::format("{} ({})", field, need));
    fields.push_back(field);
  }
  throw InvalidArgument(
      fmt::format("{}: {} fields are missing: {}", fields.front(), missing.size(),
                  fmt::join(needs, "; ")),
      "FIELDS_MISSING",
      {{"field", fields.front()}, {"fields", fmt::format("{}", fmt::join(fields, ","))}});
}

}  // namespace meshloom::train
