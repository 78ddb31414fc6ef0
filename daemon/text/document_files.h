// SPDX-License-Identifier: Apache-2.0
// Files of text as documents: what is a document in which kind of file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "daemon/base/disk.h"
#include "daemon/text/document.h"
#include "daemon/text/json_lines.h"

namespace meshloom::text {

enum class DocumentFormat {
  kText,       ///< the file is one document
  kJsonLines,  ///< .jsonl, .ndjson: each line is an object, a field of which is a document
};

struct DocumentFile {
  std::filesystem::path path;
  DocumentFormat format = DocumentFormat::kText;
};

/// Returns what a file holds, by its name and its first bytes. Throws InvalidArgument (NOT_TEXT)
/// naming it if that is no text: arrays (.npy, .bin, .parquet and the like), archives, and whatever
/// has a zero byte near its beginning. With `format` the name does not matter.
DocumentFile document_file(const std::filesystem::path& path,
                           std::optional<DocumentFormat> format = std::nullopt,
                           base::Disk& disk = base::own_disk());

/// Returns the files of `path`: itself, or all below the folder, in order of their paths, hidden
/// ones left out, as document_file has them. Throws NotFound or IoError, too. Symbolic links to
/// files are followed; one to a folder below the folder is refused in the same way.
std::vector<DocumentFile> find_document_files(const std::filesystem::path& path);

/// Bytes of text that are held as one: of a line of JSON, and of a document that cannot be divided.
inline constexpr std::uint64_t kMostDocumentBytes = std::uint64_t{128} << 20;

/// Throws InvalidArgument (FILE_TOO_LARGE) for a file of text that for_each_document would refuse
/// by its size.
void check_document_size(const DocumentFile& file);

/// Reads the lines of a file of JSON lines and makes nothing of them; of another file it reads
/// nothing. Throws as for_each_document. Ends where goes_on(bytes of the lines so far), which it
/// asks after each, returns false; then it returns false, too, and else true.
bool check_lines(const DocumentFile& file, const DocumentReading& reading,
                 const std::function<bool(std::uint64_t bytes)>& goes_on);

/// Reads as check_lines does as many lines as are a few KiB.
void check_first_lines(const DocumentFile& file, const DocumentReading& reading);

/// Calls body(line, number) for the lines of a file of JSON lines that are not blank, until it
/// returns false. Throws InvalidArgument (FILE_TOO_LARGE) for a line of more than
/// kMostDocumentBytes.
void for_each_json_line(const DocumentFile& file,
                        const std::function<bool(std::string line, std::int64_t number)>& body);

/// The struct says what became of a line of JSON.
struct LineRead {
  std::size_t bytes = 0;
  bool is_skipped = false;  ///< it holds no text, and such lines are skipped
};

/// Calls body(document) for the documents of a file, in order; empty ones are left out. Throws
/// InvalidArgument naming file and line where a line is no JSON, NoTextField with what the line has
/// instead of a text, and InvalidArgument (FILE_TOO_LARGE) for a document of more than
/// kMostDocumentBytes. Calls read(line) for every line of JSON.
void for_each_document(
    const DocumentFile& file, const DocumentReading& reading,
    const std::function<void(Document document)>& body,
    const std::function<void(LineRead line)>& read = [](LineRead) {});

}  // namespace meshloom::text
