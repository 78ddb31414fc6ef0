// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/document_files.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/base/stand_in.h"
#include "daemon/text/text_mode.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kReadBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kLookedAt = std::uint64_t{64} << 10;
constexpr std::array kOthers = {".npy",         ".npz",     ".bin",   ".idx", ".pkl", ".pt",
                                ".safetensors", ".parquet", ".arrow", ".gz",  ".bz2", ".xz",
                                ".zst",         ".zip",     ".tar",   ".json"};

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw InvalidArgument(fmt::format("{} {}: expected files of text, or .jsonl", path.string(), why),
                        "NOT_TEXT", {{"path", path.string()}});
}

/// Until `body` returns false.
void for_each_line(const base::InputFile& file,
                   const std::function<bool(const std::string& line)>& body) {
  std::string line, part;
  for (std::uint64_t at = 0; at < file.size(); at += part.size()) {
    part.resize(std::min(kReadBytes, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(part)));
    std::size_t from = 0;
    for (std::size_t end; (end = part.find('\n', from)) != std::string::npos; from = end + 1) {
      if (!body(line.append(part, from, end - from))) return;
      line.clear();
    }
    line.append(part, from);
    if (line.size() > kMostDocumentBytes)
      throw InvalidArgument(fmt::format("{} has a line of more than {} bytes", file.path().string(),
                                        kMostDocumentBytes),
                            "FILE_TOO_LARGE", {{"path", file.path().string()}});
  }
  if (!line.empty()) body(line);
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

DocumentFile document_file(const fs::path& path, std::optional<DocumentFormat> format,
                           base::Disk& disk) {
  const std::string extension = path.extension().string();
  if (!format && std::find(kOthers.begin(), kOthers.end(), extension) != kOthers.end())
    refuse(path, fmt::format("ends in {}", extension));
  const base::InputFile file = disk.open(path);
  std::string head(std::min(file.size(), kLookedAt), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  base::refuse_git_lfs_pointer(head, path.string());
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF"))
    refuse(path, "is UTF-16 by its byte-order mark, not UTF-8");
  if (head.find('\0') != std::string::npos)
    refuse(path, fmt::format("has a zero byte at {}", head.find('\0')));
  if (format) return {path, *format};
  const bool is_lines = extension == ".jsonl" || extension == ".ndjson";
  return {path, is_lines ? DocumentFormat::kJsonLines : DocumentFormat::kText};
}

std::vector<DocumentFile> find_document_files(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {document_file(path)};
  std::vector<fs::path> paths;
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const bool is_hidden = entry->path().filename().string().starts_with('.');
    if (is_hidden) {
      entry.disable_recursion_pending();
      continue;
    }
    // What cannot be looked at is taken for a file, which then cannot be opened by its name.
    std::error_code unknown;
    if (!entry->is_directory(unknown))
      paths.push_back(entry->path());
    else if (entry->is_symlink(unknown))
      refuse(entry->path(), "is a symbolic link to a folder");
  }
  if (error) base::throw_input_error("cannot list", path, error.value());
  std::sort(paths.begin(), paths.end());
  if (paths.empty())
    throw InvalidArgument(fmt::format("{} holds no files", path.string()), "NOT_TEXT",
                          {{"path", path.string()}});
  std::vector<DocumentFile> files;
  for (const fs::path& file : paths) files.push_back(document_file(file));
  return files;
}

void check_document_size(const DocumentFile& file) {
  if (file.format != DocumentFormat::kText) return;
  if (const std::uint64_t bytes = base::InputFile(file.path).size(); bytes > kMostDocumentBytes)
    throw InvalidArgument(
        fmt::format("{} has {} bytes, and this tokenizer reads a document as one, of at most {}: "
                    "divide it, or make it .jsonl",
                    file.path.string(), bytes, kMostDocumentBytes),
        "FILE_TOO_LARGE", {{"path", file.path.string()}});
}

bool check_lines(const DocumentFile& file, const DocumentReading& reading,
                 const std::function<bool(std::uint64_t bytes)>& goes_on) {
  if (file.format != DocumentFormat::kJsonLines) return true;
  std::uint64_t seen = 0;
  std::int64_t number = 0;
  bool is_wanted = true;
  for_each_line(base::InputFile(file.path), [&](const std::string& line) {
    ++number;
    if (!plainly_has_text(line, reading.field) && !is_blank(line))
      document_of_line(line, reading, {file.path, number});
    seen += line.size();
    return is_wanted = goes_on(seen);
  });
  return is_wanted;
}

void check_first_lines(const DocumentFile& file, const DocumentReading& reading) {
  check_lines(file, reading, [](std::uint64_t bytes) { return bytes < kLookedAt; });
}

void for_each_json_line(const DocumentFile& file,
                        const std::function<bool(std::string line, std::int64_t number)>& body) {
  std::int64_t number = 0;
  for_each_line(base::InputFile(file.path), [&](const std::string& line) {
    ++number;
    return is_blank(line) || body(line, number);
  });
}

void for_each_document(const DocumentFile& file, const DocumentReading& reading,
                       const std::function<void(Document document)>& body,
                       const std::function<void(LineRead line)>& read) {
  const base::InputFile input(file.path);
  if (file.format == DocumentFormat::kText) {
    std::string text = input.read_text(kMostDocumentBytes);
    if (!reading.keeps_bytes) text = read_text_mode(text);
    if (!text.empty()) body({std::move(text)});
    return;
  }
  std::int64_t number = 0;
  for_each_line(input, [&](const std::string& line) {
    ++number;
    if (is_blank(line)) return true;
    std::optional<Document> document = document_of_line(line, reading, {file.path, number});
    const bool is_skipped = !document;
    if (document && !document->text.empty()) body(std::move(*document));
    read({line.size(), is_skipped});
    return true;
  });
}

}  // namespace meshloom::text
