// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/hierarchy/composed_collectives.h"

#include <algorithm>

namespace meshloom::comm {
namespace {

/// In rank order, each once.
std::vector<int> as_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void append(std::vector<int>& ranks, const std::vector<int>& more) {
  ranks.insert(ranks.end(), more.begin(), more.end());
}

}  // namespace

bool NamedStep::advance() {
  try {
    return step_->advance();
  } catch (SignatureDiffers& difference) {
    difference.set_peer(name(difference.peer()));
    throw;
  }
}

std::vector<int> NamedStep::missing() const {
  std::vector<int> ranks;
  for (const int rank : step_->missing()) {
    ranks.push_back(name(rank));
    if (behind_) append(ranks, behind_(name(rank)));
  }
  return as_set(std::move(ranks));
}

std::string NamedStep::about(int rank) const {
  for (const int one : step_->missing())
    if (name(one) == rank) return step_->about(one);
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
  for (const CollectivePtr& one : running_) append(ranks, one->missing());
  return as_set(std::move(ranks));
}

std::string Together::about(int rank) const {
  for (const CollectivePtr& one : running_)
    if (std::string text = one->about(rank); !text.empty()) return text;
  return {};
}

}  // namespace meshloom::comm
