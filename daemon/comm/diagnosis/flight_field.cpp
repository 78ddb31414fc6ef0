// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/diagnosis/flight_field.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "daemon/comm/symm_mem/peer_process.h"
#include "kernels/base/integer_math.h"

namespace meshloom::comm {

std::shared_ptr<const FlightField> make_private_flight_field(int rank, int world_size,
                                                             const std::string& why_not) {
  constexpr std::size_t kLine = 64;
  const std::size_t bytes = round_up(FlightLog::bytes(), kLine);
  std::shared_ptr<void> memory(std::aligned_alloc(kLine, bytes), std::free);
  if (!memory) throw std::bad_alloc();
  std::memset(memory.get(), 0, bytes);
  auto field = std::make_shared<FlightField>();
  field->rank = rank;
  field->logs.assign(static_cast<std::size_t>(world_size), {FlightLog(), why_not, nullptr});
  field->logs[static_cast<std::size_t>(rank)] = {
      FlightLog(static_cast<std::byte*>(memory.get())), {}, memory};
  field->own().begin(rank, own_start_time(), own_pid_namespace());
  return field;
}

}  // namespace meshloom::comm
