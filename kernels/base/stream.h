// SPDX-License-Identifier: Apache-2.0
// An opaque queue of device work. On the CPU every call is done when it returns and the handle is
// null.
#pragma once

namespace meshloom {

struct Stream {
  void* handle = nullptr;
};

}  // namespace meshloom
