// SPDX-License-Identifier: Apache-2.0
// Files of the user's hold messages of the protocol: JSON as protobuf defines it, with field names
// as in the schema, enum values by their whole name and bytes in base64.
#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string>

#include "daemon/base/files.h"

namespace meshloom::cli {

/// Fills `message` from a file, or from standard input for "-". Throws CliError (kUsage) naming the
/// file where it cannot be read, or is no JSON of such a message.
void read_message_file(const std::string& file, google::protobuf::Message* message);

/// MessageOutput is where a message is to be written: a file, or standard output for "-". What was
/// in the file stays until it is replaced as a whole.
class MessageOutput {
 public:
  /// Opens the file, so that a path that cannot be written to is refused before anything was asked
  /// of the daemon. Throws CliError (kUsage).
  explicit MessageOutput(const std::string& file);

  bool is_standard_output() const { return !file_; }
  /// Writes the message; called once. Throws CliError (kFailed) where the file cannot be written.
  void write(const google::protobuf::Message& message);

 private:
  std::unique_ptr<base::ReplacementFile> file_;
};

}  // namespace meshloom::cli
