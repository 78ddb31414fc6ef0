// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/train/files/digest.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFormat = "meshloom.checkpoint";
constexpr std::string_view kFolderPrefix = "step-";
constexpr const char* kValidationProgress = "validation_progress";
constexpr const char* kValidatesAll = "validates_all";
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;

Json to_json(const ManifestFile& file) {
  Json pieces = Json::array();
  for (const ManifestPiece& piece : file.pieces) {
    Json dims = Json::array();
    for (const planner::IndexRanges& ranges : piece.piece.ranges) {
      Json list = Json::array();
      for (const planner::ShardRange& range : ranges) list.push_back({range.begin, range.end});
      dims.push_back(std::move(list));
    }
    pieces.push_back({{"tensor", piece.tensor}, {"ranges", std::move(dims)}});
  }
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"xxh3_128", file.xxh3_128},
          {"pieces", std::move(pieces)}};
}

ManifestPiece piece_from_json(const Json& json) {
  ManifestPiece piece;
  json.at("tensor").get_to(piece.tensor);
  for (const Json& list : json.at("ranges")) {
    planner::IndexRanges& ranges = piece.piece.ranges.emplace_back();
    for (const Json& range : list)
      ranges.push_back({range.at(0).get<std::int64_t>(), range.at(1).get<std::int64_t>()});
  }
  return piece;
}

/// The pieces that version 1 left unsaid.
void add_row_pieces(Manifest& manifest) {
  const auto shards = static_cast<std::int64_t>(manifest.files.size());
  for (std::int64_t f = 0; f < shards; ++f) {
    for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
      const Shape& shape = manifest.tensors[t].shape;
      const planner::ShardRange rows = planner::shard_range(row_count(shape), shards, f);
      if (rows.size() > 0 && numel(shape) > 0)
        manifest.files[static_cast<std::size_t>(f)].pieces.push_back(
            {t, part_of_piece(whole_piece(shape), 0, rows)});
    }
  }
}

std::string digest_of_text(const std::string& text) {
  return digest_of(std::as_bytes(std::span(text)));
}

Json to_json(const Manifest& manifest) {
  Json tensors = Json::array();
  for (const ManifestTensor& tensor : manifest.tensors)
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape.span()}});
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) files.push_back(to_json(file));
  const ComputeClass& compute = manifest.compute;
  Json json = {{"format", kFormat},
               {"version", kManifestVersion},
               {"step", manifest.step},
               {"data_position", manifest.data_position},
               {"tokens", manifest.tokens},
               {"seed", manifest.seed},
               {kValidatesAll, manifest.validates_all},
               {"compute",
                {{"cpu_class", compute.cpu_class},
                 {"matmul_table", compute.matmul_table},
                 {"threads", compute.threads},
                 {"world_size", compute.world_size},
                 {"mesh", compute.mesh}}},
               {"model_config", Json::parse(manifest.model_config)},
               {"run_config", Json::parse(manifest.run_config)},
               {"tensors", std::move(tensors)},
               {"files", std::move(files)}};
  if (!compute.hosts.empty()) json["compute"]["hosts"] = compute.hosts;
  for (const ManifestFile& file : manifest.other_files)
    json["other_files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  if (!manifest.user_metadata.empty()) json["user_metadata"] = manifest.user_metadata;
  if (!manifest.data_identity.empty()) json["data_identity"] = Json::parse(manifest.data_identity);
  if (!manifest.validation_progress.empty())
    json[kValidationProgress] = Json::parse(manifest.validation_progress);
  return json;
}

/// What an export writes itself: a file that goes along must not take its place.
bool is_of_weights(const std::string& name) {
  return name == "config.json" || name == kManifestName || name.ends_with(".safetensors") ||
         name.ends_with(".safetensors.index.json");
}

Manifest from_json(const Json& json, int version) {
  Manifest manifest;
  json.at("step").get_to(manifest.step);
  json.at("data_position").get_to(manifest.data_position);
  json.at("tokens").get_to(manifest.tokens);
  json.at("seed").get_to(manifest.seed);
  const Json& compute = json.at("compute");
  compute.at("cpu_class").get_to(manifest.compute.cpu_class);
  compute.at("matmul_table").get_to(manifest.compute.matmul_table);
  compute.at("threads").get_to(manifest.compute.threads);
  compute.at("world_size").get_to(manifest.compute.world_size);
  manifest.compute.mesh = compute.value("mesh", std::string());
  manifest.compute.hosts = compute.value("hosts", std::string());
  manifest.model_config = json.at("model_config").dump(2);
  manifest.run_config = json.at("run_config").dump(2);
  if (json.contains("data_identity")) manifest.data_identity = json.at("data_identity").dump();
  if (json.contains(kValidationProgress))
    manifest.validation_progress = json.at(kValidationProgress).dump();
  manifest.validates_all = json.value(kValidatesAll, false);
  if (json.contains("user_metadata")) json.at("user_metadata").get_to(manifest.user_metadata);
  for (const Json& tensor : json.at("tensors")) {
    const auto sizes = tensor.at("shape").get<std::vector<std::int64_t>>();
    manifest.tensors.push_back(
        {tensor.at("name").get<std::string>(), Shape(std::span<const std::int64_t>(sizes))});
  }
  const auto read_file = [](const Json& item, ManifestFile& file) {
    item.at("name").get_to(file.name);
    if (file.name.empty() || std::filesystem::path(file.name).filename() != file.name)
      throw DataLoss(fmt::format("manifest: \"{}\" is no name of a file", file.name),
                     "CHECKPOINT_DAMAGED");
    item.at("bytes").get_to(file.bytes);
    item.at("xxh3_128").get_to(file.xxh3_128);
  };
  if (json.contains("other_files"))
    for (const Json& item : json.at("other_files")) {
      ManifestFile& file = manifest.other_files.emplace_back();
      read_file(item, file);
      if (is_of_weights(file.name))
        throw DataLoss(fmt::format("manifest: \"{}\" among the files that go along is a file of "
                                   "the weights",
                                   file.name),
                       "CHECKPOINT_DAMAGED");
    }
  for (const Json& item : json.at("files")) {
    ManifestFile& file = manifest.files.emplace_back();
    read_file(item, file);
    if (version == 1) continue;
    for (const Json& piece : item.at("pieces")) file.pieces.push_back(piece_from_json(piece));
  }
  if (version == 1) add_row_pieces(manifest);
  return manifest;
}

std::string read_manifest_text(const fs::path& folder, base::Disk& disk) {
  const std::string label = folder.string();
  if (!is_checkpoint(folder, disk))
    throw NotFound(fmt::format("{} is no checkpoint: it has no {}", label, kManifestName),
                   kCheckpointNotFound, {{"path", label}});
  return disk.open(folder / kManifestName).read_text(kMaxManifestBytes);
}

[[noreturn]] void damaged(const std::string& label, const std::string& why) {
  throw DataLoss(fmt::format("checkpoint {} is damaged: {}", label, why), "CHECKPOINT_DAMAGED",
                 {{"path", label}});
}

}  // namespace

std::string checkpoint_folder_name(std::int64_t step) {
  return fmt::format("{}{}", kFolderPrefix, step);
}

std::optional<std::int64_t> step_of_folder_name(const std::string& name) {
  if (!name.starts_with(kFolderPrefix)) return std::nullopt;
  std::int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kFolderPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

std::string manifest_to_json(const Manifest& manifest) {
  const Json inner = to_json(manifest);
  const Json outer = {{"manifest", inner}, {"xxh3_128", digest_of_text(inner.dump())}};
  return outer.dump(1) + "\n";
}

Manifest manifest_from_json(const std::string& text, const std::string& label) {
  try {
    const Json outer = Json::parse(text);
    const Json& inner = outer.at("manifest");
    if (digest_of_text(inner.dump()) != outer.at("xxh3_128").get<std::string>())
      damaged(label, "manifest.json does not have the digest it names");
    if (inner.at("format").get<std::string>() != kFormat)
      damaged(label, "manifest.json is of another format");
    const int version = inner.at("version").get<int>();
    if (version > kManifestVersion)
      throw FailedPrecondition(
          fmt::format("checkpoint {} has format version {}, this program reads up to {}", label,
                      version, kManifestVersion),
          "CHECKPOINT_TOO_NEW", {{"path", label}, {"version", std::to_string(version)}});
    return from_json(inner, version);
  } catch (const Json::exception& error) {
    damaged(label, fmt::format("manifest.json: {}", error.what()));
  }
}

bool is_checkpoint(const fs::path& folder, base::Disk& disk) {
  return disk.has(folder / kManifestName);
}

Manifest read_manifest(const fs::path& folder, base::Disk& disk) {
  return manifest_from_json(read_manifest_text(folder, disk), folder.string());
}

std::string read_validation_progress(const fs::path& folder) {
  const std::string text = read_manifest_text(folder, base::own_disk());
  if (text.find(kValidationProgress) == std::string::npos) return {};
  return manifest_from_json(text, folder.string()).validation_progress;
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& directory, base::Disk& disk) {
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : disk.list(directory)) {
    const auto step = step_of_folder_name(name);
    if (step && is_checkpoint(directory / name, disk)) entries.push_back({*step, directory / name});
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return entries;
}

}  // namespace meshloom::train
