// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/models/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "daemon/base/input_file.h"
#include "daemon/base/stand_in.h"
#include "daemon/base/strict_json.h"
#include "daemon/base/utf8.h"
#include "daemon/cli/exit_code.h"
#include "daemon/text/tokenizer_folder.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{128} << 20;

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw CliError(kUsage, fmt::format(format, std::forward<Args>(args)...));
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool is_inside(const fs::path& path, const fs::path& root) {
  return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

/// The folder itself, or that of the model in Hugging Face's cache, models--NAME/snapshots/HASH,
/// whose files are links to models--NAME/blobs.
fs::path root_of(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path(), model = snapshots.parent_path();
  const bool is_cached =
      snapshots.filename() == "snapshots" && model.filename().string().starts_with("models--");
  return is_cached ? model : folder;
}

/// JSON of a file of this folder, an object.
nlohmann::json object_of(const fs::path& file, std::uint64_t most_bytes) {
  try {
    const std::string text = base::InputFile(file).read_text(most_bytes);
    base::refuse_stand_in(text, file.filename().string());
    nlohmann::json json = base::parse_strict_json(text);
    if (json.is_object()) return json;
  } catch (const Error& error) {
    refuse("{}: {}", file.string(), error.what());
  }
  refuse("{}: an object of JSON is expected", file.string());
}

std::set<std::string> indexed_files(const fs::path& index) {
  const nlohmann::json json = object_of(index, kMostIndexBytes);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object())
    refuse("{}: weight_map, an object of tensor names and files, is expected", index.string());
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : file.dump();
    if (!name.ends_with(".safetensors") || name.find_first_of("/\\") != std::string::npos)
      refuse("{}: \"{}\" names no safetensors file of this folder", index.string(),
             base::printable_text(name, 200, false));
    files.insert(name);
  }
  return files;
}

/// Throws for what is not a file, or lies elsewhere.
void check_file(const fs::path& path, const fs::path& root) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error) refuse("{}: {}", path.string(), error.message());
  if (!is_inside(target, root))
    refuse("{} is a link to {}, outside of {}: nothing was sent", path.string(), target.string(),
           root.string());
  if (!fs::is_regular_file(target, error)) refuse("{} is no file", path.string());
}

std::vector<std::string> other_weights(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const std::string kind = entry.path().extension().string();
    if (kind == ".bin" || kind == ".pt" || kind == ".pth" || kind == ".gguf" || kind == ".h5" ||
        kind == ".msgpack")
      names.push_back(base::printable_text(name, 200, false));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

ModelFolder model_folder(const fs::path& given) {
  std::error_code error;
  const fs::path folder = fs::canonical(given, error);
  if (error) refuse("{}: {}", given.string(), error.message());
  if (!fs::is_directory(folder, error)) refuse("{} is no folder", given.string());
  if (!is_there(folder / kConfig))
    refuse("{} has no config.json: it is no Hugging Face folder of a model; nothing was sent",
           given.string());
  const fs::path root = root_of(folder);
  check_file(folder / kConfig, root);
  object_of(folder / kConfig, kMostConfigBytes);
  ModelFolder found;
  found.small = {folder / kConfig};
  for (const fs::path& file : text::carried_files(folder)) found.small.push_back(file);
  if (is_there(folder / kWeights)) {
    found.weights = {folder / kWeights};
  } else if (is_there(folder / kIndex)) {
    check_file(folder / kIndex, root);
    found.small.push_back(folder / kIndex);
    for (const std::string& name : indexed_files(folder / kIndex)) {
      if (!is_there(folder / name))
        refuse("{}: {} names {}, which is not there", given.string(), kIndex, name);
      found.weights.push_back(folder / name);
    }
  }
  for (const fs::path& file : found.small) check_file(file, root);
  for (const fs::path& file : found.weights) check_file(file, root);
  found.left_out = other_weights(folder);
  return found;
}

}  // namespace meshloom::cli
