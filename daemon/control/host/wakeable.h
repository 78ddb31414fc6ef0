// SPDX-License-Identifier: Apache-2.0
// Wakeable: somebody who hears that what he looks at may have changed.
#pragma once

namespace meshloom::control {

/// Others keep it weakly, so that nobody who has gone is woken.
class Wakeable {
 public:
  virtual ~Wakeable() = default;
  /// Must return at once: whoever has made the change calls it, on any thread.
  virtual void wake() = 0;
};

}  // namespace meshloom::control
