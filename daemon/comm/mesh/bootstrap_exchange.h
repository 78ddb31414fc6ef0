// SPDX-License-Identifier: Apache-2.0
// BootstrapExchange: a PeerExchange before there is a group.
#pragma once

#include <cstring>

#include "daemon/comm/bootstrap/bootstrap.h"
#include "daemon/comm/symm_mem/peer_exchange.h"

namespace meshloom::comm {

/// `bootstrap` outlives it. Throws what the bootstrap throws.
class BootstrapExchange final : public PeerExchange {
 public:
  explicit BootstrapExchange(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}
  int rank() const override { return bootstrap_.rank(); }
  int size() const override { return bootstrap_.world_size(); }
  void all_gather(std::span<const TensorView> parts, const std::function<void()>& idle) override {
    // A descriptor waits in its socket until it is taken, so nobody needs to pump meanwhile.
    idle();
    const TensorView& own = parts[static_cast<std::size_t>(rank())];
    const auto all = bootstrap_.exchange(std::string(own.as<char>(), own.bytes()));
    for (std::size_t r = 0; r < all.size(); ++r)
      std::memcpy(parts[r].data, all[r].data(), parts[r].bytes());
    idle();
  }

 private:
  Bootstrap& bootstrap_;
};

}  // namespace meshloom::comm
