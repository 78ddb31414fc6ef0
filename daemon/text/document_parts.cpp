// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/document_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "daemon/base/input_file.h"
#include "daemon/text/text_mode.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// What is read of a file at once, and about the size of a part of its document.
constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20;

void for_each_part_of_text(const DocumentFile& document, bool keeps_bytes, const TextCuts& cuts,
                           const std::function<void(DocumentPart)>& body) {
  const base::InputFile file(document.path);
  TextModeReader text_mode;
  std::string text, bytes;
  bool is_first = true;
  for (std::uint64_t at = 0; at < file.size();) {
    const std::size_t looked_at = text.size();
    bytes.resize(std::min(kPartBytes, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(bytes)));
    at += bytes.size();
    if (keeps_bytes)
      text += bytes;
    else
      text_mode.read(bytes, text);
    if (at == file.size()) break;
    // The last character was looked at without all that follows it.
    if (const auto cut = last_cut(text, looked_at > 4 ? looked_at - 4 : 0, cuts)) {
      std::string rest = text.substr(*cut);
      text.resize(*cut);
      body({{std::move(text)}, is_first, false});
      is_first = false;
      text = std::move(rest);
    } else if (text.size() > kMostDocumentBytes) {
      throw InvalidArgument(
          fmt::format("{} has no place to divide it in {} bytes up to byte {}: divide it, or make "
                      "it .jsonl",
                      document.path.string(), text.size(), at),
          "FILE_TOO_LARGE", {{"path", document.path.string()}});
    }
  }
  if (!text.empty()) body({{std::move(text)}, is_first, true});
}

}  // namespace

void for_each_document_part(const DocumentFile& file, const DocumentReading& reading,
                            const TextCuts& cuts,
                            const std::function<void(DocumentPart part)>& body,
                            const std::function<void(LineRead line)>& read) {
  if (file.format == DocumentFormat::kText && cuts.any())
    return for_each_part_of_text(file, reading.keeps_bytes, cuts, body);
  for_each_document(
      file, reading, [&](Document document) { body({{std::move(document)}}); }, read);
}

}  // namespace meshloom::text
