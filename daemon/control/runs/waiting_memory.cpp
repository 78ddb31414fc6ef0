// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/waiting_memory.h"

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

using Amounts = std::map<std::string, std::size_t>;

std::size_t taken_of(const Amounts& amounts, const std::string& key) {
  const auto found = amounts.find(key);
  return found == amounts.end() ? 0 : found->second;
}

void give_back(Amounts& amounts, const std::string& key, std::size_t bytes) {
  const auto found = amounts.find(key);
  if (found != amounts.end() && (found->second -= bytes) == 0) amounts.erase(found);
}

}  // namespace

WaitingMemory::Hold WaitingMemory::take(const std::string& run, const std::string& client,
                                        std::size_t bytes) {
  const auto check = [&](const char* kind, const std::string& name, std::size_t waiting,
                         std::size_t most) {
    if (waiting + bytes <= most) return;
    const std::string whose = name.empty() ? kind : fmt::format("{} \"{}\"", kind, name);
    throw ResourceExhausted(
        fmt::format("{} bytes of verbs and samples of {} wait for the ranks already, {} may; this "
                    "one takes {}",
                    waiting, whose, most, bytes),
        "VERBS_FULL",
        {{"run", run}, {"bytes", std::to_string(bytes)}, {"limit", std::to_string(most)}});
  };
  const std::lock_guard lock(taken_->mutex);
  check("run", run, taken_of(taken_->of_run, run), bounds_.of_run);
  check("client", client, taken_of(taken_->of_client, client), bounds_.of_client);
  check("all runs", "", taken_->of_all, bounds_.of_all);
  taken_->of_run[run] += bytes;
  taken_->of_client[client] += bytes;
  taken_->of_all += bytes;
  return {nullptr, [taken = taken_, run, client, bytes](const void*) {
            const std::lock_guard release(taken->mutex);
            give_back(taken->of_run, run, bytes);
            give_back(taken->of_client, client, bytes);
            taken->of_all -= bytes;
          }};
}

}  // namespace meshloom::control
