// SPDX-License-Identifier: Apache-2.0
// What files of text or tokens hold: how much, and a sample of it as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "daemon/control/services/data_reading.h"
#include "v1/data_service.pb.h"

namespace meshloom::control {

struct InspectionOptions {
  std::filesystem::path data_dir;
  std::optional<std::int64_t> seq_len;  ///< nothing: that of the reading's model, or a default
  int threads = 1;
  /// Called now and then; what it throws ends the reading.
  std::function<void(std::uint64_t bytes, std::uint64_t total_bytes)> progress;
};

/// Reads all of `path`, a file or a folder below the data dir. Throws as find_files and
/// text::encode_documents, and as the readers of the formats.
v1::DataInspection inspect_data(const std::string& path, DataReading reading,
                                const InspectionOptions& options);

/// Bytes of all files.
std::uint64_t bytes_of_files(const std::vector<std::filesystem::path>& files);

}  // namespace meshloom::control
