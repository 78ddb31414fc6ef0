// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/token_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <tuple>

#include "daemon/base/files.h"
#include "daemon/base/stand_in.h"
#include "daemon/text/document_files.h"
#include "daemon/text/learned_tokens.h"
#include "daemon/text/token_file.h"
#include "daemon/train/files/paths.h"
#include "daemon/train/files/wide_tokens.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLlmcHeaderWords = 256;
constexpr std::size_t kLlmcHeaderBytes = kLlmcHeaderWords * 4;
constexpr std::size_t kStackBytes = std::size_t{16} << 10;  ///< at a time, on the stack

struct LlmcVariant {
  std::int32_t magic;
  std::int32_t version;
  int width;
};
constexpr std::array<LlmcVariant, 2> kLlmcVariants = {{{20240520, 1, 2}, {20240801, 7, 4}}};

using LlmcHeader = std::array<std::int32_t, kLlmcHeaderWords>;

/// The first words of a file; nothing if it has fewer.
std::optional<LlmcHeader> read_llmc_header(const base::InputFile& file) {
  if (file.size() < kLlmcHeaderBytes) return std::nullopt;
  LlmcHeader header;
  file.read(0, std::as_writable_bytes(std::span(header)));
  return header;
}

/// True for every file of llm.c: its magics are dates. Kinds that are not tokens are then refused
/// by name rather than read as nanoGPT's.
TokenFormat detect(const fs::path& path, base::Disk& disk) {
  const auto header = read_llmc_header(disk.open(path));
  if (header && header->front() >= 20240000 && header->front() < 20260000)
    return TokenFormat::kLlmc;
  if (path.extension() == ".bin") return TokenFormat::kNanogpt;
  const text::DocumentFile document = text::document_file(path, std::nullopt, disk);
  const bool is_lines = document.format == text::DocumentFormat::kJsonLines;
  return is_lines ? TokenFormat::kJsonLines : TokenFormat::kText;
}

bool is_text(TokenFormat format) {
  return format == TokenFormat::kText || format == TokenFormat::kJsonLines;
}

/// The format all files share.
TokenFormat detect_all(const std::vector<fs::path>& files, base::Disk& disk) {
  std::optional<TokenFormat> format;
  for (const fs::path& file : files) {
    const TokenFormat found = detect(file, disk);
    if (format && is_text(*format) && is_text(found)) {
      if (found == TokenFormat::kJsonLines) format = found;
      continue;
    }
    check(!format || *format == found,
          "data folder holds files of different formats: {} looks like {}, {} like {}; give "
          "data.format",
          files.front().string(), token_format_name(*format), file.string(),
          token_format_name(found));
    format = found;
  }
  return *format;
}

/// A pointer of git-lfs is no training data, and a page for people is no file of token ids.
void refuse_other_text(const base::InputFile& file, TokenFormat format) {
  std::string beginning(std::min<std::uint64_t>(file.size(), base::kStandInBytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(beginning)));
  if (is_text(format))
    base::refuse_git_lfs_pointer(beginning, file.path().string());
  else
    base::refuse_stand_in(beginning, file.path().string());
}

}  // namespace

const char* token_format_name(TokenFormat format) {
  switch (format) {
    case TokenFormat::kAuto: return "auto";
    case TokenFormat::kText: return "text";
    case TokenFormat::kJsonLines: return "jsonl";
    case TokenFormat::kLlmc: return "llmc";
    case TokenFormat::kNanogpt: return "nanogpt";
  }
  return "auto";
}

TokenStream::Part TokenStream::open_part(const fs::path& path, TokenFormat format,
                                         base::Disk& disk) {
  base::InputFile file = disk.open(path);
  const auto size = static_cast<std::int64_t>(file.size());
  refuse_other_text(file, format);
  if (format == TokenFormat::kText) return {std::move(file), 0, size, 1};
  if (format == TokenFormat::kNanogpt) {
    check(size % 2 == 0, "{}: a file of uint16 tokens has an even number of bytes, this one has {}",
          path.string(), size);
    return {std::move(file), 0, size / 2, 2};
  }
  const auto header = read_llmc_header(file);
  check(header.has_value(), "{}: {} bytes are less than llm.c's header of {}", path.string(), size,
        kLlmcHeaderBytes);
  const auto [magic, version, words] = std::tuple((*header)[0], (*header)[1], (*header)[2]);
  const auto variant =
      std::find_if(kLlmcVariants.begin(), kLlmcVariants.end(),
                   [&](const LlmcVariant& known) { return known.magic == header->front(); });
  check(variant != kLlmcVariants.end(),
        "{}: magic {} is not one of llm.c's token files (20240520 or 20240801)", path.string(),
        magic);
  const bool is_chat = magic == kLlmcVariants.back().magic && version == text::kChatVersion;
  check(version == variant->version || is_chat,
        "{}: version {} of llm.c's format {} is not known, expected {}", path.string(), version,
        magic, variant->version);
  const std::int64_t count = words;
  const std::int64_t expected =
      static_cast<std::int64_t>(kLlmcHeaderBytes) + count * variant->width;
  check(count >= 0 && size == expected,
        "{}: the header names {} tokens, which take {} bytes; the file has {}", path.string(),
        count, expected, size);
  return {std::move(file), kLlmcHeaderBytes, count, variant->width, is_chat};
}

DataFiles find_data_files(const fs::path& path, TokenFormat format, const fs::path& root,
                          base::Disk& disk) {
  const base::FileKind kind = disk.kind(path);
  if (kind == base::FileKind::kNone)
    throw NotFound(fmt::format("data {} does not exist", path.string()), "NOT_FOUND",
                   {{"path", path.string()}});
  const bool is_bin = format == TokenFormat::kLlmc || format == TokenFormat::kNanogpt;
  DataFiles found{path, {}, format};
  if (kind == base::FileKind::kFolder) {
    found.files = disk.files_below(path);
    if (is_bin)
      std::erase_if(found.files, [](const fs::path& file) { return file.extension() != ".bin"; });
  } else {
    found = {path.parent_path(), {path}, format};
  }
  check(!found.files.empty(), "data folder {} holds no {}files", path.string(),
        is_bin ? ".bin " : "");
  if (!root.empty())
    for (const fs::path& file : found.files) check_inside(file, root, disk);
  if (format == TokenFormat::kAuto) found.format = detect_all(found.files, disk);
  return found;
}

TokenStream TokenStream::open(const DataFiles& files, base::Disk& disk) {
  check_internal(files.format != TokenFormat::kAuto && files.format != TokenFormat::kJsonLines,
                 "data {}: {} is to be tokenized before it is read", files.folder.string(),
                 token_format_name(files.format));
  TokenStream stream;
  stream.folder_ = files.folder;
  stream.format_ = files.format;
  for (const fs::path& file : files.files) {
    Part part = open_part(file, stream.format_, disk);
    if (part.count == 0) continue;
    if (!stream.parts_.empty() && part.is_chat != stream.is_chat())
      throw InvalidArgument(fmt::format(
          "data {}: of {} and {} one holds conversations, the other does not",
          files.folder.string(), stream.parts_.front().file.path().string(), file.string()));
    stream.starts_.push_back(stream.size_);
    stream.size_ += part.count;
    stream.parts_.push_back(std::move(part));
  }
  check(stream.size_ > 0, "data {} is empty",
        files.files.size() == 1 ? files.files.front().string() : files.folder.string());
  refuse_wide_tokens(stream, 0);
  return stream;
}

std::size_t TokenStream::part_of(std::int64_t position) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), position);
  return static_cast<std::size_t>(next - starts_.begin()) - 1;
}

std::vector<std::pair<std::string, const base::InputFile*>> TokenStream::files() const {
  std::vector<std::pair<std::string, const base::InputFile*>> files;
  for (const Part& part : parts_)
    files.emplace_back(part.file.path().lexically_relative(folder_).string(), &part.file);
  return files;
}

std::string TokenStream::file_of(std::int64_t position) const {
  return parts_[part_of(position)].file.path().string();
}

void TokenStream::read_part(const Part& part, std::int64_t first, std::span<std::int64_t> out) {
  std::array<std::byte, kStackBytes> bytes;
  const auto width = static_cast<std::size_t>(part.width);
  std::uint64_t at = part.offset + static_cast<std::uint64_t>(first) * width;
  while (!out.empty()) {
    const std::size_t n = std::min(out.size(), kStackBytes / width);
    part.file.read(at, std::span(bytes).first(n * width));
    const std::byte* source = bytes.data();
    for (std::size_t i = 0; i < n; ++i, source += width) {
      std::uint32_t token = 0;
      std::memcpy(&token, source, width);
      out[i] = token;
    }
    at += n * width;
    out = out.subspan(n);
  }
}

void TokenStream::read(std::int64_t begin, std::span<std::int64_t> out) const {
  read_chat(begin, out);
  if (size_ > 0 && is_chat())
    for (std::int64_t& token : out) token = text::id_of(static_cast<text::TokenId>(token));
}

void TokenStream::read_chat(std::int64_t begin, std::span<std::int64_t> out) const {
  check_internal(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= size_,
                 "token stream: [{}, {}) is outside [0, {})", begin,
                 begin + static_cast<std::int64_t>(out.size()), size_);
  std::size_t done = 0;
  for (std::size_t index = out.empty() ? 0 : part_of(begin); done < out.size(); ++index) {
    const Part& part = parts_[index];
    const std::int64_t from = begin + static_cast<std::int64_t>(done) - starts_[index];
    const auto n = std::min(out.size() - done, static_cast<std::size_t>(part.count - from));
    read_part(part, from, out.subspan(done, n));
    done += n;
  }
}

}  // namespace meshloom::train
