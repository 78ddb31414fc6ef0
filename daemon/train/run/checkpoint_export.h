// SPDX-License-Identifier: Apache-2.0
// The weights of a training checkpoint as a Hugging Face folder, without the ranks that wrote it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "kernels/base/dtype.h"

namespace meshloom::train {

struct CheckpointExport {
  DType dtype = DType::kFloat32;
  /// Called between files that are verified and parameters that are written, with the bytes that
  /// were read so far and all that will be. What it throws ends the export.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

/// Verifies `checkpoint`, which any mesh may have written, and puts its parameters together one
/// after the other on this thread: the largest one is all that is in memory at once. Its other
/// files, such as a tokenizer, go along. `folder` is written as save_hf_folder does. Throws
/// NotFound if there is no checkpoint, DataLoss naming the file that is damaged, ResourceExhausted,
/// IoError.
void export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                       const CheckpointExport& options);

}  // namespace meshloom::train
