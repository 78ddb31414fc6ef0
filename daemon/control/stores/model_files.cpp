// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/model_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "daemon/base/input_file.h"
#include "daemon/nn/models/architecture_names.h"
#include "daemon/train/files/digest.h"
#include "daemon/train/files/safetensors_header.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kWindow = std::uint64_t{1} << 20;

/// Empty for a file that is no safetensors file.
std::string header_digest(const base::InputFile& file) {
  std::uint64_t length = 0;
  if (file.path().extension() != ".safetensors" || file.size() < sizeof length) return {};
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  std::vector<std::byte> header(
      std::min({length, file.size() - sizeof length, train::kMaxSafetensorsHeader}));
  file.read(sizeof length, header);
  return train::digest_of(header);
}

using Files = std::map<std::string, v1::StoredModelFile>;

template <typename List>
Files by_name(const List& list) {
  Files files;
  for (const v1::StoredModelFile& file : list) files[file.name()] = file;
  return files;
}

std::vector<std::string> changes(const Files& before, const Files& now) {
  std::vector<std::string> found;
  for (const auto& [name, was] : before) {
    const auto is = now.find(name);
    if (is == now.end())
      found.push_back(fmt::format("{} is gone", name));
    else if (is->second.size_bytes() != was.size_bytes())
      found.push_back(fmt::format("{} has {} bytes, it had {}", name, is->second.size_bytes(),
                                  was.size_bytes()));
    else if (is->second.ends_xxh3() != was.ends_xxh3() ||
             is->second.header_xxh3() != was.header_xxh3())
      found.push_back(fmt::format("{} has other contents", name));
  }
  for (const auto& [name, is] : now)
    if (before.count(name) == 0) found.push_back(fmt::format("{} is new", name));
  return found;
}

}  // namespace

std::vector<v1::StoredModelFile> identify_files(const fs::path& folder) {
  std::vector<v1::StoredModelFile> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool decides_weights = name == "config.json" || name.ends_with(".safetensors") ||
                                 name.ends_with(".safetensors.index.json");
    std::error_code ignored;
    if (!decides_weights || !entry.is_regular_file(ignored)) continue;
    const base::InputFile file(entry.path());
    v1::StoredModelFile& item = files.emplace_back();
    item.set_name(name);
    item.set_size_bytes(static_cast<std::int64_t>(file.size()));
    item.set_ends_xxh3(train::digest_of_ends(file, kWindow));
    item.set_header_xxh3(header_digest(file));
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  return files;
}

void check_same_files(const v1::StoredModel& model, const fs::path& folder) {
  std::error_code ignored;
  std::vector<std::string> found = {"the folder is gone"};
  if (fs::is_directory(folder, ignored))
    found = changes(by_name(model.files()), by_name(identify_files(folder)));
  if (found.empty()) return;
  constexpr std::size_t kShown = 4;
  const std::size_t more = found.size() > kShown ? found.size() - kShown : 0;
  found.resize(std::min(found.size(), kShown));
  const std::string what =
      fmt::format("{}{}", fmt::join(found, "; "), more > 0 ? fmt::format("; {} more", more) : "");
  throw FailedPrecondition(
      fmt::format("model \"{}\": the files in {} are not those that it was made from: {}",
                  model.id(), model.data_folder(), what),
      "DATA_CHANGED", {{"model", model.id()}, {"difference", what}});
}

void describe_config(const std::string& text, bool has_weights, v1::StoredModel* model) {
  const nn::ModelConfig config = nn::parse_hf_config(text);
  if (!has_weights) nn::refuse_unread_keys(config);
  for (const std::string& note : nn::config_notes(config))
    spdlog::info("model {}: {}", model->id(), note);
  model->set_config(text);
  model->set_architecture(nn::architecture_name(config).model_type);
  model->set_parameters(nn::parameter_count(config));
  model->set_headless(nn::is_headless(text));
}

}  // namespace meshloom::control
