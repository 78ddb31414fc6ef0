// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/checkpoint_export.h"

#include "daemon/train/files/hf_byte_tokenizer.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelPrefix = "model.";

/// How much of an export was read.
class Meter {
 public:
  Meter(const CheckpointExport& options, std::int64_t total) : options_(options), total_(total) {}

  void add(std::int64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_, total_);
  }

 private:
  const CheckpointExport& options_;
  const std::int64_t total_;
  std::int64_t done_ = 0;
};

bool is_parameter(const ManifestTensor& tensor) { return tensor.name.starts_with(kModelPrefix); }

std::int64_t bytes_of(const ManifestTensor& tensor) {
  return numel(tensor.shape) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

void export_checkpoint(const fs::path& checkpoint, const fs::path& folder,
                       const CheckpointExport& options) {
  const Manifest manifest = read_manifest(checkpoint);
  std::int64_t total = 0;
  for (const ManifestFile& file : manifest.files) total += static_cast<std::int64_t>(file.bytes);
  for (const ManifestTensor& tensor : manifest.tensors)
    if (is_parameter(tensor)) total += bytes_of(tensor);
  Meter meter(options, total);
  const auto files = static_cast<int>(manifest.files.size());
  for (int i = 0; i < files; ++i) {
    // A stop is heard between two pieces of a file.
    verify_tensor_files(checkpoint, manifest, i, files, [&] { meter.add(0); });
    meter.add(static_cast<std::int64_t>(manifest.files[static_cast<std::size_t>(i)].bytes));
  }
  verify_other_files(checkpoint, manifest);
  ExecutionContext context;
  const CheckpointReader reader(checkpoint, manifest);
  const nn::ModelConfig config = nn::parse_hf_config(manifest.model_config);
  std::vector<HfParameter> parameters;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!is_parameter(tensor)) continue;
    parameters.push_back(
        {tensor.name.substr(kModelPrefix.size()), tensor.shape, [&, &tensor = tensor] {
           const Tensor value = empty(context, tensor.shape, DType::kFloat32);
           reader.read(tensor.name, value);
           meter.add(bytes_of(tensor));
           return value;
         }});
  }
  HfSaveOptions save;
  save.dtype = options.dtype;
  for (const ManifestFile& file : manifest.other_files)
    save.carried.push_back(read_carried_file(checkpoint / file.name));
  save.byte_tokenizer = config.vocab_size == kByteVocabulary;
  save_hf_folder(folder, config, parameters, save);
}

}  // namespace meshloom::train
