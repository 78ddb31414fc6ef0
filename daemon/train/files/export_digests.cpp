// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/export_digests.h"

#include <nlohmann/json.hpp>

#include "daemon/base/input_file.h"
#include "daemon/train/files/file_check.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDigestsFormat = "meshloom.digests";
constexpr int kDigestsVersion = 1;
constexpr std::uint64_t kMostDigestsBytes = std::uint64_t{16} << 20;

}  // namespace

std::string export_digests_to_json(std::span<const ManifestFile> files) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ManifestFile& file : files)
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  const nlohmann::ordered_json json = {
      {"format", kDigestsFormat}, {"version", kDigestsVersion}, {"files", std::move(list)}};
  return json.dump(1) + "\n";
}

std::optional<std::vector<ManifestFile>> read_export_digests(const fs::path& folder) {
  const fs::path path = folder / kExportDigestsName;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const std::string text = base::InputFile(path).read_text(kMostDigestsBytes);
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("format").get<std::string>() != kDigestsFormat)
      checkpoint_damaged(path, "it is of another format");
    if (const int version = json.at("version").get<int>(); version > kDigestsVersion)
      throw FailedPrecondition(fmt::format("{} has format version {}, this program reads up to {}",
                                           path.string(), version, kDigestsVersion),
                               "CHECKPOINT_TOO_NEW",
                               {{"path", path.string()}, {"version", std::to_string(version)}});
    std::vector<ManifestFile> files;
    for (const nlohmann::json& item : json.at("files")) {
      ManifestFile& file = files.emplace_back();
      item.at("name").get_to(file.name);
      item.at("bytes").get_to(file.bytes);
      item.at("xxh3_128").get_to(file.xxh3_128);
      if (file.name.empty() || fs::path(file.name).filename() != file.name)
        checkpoint_damaged(path, fmt::format("\"{}\" is no name of a file", file.name));
    }
    return files;
  } catch (const nlohmann::json::exception& error) {
    checkpoint_damaged(path, error.what());
  }
}

}  // namespace meshloom::train
