// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/flight_exchange.h"

#include "daemon/comm/mesh/bootstrap_exchange.h"
#include "daemon/comm/symm_mem/peer_process.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
std::shared_ptr<const FlightField> share_flight_logs(Bootstrap& bootstrap,
                                                     SymmetricMemory& memory) {
  const int rank = bootstrap.rank(), size = bootstrap.world_size();
  SegmentPiece mine;
  if (memory.options().sharing == SharingMode::kNone) mine.trouble = "sharing is turned off";
  try {
    if (mine.trouble.empty() && size > 1) mine.segment = memory.allocate(FlightLog::bytes());
  } catch (const Error& error) {
    mine.trouble = error.what();
  }
  if (!mine.segment) mine.trouble = mine.trouble.empty() ? "it is alone" : mine.trouble;
  auto field = std::make_shared<FlightField>(*make_private_flight_field(rank, size, mine.trouble));
  if (size == 1) return field;
  if (mine.segment) {
    field->logs[static_cast<std::size_t>(rank)] = {
        FlightLog(mine.segment->data()), {}, mine.segment};
    field->own().begin(rank, own_start_time(), own_pid_namespace());
  }
  BootstrapExchange exchange(bootstrap);
  const ReachedSegments reached = memory.directory().reach(exchange, mine);
  for (std::size_t r = 0; r < field->logs.size(); ++r) {
    if (static_cast<int>(r) == rank || !mine.segment) continue;
    const std::shared_ptr<Segment>& segment = reached.memory.segments[r];
    const std::string& why = reached.why_not[r];
    field->logs[r] = {segment ? FlightLog(segment->data()) : FlightLog(),
                      why.empty() && !segment ? "it shares no memory" : why, segment};
  }
  bootstrap.barrier();  // all have mapped what they reach
  return field;
}

}  // namespace meshloom::comm
