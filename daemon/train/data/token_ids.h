// SPDX-License-Identifier: Apache-2.0
// Token ids of files that somebody else has written, against the vocabulary of a model.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>

#include "daemon/train/data/sound_lines.h"
#include "daemon/train/files/token_stream.h"

namespace meshloom::v1 {
class RunConfig;
}

namespace meshloom::train {

/// `tokens` are those of the stream from `begin` on. Throws InvalidArgument (TOKEN_OUT_OF_RANGE)
/// naming file and position of the first one that is not below vocab_size.
void check_token_ids(std::span<const std::int64_t> tokens, std::int64_t begin,
                     const TokenStream& stream, std::int64_t vocab_size);

/// Checks, as check_token_ids does, all files of tokens of a resolved config, read until `until` at
/// most, but for those that are known to be sound, and adds those that it found so. Throws with the
/// field of the path.
void check_files_of_tokens(const v1::RunConfig& resolved, std::int64_t vocab_size,
                           const std::filesystem::path& data_dir,
                           std::chrono::steady_clock::time_point until, SoundLines& sound);

}  // namespace meshloom::train
