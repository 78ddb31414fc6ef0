// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/stand_in.h"

#include <algorithm>
#include <cctype>
#include <span>

#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

/// Whether `text` begins with `start`, which is in lower case, whatever the case of its letters.
bool begins_with(std::string_view text, std::string_view start) {
  return text.size() >= start.size() &&
         std::equal(start.begin(), start.end(), text.begin(), [](char wanted, char seen) {
           return wanted == static_cast<char>(std::tolower(static_cast<unsigned char>(seen)));
         });
}

bool is_web_page(std::string_view beginning) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (beginning.starts_with(kByteOrderMark)) beginning.remove_prefix(kByteOrderMark.size());
  beginning.remove_prefix(std::min(beginning.find_first_not_of(" \t\r\n"), beginning.size()));
  return begins_with(beginning, "<!doctype html") || begins_with(beginning, "<html");
}

}  // namespace

void refuse_git_lfs_pointer(std::string_view beginning, const std::string& label) {
  // The first line of every pointer; its version has not changed since git-lfs has one.
  if (!beginning.starts_with("version https://git-lfs")) return;
  throw InvalidArgument(
      fmt::format("{} is a git-lfs pointer, a small text in the place of the file: run \"git lfs "
                  "pull\" in the folder that was cloned, or download the file itself",
                  label),
      "GIT_LFS_POINTER", {{"file", label}});
}

void refuse_stand_in(std::string_view beginning, const std::string& label) {
  refuse_git_lfs_pointer(beginning, label);
  if (!is_web_page(beginning)) return;
  throw InvalidArgument(
      fmt::format("{} is an HTML page, not the file: a download was answered by a page (of a "
                  "login, or of the file's viewer); download the file itself",
                  label),
      "WEB_PAGE", {{"file", label}});
}

void refuse_stand_in(const InputFile& file, const std::string& label) {
  std::string beginning(std::min<std::uint64_t>(file.size(), kStandInBytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(beginning)));
  refuse_stand_in(beginning, label);
}

}  // namespace meshloom::base
