// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/waiting_memory.h"

#include <array>
#include <utility>
#include <vector>

#include "kernels/base/error.h"

namespace meshloom::control {

MemoryUnits WaitingMemory::take(const std::string& run, const std::string& client,
                                std::size_t bytes) {
  struct Account {
    std::string name;  ///< as errors call it
    std::size_t most = 0;
  };
  const std::array<Account, 3> accounts{{{fmt::format("run \"{}\"", run), bounds_.of_run},
                                         {fmt::format("client \"{}\"", client), bounds_.of_client},
                                         {"all runs", bounds_.of_all}}};
  const auto taken = static_cast<std::int64_t>(bytes);
  std::vector<MemoryCount::Share> shares;
  for (const Account& account : accounts) shares.push_back({account.name, taken});
  std::size_t next = 0;
  return taken_.take(std::move(shares), [&](const MemoryCount::Share& share, std::int64_t others) {
    const std::size_t waiting = static_cast<std::size_t>(others), most = accounts[next++].most;
    if (waiting + bytes <= most) return;
    throw ResourceExhausted(
        fmt::format("{} bytes of verbs and samples of {} wait for the ranks already, {} may; this "
                    "one takes {}",
                    waiting, share.account, most, bytes),
        "VERBS_FULL",
        {{"run", run}, {"bytes", std::to_string(bytes)}, {"limit", std::to_string(most)}});
  });
}

}  // namespace meshloom::control
