// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/token_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/base/field_error.h"
#include "daemon/base/file_stamp.h"
#include "daemon/train/data/text_data.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr std::int64_t kReadTokens = std::int64_t{1} << 18;

std::string key_of(const TokenStream& stream, std::int64_t vocab_size) {
  std::string key = fmt::format("ids below {}\n", vocab_size);
  for (const auto& [name, file] : stream.files())
    key += fmt::format("{}\n{}\n", file->path().string(),
                       base::file_stamp(file->path()).value_or(std::string()));
  return key;
}

void check_stream_ids(const TokenStream& stream, std::int64_t vocab_size,
                      std::chrono::steady_clock::time_point until, SoundLines& sound) {
  const std::string key = key_of(stream, vocab_size);
  if (sound.has(key)) return;
  std::vector<std::int64_t> tokens;
  for (std::int64_t at = 0; at < stream.size(); at += kReadTokens) {
    if (std::chrono::steady_clock::now() >= until) return;
    tokens.resize(static_cast<std::size_t>(std::min(kReadTokens, stream.size() - at)));
    stream.read(at, tokens);
    check_token_ids(tokens, at, stream, vocab_size);
  }
  sound.add(key);
}

}  // namespace

void check_token_ids(std::span<const std::int64_t> tokens, std::int64_t begin,
                     const TokenStream& stream, std::int64_t vocab_size) {
  const auto outside = std::find_if(tokens.begin(), tokens.end(),
                                    [&](std::int64_t token) { return token >= vocab_size; });
  if (outside == tokens.end()) return;
  const std::int64_t position = begin + (outside - tokens.begin());
  throw InvalidArgument(
      fmt::format("data: token {} at position {} ({}) is not below the model's vocab_size {}",
                  *outside, position, stream.file_of(position), vocab_size),
      "TOKEN_OUT_OF_RANGE",
      {{"token", std::to_string(*outside)}, {"vocab_size", std::to_string(vocab_size)}});
}

void check_files_of_tokens(const v1::RunConfig& resolved, std::int64_t vocab_size,
                           const std::filesystem::path& data_dir,
                           std::chrono::steady_clock::time_point until, SoundLines& sound) {
  const auto check_path = [&](const DataFiles& files, const std::string& field) {
    if (files.format != TokenFormat::kLlmc && files.format != TokenFormat::kNanogpt) return;
    base::with_field(field,
                     [&] { check_stream_ids(TokenStream::open(files), vocab_size, until, sound); });
  };
  const RunFiles files = find_run_files(resolved, data_dir, "run.data");
  check_path(files.training, "run.data.path");
  if (files.validation) check_path(*files.validation, "run.data.validation_path");
  for (std::size_t i = 0; i < files.sets.size(); ++i)
    check_path(files.sets[i], validation_set_field(i));
}

}  // namespace meshloom::train
