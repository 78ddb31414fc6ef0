// SPDX-License-Identifier: Apache-2.0
// PeerExchange: how ranks tell each other a few bytes before they share memory.
#pragma once

#include <functional>
#include <span>

#include "kernels/base/tensor_view.h"

namespace meshloom::comm {

class PeerExchange {
 public:
  virtual ~PeerExchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Every rank calls it, with views of equal sizes of which it fills its own: receives those of
  /// all. `idle` is called while it waits.
  virtual void all_gather(std::span<const TensorView> parts, const std::function<void()>& idle) = 0;
};

}  // namespace meshloom::comm
