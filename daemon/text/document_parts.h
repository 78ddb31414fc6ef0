// SPDX-License-Identifier: Apache-2.0
// Documents of files in parts of bounded size, each of which has its tokens by itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "daemon/text/document.h"
#include "daemon/text/document_files.h"
#include "daemon/text/text_cuts.h"

namespace meshloom::text {

/// DocumentPart is a document, or a part of one.
struct DocumentPart {
  Document document;
  bool is_first = true, is_last = true;  ///< of its document
  /// If the text is a line with a conversation, this is the file of that line. Else null.
  const std::filesystem::path* path = nullptr;
  std::int64_t line = 0;
};

/// Calls body(part) for the documents of a file, in order; empty ones are left out. A file of text
/// is read in parts of about 1 MiB where `cuts` has places to divide it, and any other document is
/// one part. Throws as for_each_document, of which `read` is told, and InvalidArgument
/// (FILE_TOO_LARGE) for a text without such a place in kMostDocumentBytes.
void for_each_document_part(
    const DocumentFile& file, const DocumentReading& reading, const TextCuts& cuts,
    const std::function<void(DocumentPart part)>& body,
    const std::function<void(LineRead line)>& read = [](LineRead) {});

}  // namespace meshloom::text
