// SPDX-License-Identifier: Apache-2.0
// save_hf_folder.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "daemon/tensor/host_pieces.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/files/digest.h"
#include "daemon/train/files/export_digests.h"
#include "daemon/train/files/file_system.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/files/hf_names.h"
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

/// The first of 16-bit floats that is infinite; their number if there is none.
std::size_t find_infinite(std::span<const std::byte> values, DType dtype) {
  const std::uint16_t infinity = dtype == DType::kFloat16 ? 0x7c00u : 0x7f80u;
  const std::size_t count = values.size() / sizeof infinity;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, values.data() + i * sizeof bits, sizeof bits);
    if ((bits & 0x7fffu) == infinity) return i;
  }
  return count;
}

float element_of(const Tensor& tensor, std::size_t i) {
  const TensorView& all = tensor.view();
  float value = 0.0f;
  HostPieces(tensor.context())
      .read(make_view(static_cast<std::byte*>(all.data) + i * dtype_size(all.dtype), all.dtype, {1},
                      all.device),
            DType::kFloat32, [&](std::span<const std::byte> bytes) {
              std::memcpy(&value, bytes.data(), sizeof value);
            });
  return value;
}

/// Throws if one of the elements of `tensor` from `first` on is finite, and infinite in `written`.
void check_range(const std::string& name, const Tensor& tensor, std::size_t first,
                 std::span<const std::byte> written, DType dtype) {
  if (dtype_size(dtype) != sizeof(std::uint16_t) || tensor.view().dtype == dtype) return;
  const std::size_t count = written.size() / sizeof(std::uint16_t);
  for (std::size_t i = 0; i < count; ++i) {
    i += find_infinite(written.subspan(i * sizeof(std::uint16_t)), dtype);
    if (i >= count) return;
    const float value = element_of(tensor, first + i);
    if (!std::isfinite(value)) continue;
    throw FailedPrecondition(
        fmt::format("export: {} has the value {:g} (element {}), which is infinite in {}, whose "
                    "largest is {}: export to float32{}",
                    name, value, first + i, dtype_name(dtype),
                    dtype == DType::kFloat16 ? "65504" : "3.38953e+38",
                    dtype == DType::kFloat16 ? " or bfloat16" : ""),
        kValueOverflows,
        {{"tensor", name}, {"value", fmt::format("{:g}", value)}, {"dtype", dtype_name(dtype)}});
  }
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
    std::size_t done = 0;
    HostPieces(value.context()).read(value.view(), dtype, [&](std::span<const std::byte> piece) {
      check_range(entry.name, value, done, piece, dtype);
      done += piece.size() / dtype_size(dtype);
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

/// transformers ties BERT's two output biases only where it ties the weights: else both names are
/// written. The values are made once.
std::vector<HfParameter> with_second_bias(const nn::ModelConfig& config,
                                          std::vector<HfParameter> tensors) {
  const auto& bias = hf_name_rules(config.architecture).tied_bias;
  if (!bias || config.tie_word_embeddings) return tensors;
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const HfParameter& tensor) {
    return tensor.name == bias->parameter;
  });
  if (found == tensors.end()) return tensors;
  found->value = [make = found->value, made = std::make_shared<Tensor>()] {
    if (!made->defined()) *made = make();
    return *made;
  };
  HfParameter second = *found;
  second.name = bias->tied;
  tensors.push_back(std::move(second));
  return tensors;
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
  if (config.is_causal()) put("generation_config.json", nn::to_hf_generation_config(config));
  for (const CarriedFile& file : options.carried) put(file.name, file.bytes);
  if (options.byte_tokenizer && !text::has_tokenizer(folder)) {
    put("tokenizer.json", byte_tokenizer_json());
    put("tokenizer_config.json", byte_tokenizer_config_json(config.context_length()));
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
    write_files(temporary, config, with_second_bias(config, tensors), options);
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
