// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/host_symmetric_buffer.h"

#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::comm {

const char* HostSymmetricBuffer::why_no_multicast() {
  return "a host maps the memory of each rank at an address of its own; one address of all is made "
         "by the switch between devices";
}

TensorView HostSymmetricBuffer::multicast_view(const Shape& shape, DType dtype,
                                               std::int64_t offset) const {
  throw Unimplemented(fmt::format("symmetric memory: no multicast window of {} {} at offset {}: {}",
                                  shape, dtype_name(dtype), offset, why_no_multicast()),
                      "SYMM_MEM_NO_MULTICAST");
}

void HostSymmetricBuffer::copy(const TensorView& destination, const TensorView& source) const {
  if (source.bytes() > 0) std::memmove(destination.data, source.data, source.bytes());
}

}  // namespace meshloom::comm
