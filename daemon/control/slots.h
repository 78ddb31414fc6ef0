// SPDX-License-Identifier: Apache-2.0
// A bound on how many calls of a kind are served at once.
#pragma once

#include <atomic>
#include <string>

#include "kernels/base/error.h"

namespace meshloom::control {

class Slots {
 public:
  Slots(std::string what, int count) : what_(std::move(what)), most_(count) {}

  /// Held while a call is served.
  class Slot {
   public:
    explicit Slot(Slots& slots) : slots_(slots) {
      if (slots_.used_.fetch_add(1) < slots_.most_) return;
      slots_.used_.fetch_sub(1);
      throw ResourceExhausted(fmt::format("{} {} are served at once already; try again later",
                                          slots_.most_, slots_.what_),
                              "TOO_MANY_CALLS");
    }
    ~Slot() { slots_.used_.fetch_sub(1); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

   private:
    Slots& slots_;
  };

 private:
  std::string what_;
  int most_;
  std::atomic<int> used_{0};
};

}  // namespace meshloom::control
