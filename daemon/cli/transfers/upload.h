// SPDX-License-Identifier: Apache-2.0
// An upload sends local files to the daemon: what it has is not sent again, and a break is gone on
// from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/cli/client.h"
#include "daemon/cli/transfers/transfer_display.h"

namespace meshloom::cli {

/// Transfer is a local file on its way, or bytes that are sent as one.
struct Transfer {
  base::InputFile file;
  std::string name;  ///< for the daemon
  v1::Upload upload;
  bool was_complete = false;  ///< the daemon had it, as an upload that this client began before
};

/// VerbData is data of a verb, too large for its request.
struct VerbData {
  std::string run;
  std::string name;   ///< for who waits
  std::string bytes;  ///< a serialised message
};

/// An Uploader is used by one thread.
class Uploader {
 public:
  /// `quiet`: shows no progress.
  Uploader(Client& client, bool quiet);

  /// Reads the file for its digest, and takes up an upload of the same file that this client began,
  /// or makes one, which is called `name`. Throws CliError; Error as base::InputFile.
  Transfer begin(const std::filesystem::path& path, const std::string& name);
  Transfer begin(const std::filesystem::path& path) {
    return begin(path, path.filename().string());
  }
  /// Announces what goes when the verb begins. Throws CliError.
  Transfer begin(VerbData data);
  /// Sends the file's bytes up to `end`, from where the daemon says on. After UNAVAILABLE it
  /// connects again.
  void send(Transfer& transfer, std::int64_t end);
  /// Sends the rest and lets the daemon compare the digest.
  void finish(Transfer& transfer);

 private:
  bool find_earlier(Transfer& transfer);
  grpc::Status stream(Transfer& transfer, std::int64_t end);

  Client& client_;
  TransferDisplay display_;
};

/// Returns what an upload of any file can be called: its name without what such names may not have.
std::string allowed_upload_name(const std::filesystem::path& path);

/// Returns how many bytes at the beginning of a safetensors file hold its header; all of them if it
/// has none.
std::int64_t header_bytes(const base::InputFile& file);

}  // namespace meshloom::cli
