// SPDX-License-Identifier: Apache-2.0
// save_hf_folder.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "daemon/tensor/host_pieces.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/checkpoint/digest.h"
#include "daemon/train/checkpoint/export_digests.h"
#include "daemon/train/checkpoint/file_system.h"
#include "daemon/train/checkpoint/hf_byte_tokenizer.h"
#include "daemon/train/checkpoint/hf_folder.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

/// One safetensors file of the folder.
struct Shard {
  std::string file_name;
  std::vector<const HfParameter*> tensors;
};

std::uint64_t stored_bytes(const HfParameter& tensor, DType dtype) {
  return static_cast<std::uint64_t>(numel(tensor.shape)) * dtype_size(dtype);
}

/// Fills one file after the other.
std::vector<Shard> make_shards(const std::vector<HfParameter>& tensors,
                               const HfSaveOptions& options) {
  std::vector<Shard> shards(1);
  std::uint64_t bytes = 0;
  for (const HfParameter& tensor : tensors) {
    const std::uint64_t more = stored_bytes(tensor, options.dtype);
    if (bytes > 0 && bytes + more > options.max_file_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().tensors.push_back(&tensor);
    bytes += more;
  }
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].file_name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

/// What is written is digested on the way.
ManifestFile write_shard(const fs::path& folder, const Shard& shard, DType dtype) {
  std::map<std::string_view, const HfParameter*> values;
  std::vector<SafetensorsEntry> entries;
  for (const HfParameter* tensor : shard.tensors) {
    values[tensor->name] = tensor;
    SafetensorsEntry& entry = entries.emplace_back();
    entry.name = tensor->name;
    entry.dtype = dtype;
    entry.shape = tensor->shape;
  }
  Digest digest;
  std::uint64_t bytes = 0;
  SafetensorsWriter writer(folder / shard.file_name, std::move(entries), {{"format", "pt"}},
                           [&](std::span<const std::byte> written) {
                             digest.update(written);
                             bytes += written.size();
                           });
  for (const SafetensorsEntry& entry : writer.entries()) {
    const Tensor value = ops::contiguous(values.at(entry.name)->value().detach());
    HostPieces(value.context()).read(value.view(), dtype, [&](std::span<const std::byte> piece) {
      writer.write_part(piece);
    });
  }
  writer.close();
  return {shard.file_name, bytes, digest.hex()};
}

ManifestFile write_text(const fs::path& path, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  auto file = posix_file_system().create(path, text.size());
  file->write(bytes);
  file->sync();
  file->close();
  return {path.filename().string(), text.size(), digest_of(bytes)};
}

std::string index_text(const std::vector<Shard>& shards, DType dtype) {
  nlohmann::json weight_map = nlohmann::json::object();
  std::uint64_t total = 0;
  for (const Shard& shard : shards) {
    for (const HfParameter* tensor : shard.tensors) {
      weight_map[tensor->name] = shard.file_name;
      total += stored_bytes(*tensor, dtype);
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  return index.dump(2) + "\n";
}

/// Files of the same name, of which the later is the one that is there.
void keep(ManifestFile file, std::vector<ManifestFile>* written) {
  std::erase_if(*written, [&](const ManifestFile& other) { return other.name == file.name; });
  written->push_back(std::move(file));
}

void write_files(const fs::path& folder, const nn::ModelConfig& config,
                 const std::vector<HfParameter>& tensors, const HfSaveOptions& options) {
  std::vector<ManifestFile> written;
  const auto put = [&](const std::string& name, const std::string& content) {
    keep(write_text(folder / name, content), &written);
  };
  const std::vector<Shard> shards = make_shards(tensors, options);
  for (const Shard& shard : shards) keep(write_shard(folder, shard, options.dtype), &written);
  if (shards.size() > 1) put("model.safetensors.index.json", index_text(shards, options.dtype));
  put("config.json", nn::to_hf_config(config, options.dtype));
  if (config.architecture != nn::Architecture::kBert)
    put("generation_config.json", nn::to_hf_generation_config(config));
  for (const CarriedFile& file : options.carried) put(file.name, file.bytes);
  if (options.byte_tokenizer && !text::has_tokenizer(folder)) {
    put("tokenizer.json", byte_tokenizer_json());
    put("tokenizer_config.json", byte_tokenizer_config_json(config.max_position_embeddings));
  }
  write_text(folder / kExportDigestsName, export_digests_to_json(written));
}

}  // namespace

void save_hf_folder(const fs::path& folder, const nn::ModelConfig& config,
                    const std::vector<HfParameter>& tensors, const HfSaveOptions& options) {
  check(options.dtype == DType::kFloat32 || options.dtype == DType::kBFloat16 ||
            options.dtype == DType::kFloat16,
        "export: weights are written as float32, bfloat16 or float16, not {}",
        dtype_name(options.dtype));
  check(!options.byte_tokenizer || config.vocab_size == kByteVocabulary,
        "export: a byte tokenizer needs a vocabulary of {}, not {}", kByteVocabulary,
        config.vocab_size);

  const fs::path normal = folder.lexically_normal();
  const fs::path target = normal.has_filename() ? normal : normal.parent_path();
  const fs::path temporary =
      target.parent_path() / fmt::format(".{}.{}.tmp", target.filename().string(), ::getpid());
  FileSystem& files = posix_file_system();
  files.remove_all(temporary);
  files.create_directories(temporary);
  try {
    write_files(temporary, config, tensors, options);
    put_in_place(files, temporary, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void save_hf_folder(const fs::path& folder, const nn::ModelConfig& config,
                    const std::vector<NamedTensor>& tensors, const HfSaveOptions& options) {
  std::vector<HfParameter> parameters;
  for (const NamedTensor& tensor : tensors)
    parameters.push_back(
        {tensor.name, tensor.value.shape(), [&value = tensor.value] { return value; }});
  save_hf_folder(folder, config, parameters, options);
}

void save_hf_folder(const fs::path& folder, nn::Model& model, const HfSaveOptions& options) {
  std::vector<NamedTensor> tensors;
  for (const nn::NamedParameter& p : model.named_parameters())
    tensors.push_back({p.name, p.parameter->value});
  save_hf_folder(folder, model.config(), tensors, options);
}

}  // namespace meshloom::train
