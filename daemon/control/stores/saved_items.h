// SPDX-License-Identifier: Apache-2.0
// SavedItems: what a run has saved under names, its states or its weights on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace meshloom::control {

/// In the order in which they were saved. Whoever has it guards it.
template <typename Saved>
class SavedItems {
 public:
  /// Null: there is none.
  const Saved* find(const std::string& name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? nullptr : &items_.at(found->second);
  }

  /// Becomes the newest, in the place of one of its name. The same save again, as of a record that
  /// is read twice or of damage that was found, stays where it is.
  void put(const Saved& saved) {
    const Saved* before = find(saved.name());
    const bool same = before && before->epoch() == saved.epoch() && before->seq() == saved.seq() &&
                      before->folder() == saved.folder();
    const std::int64_t number = same ? numbers_.at(saved.name()) : next_number_++;
    erase(saved.name());
    bytes_ += saved.ByteSizeLong();
    numbers_[saved.name()] = number;
    items_[number] = saved;
  }
  void erase(const std::string& name) {
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) return;
    bytes_ -= items_.at(found->second).ByteSizeLong();
    items_.erase(found->second);
    numbers_.erase(found);
  }
  void clear() { *this = SavedItems(); }

  /// By number, oldest first.
  const std::map<std::int64_t, Saved>& items() const { return items_; }
  std::size_t size() const { return items_.size(); }
  /// That they take in the journal.
  std::size_t bytes() const { return bytes_; }

 private:
  std::map<std::int64_t, Saved> items_;
  std::map<std::string, std::int64_t> numbers_;
  std::int64_t next_number_ = 1;
  std::size_t bytes_ = 0;
};

}  // namespace meshloom::control
