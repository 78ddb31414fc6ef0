// SPDX-License-Identifier: Apache-2.0
// TokenStream: the tokens of one or several files as one long sequence, read as they are needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/disk.h"

namespace meshloom::train {

/// The format says how a file holds tokens.
/// - kText: bytes; each byte is a token (the byte tokenizer), unless the text is to be tokenized.
/// - kJsonLines: documents in the lines of .jsonl and .ndjson, always to be tokenized. A folder
///   with such files may have others of text.
/// - kLlmc: llm.c's .bin: a header of 256 int32 (magic, version, token count, rest unused), then
///   tokens. Magic 20240520 version 1: uint16; magic 20240801 version 7: uint32. Little endian.
///   Version 1007 (text/token_file.h) has conversations, whose tokens say which of them are learnt.
/// - kNanogpt: nanoGPT's .bin: uint16 tokens and nothing else (refuse_wide_tokens).
enum class TokenFormat { kAuto, kText, kJsonLines, kLlmc, kNanogpt };

const char* token_format_name(TokenFormat format);

/// DataFiles lists the files of a data path.
struct DataFiles {
  std::filesystem::path folder;  ///< that their names are relative to
  std::vector<std::filesystem::path> files;
  TokenFormat format = TokenFormat::kText;  ///< of all; never kAuto

  std::string name_of(const std::filesystem::path& file) const {
    return file.lexically_relative(folder).string();
  }
};

/// Finds a file, or a folder: all its files below, hidden ones left out, in order of their relative
/// paths (for the .bin formats only those that end in .bin). kAuto: by name and content (llm.c by
/// its magic; other .bin nanoGPT; .jsonl; else text, and InvalidArgument (NOT_TEXT) for what is
/// none); files of a folder must then agree. Files must lie below `root` after links are followed
/// (empty root: not checked). Throws NotFound, IoError, or InvalidArgument naming the file.
DataFiles find_data_files(const std::filesystem::path& path, TokenFormat format,
                          const std::filesystem::path& root = {},
                          base::Disk& disk = base::own_disk());

class TokenStream {
 public:
  /// Throws IoError, or InvalidArgument naming the file and what is wrong with it.
  static TokenStream open(const DataFiles& files, base::Disk& disk = base::own_disk());
  /// Opens the files that find_data_files finds at the path, and throws what that throws.
  static TokenStream open(const std::filesystem::path& path, TokenFormat format,
                          const std::filesystem::path& root = {},
                          base::Disk& disk = base::own_disk()) {
    return open(find_data_files(path, format, root, disk), disk);
  }

  TokenFormat format() const { return format_; }
  /// Returns the bytes that a token takes in the first file.
  int token_bytes() const { return parts_.front().width; }
  /// Tells whether they are conversations; all files are then.
  bool is_chat() const { return parts_.front().is_chat; }
  /// Returns how many tokens there are in all.
  std::int64_t size() const { return size_; }
  /// Returns the positions where a file begins; the first is 0.
  const std::vector<std::int64_t>& file_starts() const { return starts_; }
  /// Returns every file that holds tokens, under its name below the stream's path.
  std::vector<std::pair<std::string, const base::InputFile*>> files() const;
  /// Returns the name of the file that holds a position: for error texts.
  std::string file_of(std::int64_t position) const;
  /// Sets out[i] = token begin + i; [begin, begin + out.size()) lies inside the stream. Throws
  /// IoError naming the file if it was cut since it was opened, or cannot be read.
  void read(std::int64_t begin, std::span<std::int64_t> out) const;
  /// Reads, as read() does, the tokens of conversations, with the bits of text/learned_tokens.h.
  void read_chat(std::int64_t begin, std::span<std::int64_t> out) const;

 private:
  /// Part holds one file's tokens.
  struct Part {
    base::InputFile file;
    std::uint64_t offset;  ///< byte where its first token is
    std::int64_t count;
    int width;  ///< bytes per token: 1, 2 or 4
    bool is_chat = false;
  };

  static Part open_part(const std::filesystem::path& path, TokenFormat format, base::Disk& disk);
  static void read_part(const Part& part, std::int64_t first, std::span<std::int64_t> out);

  std::size_t part_of(std::int64_t position) const;

  std::filesystem::path folder_;  ///< that the files lie below
  TokenFormat format_ = TokenFormat::kText;
  std::vector<Part> parts_;
  std::vector<std::int64_t> starts_;
  std::int64_t size_ = 0;
};

}  // namespace meshloom::train
