// SPDX-License-Identifier: Apache-2.0
// What rank 0 tells the others at start: where to join, or that there is nothing to join.
#pragma once

#include <filesystem>
#include <string>

#include "daemon/control/access/launch_key.h"

namespace meshloom::control {

struct LaunchCard {
  std::string address;  ///< of the RankService
  std::string beats;    ///< of the BeatServer
  std::string secret;   ///< random_secret(), fresh for every launch
  std::string failure;  ///< why rank 0 could not start; the other fields are empty then
  std::string probe{};  ///< what the file of write_probe() holds
  LaunchKey key{};      ///< for connections over a network; empty: the ranks are on one host
};

/// Rank 0: a file in the state folder with 128 fresh bits, which are returned. Throws as
/// base/files.h.
std::string write_probe(const std::filesystem::path& state_dir);
/// Whether a rank's state folder is rank 0's. Looks for some seconds, since file systems of a
/// network tell late of new files.
bool sees_probe(const std::filesystem::path& state_dir, const std::string& probe);

std::string to_bytes(const LaunchCard& card);
LaunchCard launch_card_from(const std::string& bytes);

}  // namespace meshloom::control
