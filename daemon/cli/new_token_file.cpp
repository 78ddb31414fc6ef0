// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/new_token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "daemon/base/files.h"
#include "daemon/cli/exit_code.h"

namespace meshloom::cli {

NewTokenFile::NewTokenFile(std::filesystem::path path, const std::string& option)
    : path_(std::move(path)) {
  file_ = base::UniqueFd(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_)
    throw CliError(kUsage, fmt::format("{}: {} cannot be made: {}", option, path_.string(),
                                       std::strerror(errno)));
}

NewTokenFile::~NewTokenFile() {
  if (!written_) ::unlink(path_.c_str());
}

void NewTokenFile::write(const std::string& token) {
  const std::string line = token + '\n';
  base::write_all(file_.get(), std::as_bytes(std::span(line)), path_);
  base::sync_file(file_.get(), path_);
  written_ = true;
}

}  // namespace meshloom::cli
