// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/decision_cache.h"

#include "kernels/base/hash.h"

namespace meshloom::dtensor {
namespace {

template <typename SpecAt>
std::uint64_t key_hash(planner::OpId op, std::size_t count, const SpecAt& spec_at,
                       const planner::OpAttributes& attributes) {
  std::uint64_t hash = hash_mix(static_cast<std::uint64_t>(op) + 1, count);
  for (std::size_t i = 0; i < count; ++i)
    hash = hash_mix(hash, reinterpret_cast<std::uintptr_t>(spec_at(i)));
  for (const std::int64_t d : attributes.dims) hash = hash_mix(hash, static_cast<std::uint64_t>(d));
  for (const std::int64_t v : attributes.ints) hash = hash_mix(hash, static_cast<std::uint64_t>(v));
  return hash;
}

bool is_for(const Decided& d, planner::OpId op, DecisionCache::Specs specs,
            const planner::OpAttributes& attributes) {
  if (d.op != op || d.uses.size() != specs.size() || !(d.attributes == attributes)) return false;
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (d.uses[i].from.get() != specs[i]) return false;
  return true;
}

}  // namespace

const Decided* DecisionCache::find(planner::OpId op, Specs specs,
                                   const planner::OpAttributes& attributes) const {
  const auto found = entries_.find(key_hash(
      op, specs.size(), [&](std::size_t i) { return specs[i]; }, attributes));
  if (found == entries_.end()) return nullptr;
  for (const Decided* d = found->second.get(); d; d = d->next.get())
    if (is_for(*d, op, specs, attributes)) return d;
  return nullptr;
}

const Decided& DecisionCache::insert(std::unique_ptr<Decided> decided) {
  const auto& uses = decided->uses;
  std::unique_ptr<Decided>& first = entries_[key_hash(
      decided->op, uses.size(), [&](std::size_t i) { return uses[i].from.get(); },
      decided->attributes)];
  decided->next = std::move(first);
  first = std::move(decided);
  ++size_;
  return *first;
}

}  // namespace meshloom::dtensor
