// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/wide_tokens.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr std::int64_t kPlaces = 4;
constexpr std::int64_t kValuesAtPlace = 1024;
constexpr std::int64_t kFewestLow = 32;

/// How many of the values that were looked at are above the limit, by position modulo 4.
struct HighCounts {
  std::array<std::int64_t, 4> above = {};
  std::int64_t values = 0;

  std::int64_t of_parity(std::size_t odd) const { return above[odd] + above[odd + 2]; }
};

HighCounts look_at(const TokenStream& stream, std::int64_t begin, std::int64_t size,
                   std::int64_t limit) {
  HighCounts counts;
  const std::int64_t length = std::min(size, kValuesAtPlace);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(length));
  const std::int64_t places = size <= kPlaces * kValuesAtPlace ? 1 : kPlaces;
  if (places == 1) tokens.resize(static_cast<std::size_t>(size));
  for (std::int64_t place = 0; place < places; ++place) {
    // The last place ends where the file does; all begin where an id of 8 bytes may.
    const std::int64_t last = size - static_cast<std::int64_t>(tokens.size());
    const std::int64_t at = places == 1 ? 0 : last * place / (places - 1) / 4 * 4;
    stream.read(begin + at, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) counts.above[i % 4] += tokens[i] > limit;
    counts.values += static_cast<std::int64_t>(tokens.size());
  }
  return counts;
}

[[noreturn]] void refuse(const std::string& file, const HighCounts& counts, std::int64_t most_high,
                         int bits) {
  throw InvalidArgument(
      fmt::format(
          "{}: every second uint16 of the {} that were looked at is {}: these are ids of {} bits "
          "without a header, which would be read as x 0 x 0. Write them as uint16 (numpy: "
          "ids.astype(\"uint16\").tofile(\"tokens.bin\")), or as uint32 behind llm.c's header "
          "of 256 int32 (20240801, 7, the number of ids, then zeros), which \"meshloom data "
          "tokenize\" writes",
          file, counts.values, most_high == 0 ? "0" : fmt::format("at most {}", most_high), bits),
      "TOKENS_TOO_WIDE", {{"path", file}, {"bits", std::to_string(bits)}});
}

}  // namespace

void refuse_wide_tokens(const TokenStream& stream, std::int64_t most_high) {
  if (stream.format() != TokenFormat::kNanogpt) return;
  const std::vector<std::int64_t>& starts = stream.file_starts();
  for (std::size_t file = 0; file < starts.size(); ++file) {
    const std::int64_t end = file + 1 < starts.size() ? starts[file + 1] : stream.size();
    const HighCounts counts = look_at(stream, starts[file], end - starts[file], most_high);
    for (const std::size_t odd : {1u, 0u}) {
      if (counts.of_parity(odd) > 0 || counts.of_parity(1 - odd) < kFewestLow) continue;
      const bool whole = counts.above[1 - odd] > 0 && counts.above[3 - odd] > 0;
      refuse(stream.file_of(starts[file]), counts, most_high, whole ? 32 : 64);
    }
  }
}

}  // namespace meshloom::train
