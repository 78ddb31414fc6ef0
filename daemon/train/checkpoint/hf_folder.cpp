// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/checkpoint/hf_folder.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "daemon/nn/models/architecture_names.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/train/checkpoint/hf_names.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 1u << 20;
constexpr std::uint64_t kMaxIndexBytes = kMaxSafetensorsHeader;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

[[noreturn]] void fail(const std::string& label, const std::string& what) {
  throw InvalidArgument(fmt::format("{}: {}", label, what), "INVALID_HF_FOLDER",
                        {{"folder", label}});
}

/// At most a few names, for a message.
std::string some(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  const std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown)));
  const std::string more =
      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), more);
}

}  // namespace

HfFolder HfFolder::open(const fs::path& folder, base::Disk& disk) {
  HfFolder out;
  const fs::path normal = folder.lexically_normal();
  out.label_ = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  if (disk.kind(folder) != base::FileKind::kFolder)
    throw NotFound(fmt::format("{}: there is no such model folder", out.label_), "FOLDER_NOT_FOUND",
                   {{"folder", out.label_}});
  try {
    const auto text = disk.open(folder / "config.json").read_text(kMaxConfigBytes);
    out.config_ = nn::parse_hf_config(text);
    out.headless_ = nn::is_headless(text);
  } catch (const NotFound&) {
    throw;
  } catch (const Error& e) {
    throw Error(e.kind(), e.reason(), fmt::format("{}: {}", out.label_, e.what()), e.metadata());
  }

  if (disk.has(folder / kSingleFile)) {
    out.add_file(SafetensorsFile::open(folder / kSingleFile, {}, disk));
  } else if (disk.has(folder / kIndexFile)) {
    out.read_index(folder, disk.open(folder / kIndexFile).read_text(kMaxIndexBytes), disk);
  } else {
    const bool pickled =
        disk.has(folder / "pytorch_model.bin") || disk.has(folder / "pytorch_model.bin.index.json");
    throw NotFound(
        fmt::format("{}: there is neither {} nor {}{}", out.label_, kSingleFile, kIndexFile,
                    pickled ? " (pickled weights, pytorch_model.bin, are never read)" : ""),
        "FILE_NOT_FOUND", {{"folder", out.label_}, {"file", kSingleFile}});
  }
  // A tied weight may be stored under its second name only. If both are there, transformers takes
  // the first.
  for (auto& [name, source] : out.tied_copies_) out.parameters_.try_emplace(name, source);
  out.tied_copies_.clear();
  return out;
}

void HfFolder::read_index(const fs::path& folder, const std::string& text, base::Disk& disk) {
  const auto index = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [&](const std::string& what) {
    fail(label_, fmt::format("{}: {}", kIndexFile, what));
  };
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    wrong("weight_map, an object of tensor names and files, is expected");
  std::map<std::string, std::vector<std::string>> names_by_file;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) wrong(fmt::format("the file of '{}' is not a string", name));
    names_by_file[file.get<std::string>()].push_back(name);
  }
  for (const auto& [file_name, names] : names_by_file) {
    if (file_name.empty() || file_name.find_first_of("/\\") != std::string::npos ||
        !file_name.ends_with(".safetensors"))
      wrong(fmt::format("'{}' does not name a safetensors file of this folder", file_name));
    const auto file = SafetensorsFile::open(folder / file_name, {}, disk);
    for (const std::string& name : names)
      if (!file->contains(name)) wrong(fmt::format("{} does not hold '{}'", file_name, name));
    add_file(file);
  }
}

void HfFolder::add_file(const std::shared_ptr<SafetensorsFile>& file) {
  for (const SafetensorsEntry& entry : file->entries()) {
    const std::string name = hf_parameter_name(config_, entry.name);
    if (hf_is_ignored(config_, name)) continue;
    const auto tied = hf_tied_parameter(config_, name);
    auto& target = tied ? tied_copies_ : parameters_;
    if (!target.emplace(tied.value_or(name), Source{file, &entry}).second)
      fail(label_, fmt::format("'{}' is there twice", name));
  }
}

void HfFolder::check_parameters(const std::vector<nn::NamedParameter>& wanted,
                                MissingHead head) const {
  std::vector<std::string> missing;
  std::set<std::string> known;
  const bool without_head = headless_ && head == MissingHead::kFresh;
  for (const nn::NamedParameter& p : wanted) {
    if (without_head && hf_is_of_head(config_, p.name)) continue;
    known.insert(p.name);
    const auto found = parameters_.find(p.name);
    if (found == parameters_.end()) {
      missing.push_back(p.name);
      continue;
    }
    const SafetensorsEntry& entry = *found->second.entry;
    if (entry.shape != p.parameter->value.shape())
      fail(label_, fmt::format("'{}' has shape {}, but config.json asks for {}", p.name,
                               to_string(entry.shape), to_string(p.parameter->value.shape())));
    const bool convertible = entry.dtype == DType::kFloat32 || entry.dtype == DType::kBFloat16 ||
                             entry.dtype == DType::kFloat16 || entry.dtype == DType::kFloat64;
    if (!convertible)
      fail(label_, fmt::format("'{}' has dtype {}, which weights cannot have", p.name,
                               dtype_name(entry.dtype)));
  }
  if (!missing.empty())
    fail(label_, fmt::format("missing tensors: {}{}", some(missing),
                             headless_ ? " (its config.json is of a class without an output "
                                         "head: run.model.fresh_head trains a new one)"
                                       : ""));
  std::vector<std::string> unexpected;
  for (const auto& [name, source] : parameters_)
    if (!known.contains(name)) unexpected.push_back(name);
  if (!unexpected.empty()) fail(label_, fmt::format("unexpected tensors: {}", some(unexpected)));
}

void HfFolder::read(const std::string& parameter, const Tensor& dst) const {
  read(parameter, dst.shape(), whole_piece(dst.shape()), dst);
}

void HfFolder::read(const std::string& parameter, const Shape& whole, const Piece& piece,
                    const Tensor& dst) const {
  const auto found = parameters_.find(parameter);
  if (found == parameters_.end())
    throw NotFound(fmt::format("{}: there is no tensor '{}'", label_, parameter),
                   "TENSOR_NOT_FOUND", {{"folder", label_}, {"tensor", parameter}});
  const Source& source = found->second;
  check(source.entry->shape == whole, "{}: '{}' has shape {}, not {}", label_, parameter,
        source.entry->shape, whole);
  check_internal(piece.shape() == dst.shape(), "{}: a piece of {} is read into {}", label_,
                 piece.shape(), dst.shape());
  read_common(dst.context(), dst.view(), piece, *source.file, *source.entry, whole_piece(whole));
}

bool has_hf_weights(const fs::path& folder, base::Disk& disk) {
  return disk.has(folder / kSingleFile) || disk.has(folder / kIndexFile);
}

nn::ModelConfig check_hf_folder(const fs::path& folder) {
  const HfFolder opened = HfFolder::open(folder);
  ExecutionContext context;
  const DeferParametersGuard defer(context);
  const auto described = nn::make_model(context, opened.config(), DType::kFloat32);
  opened.check_parameters(described->named_parameters(), MissingHead::kFresh);
  return opened.config();
}

void load_hf_weights(const HfFolder& folder, nn::Module& module) {
  const auto parameters = module.named_parameters();
  folder.check_parameters(parameters);
  for (const nn::NamedParameter& p : parameters) folder.read(p.name, p.parameter->value);
}

}  // namespace meshloom::train
