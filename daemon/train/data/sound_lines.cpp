// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/sound_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/base/file_stamp.h"

namespace meshloom::train {

std::string SoundLines::key(const text::DocumentFile& file, const text::DocumentReading& reading) {
  return key(file, fmt::format("{}\n{}", reading.skips_lines_without_text, reading.field));
}

std::string SoundLines::key(const text::DocumentFile& file, const std::string& setup) {
  // One that cannot be looked at is an error of whoever reads it.
  return fmt::format("{}\n{}\n{}", file.path.string(),
                     base::file_stamp(file.path).value_or(std::string()), setup);
}

bool SoundLines::has(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return std::find(kept_.begin(), kept_.end(), key) != kept_.end();
}

void SoundLines::add(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (kept_.size() == kKept) kept_.pop_front();
  kept_.push_back(key);
}

}  // namespace meshloom::train
