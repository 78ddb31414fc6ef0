// SPDX-License-Identifier: Apache-2.0
// Everything wrong that a client may send, for daemons that are idle and daemons that train.
#pragma once

#include <string>
#include <vector>

namespace meshloom::e2e {

/// A job file of these parts; `extra` is further lines.
std::string config(const std::string& training = "{steps: 2, seq_len: 32, global_batch_size: 4}",
                   const std::string& model = "{preset: byte_gpt_tiny}",
                   const std::string& data = "{path: text.txt}", const std::string& extra = "");

struct WrongConfig {
  std::string yaml;
  std::string expected;  ///< part of what the client says; the file is called bad.yaml
};
/// Job files that are refused on a daemon of two ranks, by the client or by the daemon.
std::vector<WrongConfig> wrong_configs();

/// Sends requests that are wrong, most of them about `job`, and expects the code of each.
void send_wrong_requests(const std::string& address, const std::string& job);

}  // namespace meshloom::e2e
