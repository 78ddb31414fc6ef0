// SPDX-License-Identifier: Apache-2.0
// BootstrapExchange: a PeerExchange before there is a group.
#pragma once

#include "daemon/comm/bootstrap/bootstrap.h"
#include "daemon/comm/symm_mem/peer_exchange.h"

namespace meshloom::comm {

/// `bootstrap` outlives it. Throws what the bootstrap throws.
class BootstrapExchange final : public PeerExchange {
 public:
  explicit BootstrapExchange(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}
  int rank() const override { return bootstrap_.rank(); }
  int size() const override { return bootstrap_.world_size(); }
  void all_gather(std::span<const TensorView> parts, const std::function<void()>& idle) override;

 private:
  Bootstrap& bootstrap_;
};

}  // namespace meshloom::comm
