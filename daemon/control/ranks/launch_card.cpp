// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/launch_card.h"

#include <chrono>
#include <thread>

#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/control/net/secret.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr const char* kProbe = "probe";
constexpr std::chrono::seconds kLate{2};

}  // namespace

std::string to_bytes(const LaunchCard& card) {
  std::string bytes;
  for (const auto* field : {&card.address, &card.beats, &card.secret, &card.failure, &card.probe,
                            &card.key.certificate, &card.key.key})
    bytes += *field + '\0';
  return bytes;
}

LaunchCard launch_card_from(const std::string& bytes) {
  LaunchCard card;
  std::size_t at = 0;
  for (auto* field : {&card.address, &card.beats, &card.secret, &card.failure, &card.probe,
                      &card.key.certificate, &card.key.key}) {
    const auto end = bytes.find('\0', at);
    check_internal(end != std::string::npos, "rank 0 sent a launch card of {} bytes", bytes.size());
    *field = bytes.substr(at, end - at);
    at = end + 1;
  }
  return card;
}

std::string write_probe(const std::filesystem::path& state_dir) {
  const std::string probe = random_secret();
  base::ReplacementFile file(state_dir / kProbe);
  file.write(probe);
  file.commit();
  return probe;
}

bool sees_probe(const std::filesystem::path& state_dir, const std::string& probe) {
  const auto end = std::chrono::steady_clock::now() + kLate;
  do {
    try {
      if (base::InputFile(state_dir / kProbe).read_text(2 * probe.size()) == probe) return true;
    } catch (const Error&) {
      // It may come yet.
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace meshloom::control
