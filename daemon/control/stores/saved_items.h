// SPDX-License-Identifier: Apache-2.0
// SavedItems: what a run has saved under names, its states or its weights on disk.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/control/stores/numbered_items.h"

namespace meshloom::control {

/// NumberedItems in the order in which they were saved. Whoever has it guards it.
template <typename Saved>
class SavedItems : NumberedItems<Saved> {
  using Items = NumberedItems<Saved>;

 public:
  using Items::find, Items::items, Items::page, Items::size;

  /// Becomes the newest, in the place of one of its name. The same save again, as of a record that
  /// is read twice or of damage that was found, stays where it is.
  void put(const Saved& saved) {
    if (const Saved* before = find(saved.name())) {
      const bool same = before->epoch() == saved.epoch() && before->seq() == saved.seq() &&
                        before->folder() == saved.folder();
      bytes_ -= before->ByteSizeLong();
      if (!same) Items::erase(saved.name());
    }
    bytes_ += saved.ByteSizeLong();
    Items::put(saved);
  }
  void erase(const std::string& name) {
    if (const Saved* gone = find(name)) bytes_ -= gone->ByteSizeLong();
    Items::erase(name);
  }
  void clear() { *this = SavedItems(); }

  /// That they take in the journal.
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace meshloom::control
