// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/composed_collectives.h"

#include <algorithm>

namespace meshloom::comm {
namespace {

/// In rank order, each once.
void make_set(std::vector<int>& ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

}  // namespace

bool NamedStep::advance() {
  try {
    return step_->advance();
  } catch (SignatureDiffers& difference) {
    difference.set_peer(names_(difference.peer()).front());
    throw;
  }
}

std::vector<int> NamedStep::missing() const {
  std::vector<int> ranks;
  for (const int rank : step_->missing()) {
    const std::vector<int> names = names_(rank);
    ranks.insert(ranks.end(), names.begin(), names.end());
  }
  make_set(ranks);
  return ranks;
}

std::string NamedStep::about(int rank) const {
  for (const int one : step_->missing())
    if (names_(one).front() == rank) return step_->about(one);
  return {};
}

bool Sequence::advance() {
  while (true) {
    if (current_) {
      if (!current_->advance()) return false;
      done_ += current_->progress() + 1;
      current_.reset();
    }
    if (next_ == steps_.size()) return true;
    current_ = steps_[next_++]();
  }
}

bool Together::advance() {
  std::erase_if(running_, [&](const CollectivePtr& one) {
    if (!one->advance()) return false;
    done_ += one->progress() + 1;
    return true;
  });
  return running_.empty();
}

std::uint64_t Together::progress() const {
  std::uint64_t sum = done_;
  for (const CollectivePtr& one : running_) sum += one->progress();
  return sum;
}

std::vector<int> Together::missing() const {
  std::vector<int> ranks;
  for (const CollectivePtr& one : running_) {
    const std::vector<int> more = one->missing();
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
  make_set(ranks);
  return ranks;
}

std::string Together::about(int rank) const {
  for (const CollectivePtr& one : running_)
    if (std::string text = one->about(rank); !text.empty()) return text;
  return {};
}

}  // namespace meshloom::comm
