// SPDX-License-Identifier: Apache-2.0
// Small texts that lie in the place of the file that was meant: a git-lfs pointer, a web page.
#pragma once

#include <cstddef>
#include <string_view>

#include "daemon/base/input_file.h"

namespace meshloom::base {

/// So many first bytes of a file tell; fewer, if it has fewer.
inline constexpr std::size_t kStandInBytes = 256;

/// Throws InvalidArgument (GIT_LFS_POINTER) that begins with `label` and says what to do if a file
/// that begins so is a pointer of git-lfs, as a clone without git-lfs leaves them.
void refuse_git_lfs_pointer(std::string_view beginning, const std::string& label);

/// Throws as refuse_git_lfs_pointer does, and InvalidArgument (WEB_PAGE) for an HTML page: a
/// download that was answered by a page for people. It is for files that are no text for people
/// themselves.
void refuse_stand_in(std::string_view beginning, const std::string& label);
/// Throws as refuse_stand_in does by the first bytes of `file`.
void refuse_stand_in(const InputFile& file, const std::string& label);

}  // namespace meshloom::base
