// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/token_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "daemon/train/paths.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLlmcHeaderWords = 256;
constexpr std::size_t kLlmcHeaderBytes = kLlmcHeaderWords * 4;

struct LlmcVariant {
  std::int32_t magic;
  std::int32_t version;
  int width;
};
constexpr std::array<LlmcVariant, 2> kLlmcVariants = {{{20240520, 1, 2}, {20240801, 7, 4}}};

std::int32_t header_word(std::span<const std::byte> bytes, std::size_t index) {
  std::int32_t word = 0;
  std::memcpy(&word, bytes.data() + index * 4, 4);
  return word;
}

const LlmcVariant* llmc_variant(std::span<const std::byte> bytes) {
  if (bytes.size() < kLlmcHeaderBytes) return nullptr;
  const std::int32_t magic = header_word(bytes, 0);
  for (const LlmcVariant& variant : kLlmcVariants)
    if (variant.magic == magic) return &variant;
  return nullptr;
}

/// True for every file of llm.c: its magics are dates. Kinds that are not tokens are then refused
/// by name rather than read as nanoGPT's.
bool is_llmc(std::span<const std::byte> bytes) {
  if (bytes.size() < kLlmcHeaderBytes) return false;
  const std::int32_t magic = header_word(bytes, 0);
  return magic >= 20240000 && magic < 20260000;
}

TokenFormat detect(const fs::path& path) {
  const auto file = MappedFile::open(path);
  if (is_llmc(file->bytes())) return TokenFormat::kLlmc;
  return path.extension() == ".bin" ? TokenFormat::kNanogpt : TokenFormat::kText;
}

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(folder);
       entry != fs::recursive_directory_iterator(); ++entry) {
    if (hidden(entry->path())) {
      entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_regular_file()) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The format all files share.
TokenFormat detect_all(const std::vector<fs::path>& files) {
  std::optional<TokenFormat> format;
  for (const fs::path& file : files) {
    const TokenFormat found = detect(file);
    check(!format || *format == found,
          "data folder holds files of different formats: {} looks like {}, {} like {}; give "
          "data.format",
          files.front().string(), token_format_name(*format), file.string(),
          token_format_name(found));
    format = found;
  }
  return *format;
}

}  // namespace

const char* token_format_name(TokenFormat format) {
  switch (format) {
    case TokenFormat::kAuto: return "auto";
    case TokenFormat::kText: return "text";
    case TokenFormat::kLlmc: return "llmc";
    case TokenFormat::kNanogpt: return "nanogpt";
  }
  return "auto";
}

TokenStream::Part TokenStream::open_part(const fs::path& path, TokenFormat format) {
  auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (format == TokenFormat::kText) return {file, bytes.data(), size, 1};
  if (format == TokenFormat::kNanogpt) {
    check(size % 2 == 0, "{}: a file of uint16 tokens has an even number of bytes, this one has {}",
          path.string(), size);
    return {file, bytes.data(), size / 2, 2};
  }
  check(bytes.size() >= kLlmcHeaderBytes, "{}: {} bytes are less than llm.c's header of {}",
        path.string(), size, kLlmcHeaderBytes);
  const LlmcVariant* variant = llmc_variant(bytes);
  check(variant != nullptr, "{}: magic {} is not one of llm.c's token files (20240520 or 20240801)",
        path.string(), header_word(bytes, 0));
  check(header_word(bytes, 1) == variant->version,
        "{}: version {} of llm.c's format {} is not known, expected {}", path.string(),
        header_word(bytes, 1), variant->magic, variant->version);
  const std::int64_t count = header_word(bytes, 2);
  const std::int64_t expected =
      static_cast<std::int64_t>(kLlmcHeaderBytes) + count * variant->width;
  check(count >= 0 && size == expected,
        "{}: the header names {} tokens, which take {} bytes; the file has {}", path.string(),
        count, expected, size);
  return {file, bytes.data() + kLlmcHeaderBytes, count, variant->width};
}

TokenStream TokenStream::open(const fs::path& path, TokenFormat format, const fs::path& root) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status))
    throw NotFound(fmt::format("data {} does not exist", path.string()), "NOT_FOUND",
                   {{"path", path.string()}});
  std::vector<fs::path> files = fs::is_directory(status) ? files_below(path) : std::vector{path};
  if (fs::is_directory(status) && (format == TokenFormat::kLlmc || format == TokenFormat::kNanogpt))
    std::erase_if(files, [](const fs::path& file) { return file.extension() != ".bin"; });
  check(!files.empty(), "data folder {} holds no {}files", path.string(),
        format == TokenFormat::kLlmc || format == TokenFormat::kNanogpt ? ".bin " : "");
  if (!root.empty())
    for (const fs::path& file : files) check_inside(file, root);

  TokenStream stream;
  stream.format_ = format == TokenFormat::kAuto ? detect_all(files) : format;
  for (const fs::path& file : files) {
    Part part = open_part(file, stream.format_);
    if (part.count == 0) continue;
    stream.starts_.push_back(stream.size_);
    stream.size_ += part.count;
    stream.parts_.push_back(std::move(part));
  }
  check(stream.size_ > 0, "data {} is empty", path.string());
  return stream;
}

std::size_t TokenStream::part_of(std::int64_t position) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), position);
  return static_cast<std::size_t>(next - starts_.begin()) - 1;
}

std::string TokenStream::file_of(std::int64_t position) const {
  return parts_[part_of(position)].file->path().string();
}

void TokenStream::read(std::int64_t begin, std::span<std::int64_t> out) const {
  check_internal(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= size_,
                 "token stream: [{}, {}) is outside [0, {})", begin,
                 begin + static_cast<std::int64_t>(out.size()), size_);
  std::size_t done = 0;
  for (std::size_t index = out.empty() ? 0 : part_of(begin); done < out.size(); ++index) {
    const Part& part = parts_[index];
    const std::int64_t from = begin + static_cast<std::int64_t>(done) - starts_[index];
    const auto n = std::min(out.size() - done, static_cast<std::size_t>(part.count - from));
    const std::byte* source = part.tokens + from * part.width;
    for (std::size_t i = 0; i < n; ++i, source += part.width) {
      std::uint32_t token = 0;
      std::memcpy(&token, source, static_cast<std::size_t>(part.width));
      out[done + i] = token;
    }
    done += n;
  }
}

}  // namespace meshloom::train
