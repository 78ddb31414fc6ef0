// SPDX-License-Identifier: Apache-2.0
// Collectives made of smaller ones: a step under its group's names, one step after another, several
// at once.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/comm/flight/algorithms.h"

namespace meshloom::comm {

using CollectivePtr = std::unique_ptr<Collective>;

/// NamedStep is a step among some ranks of a group, or with some, as the whole group speaks of it.
class NamedStep final : public Collective {
 public:
  /// Behind gives ranks of the group that a rank of the group may be waiting for itself before it
  /// can take its part; nothing: nobody.
  using Behind = std::function<std::vector<int>(int)>;

  /// `names` are the ranks of the group by rank of the step; empty: they are the same.
  NamedStep(CollectivePtr step, std::vector<int> names, Behind behind)
      : step_(std::move(step)), names_(std::move(names)), behind_(std::move(behind)) {}

  bool advance() override;
  std::uint64_t progress() const override { return step_->progress(); }
  std::vector<int> missing() const override;
  std::string about(int rank) const override;

 private:
  int name(int rank) const {
    return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)];
  }

  CollectivePtr step_;
  std::vector<int> names_;
  Behind behind_;
};

/// Starts a step when the one before is done.
class Sequence final : public Collective {
 public:
  /// Gives null where there is nothing to wait for.
  using Start = std::function<CollectivePtr()>;

  explicit Sequence(std::vector<Start> steps) : steps_(std::move(steps)) {}

  bool advance() override;
  std::uint64_t progress() const override { return done_ + (current_ ? current_->progress() : 0); }
  std::vector<int> missing() const override {
    return current_ ? current_->missing() : std::vector<int>();
  }
  std::string about(int rank) const override { return current_ ? current_->about(rank) : ""; }

 private:
  std::vector<Start> steps_;
  std::size_t next_ = 0;
  CollectivePtr current_;
  std::uint64_t done_ = 0;  ///< progress of the steps before
};

/// Moves several at once.
class Together final : public Collective {
 public:
  /// Takes the collectives that it moves; null ones are left out.
  explicit Together(std::vector<CollectivePtr> all) : running_(std::move(all)) {
    std::erase(running_, nullptr);
  }
  template <typename... Steps>
  static CollectivePtr of(Steps... steps) {
    std::vector<CollectivePtr> all;
    (all.push_back(std::move(steps)), ...);
    return std::make_unique<Together>(std::move(all));
  }

  void add(CollectivePtr one) { running_.push_back(std::move(one)); }
  std::size_t running() const { return running_.size(); }

  /// Returns true when all that were added are done.
  bool advance() override;
  std::uint64_t progress() const override;
  std::vector<int> missing() const override;
  std::string about(int rank) const override;

 private:
  std::vector<CollectivePtr> running_;
  std::uint64_t done_ = 0;  ///< progress of those that are done
};

}  // namespace meshloom::comm
