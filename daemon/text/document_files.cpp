// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/document_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/base/stand_in.h"
#include "daemon/base/utf8.h"
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

/// "\"body\", \"n\"", cut where they are many.
std::string keys_of(const nlohmann::json& object) {
  constexpr std::size_t kMostKeys = 12, kMostBytes = 60;
  std::string keys;
  std::size_t count = 0;
  for (const auto& [key, value] : object.items()) {
    if (count++ == kMostKeys) return keys + ", ...";
    keys += fmt::format("{}\"{}\"", keys.empty() ? "" : ", ",
                        base::printable_text(key, kMostBytes, false));
  }
  return keys;
}

std::string what_is_there(const nlohmann::json& json, const std::string& field) {
  if (!json.is_object()) return fmt::format("it is an {}, expected an object", json.type_name());
  if (json.contains(field))
    return fmt::format("what it has there is of the type {}", json.at(field).type_name());
  return json.empty() ? "the line has no keys" : "the line has " + keys_of(json);
}

std::string document_of_line(const std::string& line, const std::string& field,
                             const fs::path& path, std::int64_t number) {
  const std::string place = fmt::format("{}:{}: ", path.string(), number);
  const Error::Metadata metadata{{"path", path.string()}, {"line", std::to_string(number)}};
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded())
    throw InvalidArgument(place + (base::is_utf8(line) ? "the line is no JSON"
                                                       : "the line has bytes that are no UTF-8, "
                                                         "and is therefore no JSON"),
                          "INVALID_ARGUMENT", metadata);
  if (!json.is_object() || !json.contains(field) || !json.at(field).is_string())
    throw NoTextField(
        place + fmt::format("there is no text under \"{}\": {}", field, what_is_there(json, field)),
        metadata);
  return json.at(field).get<std::string>();
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

/// The documents of JSON lines, until `body` returns false.
void for_each_text(const DocumentFile& file, const base::InputFile& input, const std::string& field,
                   const std::function<bool(std::string document, std::size_t line_bytes)>& body) {
  std::int64_t number = 0;
  for_each_line(input, [&](const std::string& line) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) return true;
    return body(document_of_line(line, field, file.path, number), line.size());
  });
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

void check_first_lines(const DocumentFile& file, const std::string& field) {
  if (file.format != DocumentFormat::kJsonLines) return;
  std::size_t seen = 0;
  for_each_text(file, base::InputFile(file.path), field,
                [&](const std::string&, std::size_t bytes) {
                  seen += bytes;
                  return seen < kLookedAt;
                });
}

void for_each_document(const DocumentFile& file, const std::string& field,
                       const std::function<void(std::string document)>& body,
                       const std::function<void(std::size_t bytes)>& read) {
  const base::InputFile input(file.path);
  if (file.format == DocumentFormat::kText) {
    std::string text = input.read_text(kMostDocumentBytes);
    if (!text.empty()) body(std::move(text));
    return;
  }
  for_each_text(file, input, field, [&](std::string document, std::size_t bytes) {
    if (!document.empty()) body(std::move(document));
    read(bytes);
    return true;
  });
}

}  // namespace meshloom::text
