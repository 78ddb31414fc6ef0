// SPDX-License-Identifier: Apache-2.0
// What the generation_config.json of a model's folder says of drawing from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "v1/config.pb.h"

namespace meshloom::train {

/// Nothing in it can be wrong enough to keep anyone from drawing: what cannot be used is left out,
/// and told.
struct GenerationConfig {
  /// Tokens that end a sequence, in place of those of config.json; nothing: the file names none.
  std::optional<std::vector<std::int64_t>> end_tokens;
  std::vector<std::string> end_notes;  ///< why some of those do not count
  // Defaults of a request to generate; samples of jobs and runs do not have them.
  std::optional<double> temperature;  ///< 0 where it says do_sample: false
  bool greedy = false;                ///< it says so
  std::optional<int> top_k;           ///< 0: all
  std::optional<double> top_p;
  std::vector<std::string> notes;  ///< of what it gives beside them that cannot be used
};

/// Reads the file of a folder, which may be an empty path or have no such file. `vocab_size` is the
/// model's.
GenerationConfig read_generation_config(const std::filesystem::path& folder,
                                        std::int64_t vocab_size);

/// Reads the file of the folder that the model which a config names comes from; `model_folder` is
/// that of run.model.name. Throws as source_folder.
GenerationConfig find_generation_config(const v1::ModelSource& source,
                                        const std::filesystem::path& data_dir,
                                        const std::filesystem::path& model_folder,
                                        std::int64_t vocab_size);

/// Adds to `warnings`, unless it is null, why end tokens of that file do not count.
void note_end_tokens(const v1::ModelSource& source, const std::filesystem::path& data_dir,
                     const std::filesystem::path& model_folder, std::int64_t vocab_size,
                     std::vector<std::string>* warnings);

/// Gives a request to generate what it leaves out as the file has it.
/// Returns what there is to be said of it: the values that were taken, and the notes.
std::vector<std::string> take_generation_defaults(const GenerationConfig& config,
                                                  v1::SamplingParams* params);

}  // namespace meshloom::train
