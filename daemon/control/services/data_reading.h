// SPDX-License-Identifier: Apache-2.0
// DataReading: by what a client wants text and tokens to be read, outside of any job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "daemon/control/host/hold.h"
#include "daemon/control/jobs/model_folders.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/data/chat_data.h"
#include "v1/data_service.pb.h"

namespace meshloom::control {

struct DataReading {
  v1::RunConfig config;                  ///< data: as of a job, without a path
  text::FolderTokenizer tokenizer = {};  ///< its tokenizer is null if none was named
  std::filesystem::path folder = {};     ///< of the tokenizer; empty: bytes, or none was named
  std::int64_t context = 0;              ///< tokens that its model reads at once; 0: not known
  Hold hold;                             ///< keeps the model of the daemon that it is of
};

/// Throws with the fields of a job ("run.data.tokenizer"): TOKENIZER_NEEDED for a preset that has
/// none, what ModelFolders, text::open_tokenizer and `stop` throw.
DataReading open_reading(const v1::TextReading& given, ModelFolders& folders,
                         const std::filesystem::path& data_dir, const text::StopCheck& stop);

/// Text without a tokenizer that was named is read as bytes. Fills in which tokens stand around
/// documents, as a job does; throws with the field where there are none. What makes texts of
/// conversations, if the reading says that they are (find_files).
std::optional<train::ChatSetup> resolve_reading(DataReading& reading,
                                                const std::filesystem::path& data_dir);

/// The files of `path`, as a job with this reading takes them. Where they are conversations the
/// reading's data.chat says so from then on.
train::DataFiles find_files(DataReading& reading, const std::string& path,
                            const std::filesystem::path& data_dir);

}  // namespace meshloom::control
