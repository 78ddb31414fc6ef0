// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/hf_folder.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "daemon/base/stand_in.h"
#include "daemon/base/strict_json.h"
#include "daemon/nn/models/architecture_names.h"
#include "daemon/tensor/execution_context.h"
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

bool is_of_weights(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16 ||
         dtype == DType::kFloat64;
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
    base::refuse_stand_in(text, "config.json");
    out.config_ = nn::parse_hf_config(text);
    out.headless_ = nn::is_headless(text);
  } catch (const NotFound&) {
    throw;
  } catch (const Error& e) {
    throw Error(e.kind(), e.reason(), fmt::format("{}: {}", out.label_, e.what()), e.metadata());
  }

  if (disk.has(folder / kSingleFile)) {
    out.add_file(SafetensorsFile::open(folder / kSingleFile, {}, disk),
                 [](const std::string&) { return true; });
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
  return out;
}

void HfFolder::read_index(const fs::path& folder, const std::string& text, base::Disk& disk) {
  base::refuse_stand_in(text, fmt::format("{}/{}", label_, kIndexFile));
  const auto wrong = [&](const std::string& what) {
    fail(label_, fmt::format("{}: {}", kIndexFile, what));
  };
  nlohmann::json index;
  try {
    index = base::parse_strict_json(text);
  } catch (const Error& error) {
    wrong(error.what());
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    wrong("weight_map, an object of tensor names and files, is expected");
  std::map<std::string, std::vector<std::string>> names_by_file;
  std::map<std::string, std::string> file_of;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) wrong(fmt::format("the file of '{}' is not a string", name));
    names_by_file[file.get<std::string>()].push_back(name);
    file_of[name] = file.get<std::string>();
  }
  for (const auto& [file_name, names] : names_by_file) {
    if (file_name.empty() || file_name.find_first_of("/\\") != std::string::npos ||
        !file_name.ends_with(".safetensors"))
      wrong(fmt::format("'{}' does not name a safetensors file of this folder", file_name));
    if (!disk.has(folder / file_name))
      throw NotFound(fmt::format("{}: {} names {} (of '{}'{}), which is not there", label_,
                                 kIndexFile, file_name, names.front(),
                                 names.size() > 1 ? fmt::format(" and {} more", names.size() - 1)
                                                  : std::string()),
                     "FILE_NOT_FOUND", {{"folder", label_}, {"file", file_name}});
    const auto file = SafetensorsFile::open(folder / file_name, {}, disk);
    for (const std::string& name : names)
      if (!file->contains(name)) wrong(fmt::format("{} does not hold '{}'", file_name, name));
    // A copy that another shard has kept from before counts for nothing.
    add_file(file, [&, &file_name = file_name](const std::string& tensor) {
      const auto listed = file_of.find(tensor);
      return listed == file_of.end() || listed->second == file_name;
    });
  }
}

void HfFolder::add_file(const std::shared_ptr<SafetensorsFile>& file,
                        const std::function<bool(const std::string& tensor)>& wanted) {
  for (const SafetensorsEntry& entry : file->entries()) {
    if (!wanted(entry.name)) continue;
    const std::string name = hf_parameter_name(config_, entry.name);
    if (hf_is_ignored(config_, name)) continue;
    if (!tensors_.emplace(name, StoredTensor{file, &entry}).second)
      fail(label_, fmt::format("'{}' is there twice", name));
  }
}

const StoredTensor* HfFolder::find(const std::string& parameter) const {
  for (const std::string& name : hf_tensors_of(config_, parameter))
    if (const auto found = tensors_.find(name); found != tensors_.end()) return &found->second;
  return nullptr;
}

bool HfFolder::differ(const nn::HfTiedNames& names) const {
  const auto first = tensors_.find(names.parameter), second = tensors_.find(names.tied);
  if (first == tensors_.end() || second == tensors_.end()) return false;
  // Others are refused by check_parameters.
  return is_of_weights(first->second.entry->dtype) && is_of_weights(second->second.entry->dtype) &&
         !same_values(first->second, second->second);
}

bool HfFolder::has_own_head() const {
  return config_.tie_word_embeddings && differ(hf_name_rules(config_.architecture).tied_weights);
}

nn::ModelConfig HfFolder::model_config() const {
  nn::ModelConfig config = config_;
  if (has_own_head()) config.tie_word_embeddings = false;
  return config;
}

std::vector<std::string> HfFolder::tie_notes() const {
  std::vector<std::string> notes;
  if (!config_.tie_word_embeddings) return notes;
  const nn::HfTiedNames& weights = hf_name_rules(config_.architecture).tied_weights;
  if (has_own_head())
    notes.push_back(fmt::format(
        "{}: config.json says tie_word_embeddings, but {} and {} have different values in the "
        "files: both are kept, the model is not tied, and its exports say so",
        label_, weights.tied, weights.parameter));
  if (const auto& bias = hf_name_rules(config_.architecture).tied_bias; bias && differ(*bias))
    notes.push_back(
        fmt::format("{}: {} and {} have different values in the files: the first is "
                    "taken, nothing is computed with the second",
                    label_, bias->tied, bias->parameter));
  return notes;
}

void HfFolder::check_tensor(const std::string& name, const Shape& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return;
  const SafetensorsEntry& entry = *found->second.entry;
  if (entry.shape != shape)
    fail(label_, fmt::format("'{}' has shape {}, but config.json asks for {}", name,
                             to_string(entry.shape), to_string(shape)));
  if (!is_of_weights(entry.dtype))
    fail(label_, fmt::format("'{}' has dtype {}, which weights cannot have: float32, bfloat16, "
                             "float16 or float64 is expected (quantized weights are not read)",
                             name, dtype_name(entry.dtype)));
}

void HfFolder::check_parameters(const std::vector<nn::NamedParameter>& wanted,
                                MissingHead head) const {
  std::vector<std::string> missing, unexpected;
  std::set<std::string> known;
  const bool without_head = headless_ && head == MissingHead::kFresh;
  for (const nn::NamedParameter& p : wanted) {
    if (without_head && hf_is_of_head(config_, p.name)) continue;
    if (!has(p.name)) missing.push_back(p.name);
    for (const std::string& name : hf_tensors_of(config_, p.name)) {
      check_tensor(name, p.parameter->value.shape());
      known.insert(name);
    }
  }
  for (const auto& [name, tensor] : tensors_)
    if (!known.contains(name)) unexpected.push_back(name);
  if (missing.empty() && unexpected.empty()) return;
  const std::string wrapper = hf_wrapper_of(config_, missing, unexpected);
  if (!wrapper.empty())
    fail(label_, fmt::format("its tensors are not those of the model, but of a wrapper around it: "
                             "their names have the prefix {}: save the model inside, or take it "
                             "off (unexpected: {})",
                             wrapper, some(unexpected)));
  const auto named = [](const char* which, const std::vector<std::string>& names) {
    return names.empty() ? std::string() : fmt::format("{} tensors: {}", which, some(names));
  };
  const std::string both = missing.empty() || unexpected.empty() ? "" : "; ";
  fail(label_,
       fmt::format("{}{}{}{}", named("missing", missing), both, named("unexpected", unexpected),
                   headless_ && !missing.empty()
                       ? " (its config.json is of a class without an output head: "
                         "run.model.fresh_head trains a new one)"
                       : ""));
}

void HfFolder::read(const std::string& parameter, const Tensor& dst) const {
  HostBlocks blocks(dst.context());
  read(parameter, dst.shape(), whole_piece(dst.shape()), dst, blocks);
}

void HfFolder::read(const std::string& parameter, const Shape& whole, const Piece& piece,
                    const Tensor& dst, HostBlocks& blocks) const {
  const StoredTensor* found = find(parameter);
  if (found == nullptr)
    throw NotFound(fmt::format("{}: there is no tensor '{}'", label_, parameter),
                   "TENSOR_NOT_FOUND", {{"folder", label_}, {"tensor", parameter}});
  check(found->entry->shape == whole, "{}: '{}' has shape {}, not {}", label_, parameter,
        found->entry->shape, whole);
  check_internal(piece.shape() == dst.shape(), "{}: a piece of {} is read into {}", label_,
                 piece.shape(), dst.shape());
  read_common(blocks, dst.view(), piece, *found->file, *found->entry, whole_piece(whole));
}

bool has_hf_weights(const fs::path& folder, base::Disk& disk) {
  return disk.has(folder / kSingleFile) || disk.has(folder / kIndexFile);
}

HfFolder check_hf_folder(const fs::path& folder) {
  HfFolder opened = HfFolder::open(folder);
  ExecutionContext context;
  const DeferParametersGuard defer(context);
  const auto described = nn::make_model(context, opened.config(), DType::kFloat32);
  opened.check_parameters(described->named_parameters(), MissingHead::kFresh);
  return opened;
}

void load_hf_weights(const HfFolder& folder, nn::Module& module) {
  const auto parameters = module.named_parameters();
  folder.check_parameters(parameters);
  HostBlocks blocks(module.context());
  for (const nn::NamedParameter& p : parameters) {
    const Tensor& value = p.parameter->value;
    folder.read(p.name, value.shape(), whole_piece(value.shape()), value, blocks);
  }
}

}  // namespace meshloom::train
