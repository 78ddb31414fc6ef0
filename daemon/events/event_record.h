// SPDX-License-Identifier: Apache-2.0
// Records of an event file, as TensorFlow frames them: the payload's length (8 bytes, little
// endian), the masked CRC-32C of these bytes, the payload, and its masked CRC-32C.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/events/event_file.pb.h"

namespace meshloom::events {

/// One event as a record.
std::string to_record(const Event& event);

/// What a file holds up to where it was cut or damaged.
struct EventsRead {
  std::vector<Event> events;
  std::size_t bytes = 0;  ///< of the whole records
};

/// Reads records up to the first that is not whole or not sound, which a writer that died has left.
EventsRead read_events(std::string_view bytes);

}  // namespace meshloom::events
