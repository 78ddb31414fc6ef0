// SPDX-License-Identifier: Apache-2.0
// Journals as daemons of any version have left them.
#pragma once

#include <filesystem>
#include <fstream>
#include <vector>

#include "daemon/control/stores/journal.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// A journal of these records. What versions differ in is the header and which records there are.
inline void write_journal(const std::filesystem::path& file,
                          const std::vector<v1::JournalRecord>& records, char version) {
  {
    Journal journal(file, [](std::string_view) {});
    for (const v1::JournalRecord& record : records) journal.append(record.SerializeAsString());
  }
  std::fstream header(file, std::ios::binary | std::ios::in | std::ios::out);
  header.seekp(8);
  header.put(version);
}

inline std::vector<v1::JournalRecord> read_journal(const std::filesystem::path& file) {
  std::vector<v1::JournalRecord> records;
  const Journal journal(file, [&](std::string_view payload) {
    records.emplace_back().ParseFromArray(payload.data(), static_cast<int>(payload.size()));
  });
  return records;
}

}  // namespace meshloom::control
