// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/usage.h"

#include <chrono>
#include <numeric>
#include <set>
#include <vector>

#include "daemon/control/stores/names.h"
#include "daemon/train/files/paths.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kBetweenLooks{2};

/// Of all files below a folder, links left as they are. What goes meanwhile is not counted.
std::int64_t bytes_below(const fs::path& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (at->is_symlink(gone) || !at->is_regular_file(gone)) continue;
    const auto size = at->file_size(gone);
    if (!gone) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

std::int64_t sum_of(const std::map<std::string, std::int64_t>& by_owner) {
  return std::accumulate(by_owner.begin(), by_owner.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& item) { return sum + item.second; });
}

std::int64_t value_or_0(const std::map<std::string, std::int64_t>& values,
                        const std::string& owner) {
  const auto found = values.find(owner);
  return found == values.end() ? 0 : found->second;
}

v1::LimitUse use(const LimitRow& row, std::int64_t used, std::int64_t most) {
  v1::LimitUse told;
  told.set_limit(row.name);
  told.set_unit(row.unit);
  told.set_used(used);
  told.set_most(most);
  return told;
}

}  // namespace

Usage::Usage(const World& world) : world_(world) {
  constexpr LimitKind kDisk = LimitKind::kDiskBytes;
  if (world_.limits.of_owner(kDisk) == kNoLimit && world_.limits.of_all(kDisk) == kNoLimit) return;
  look();
  ticker_ = std::make_unique<Ticker>(kBetweenLooks, [this] { look(); });
}

Usage::ByOwner Usage::bytes_on_disk() const {
  ByOwner bytes;
  std::set<std::string> owners;
  for (const auto& [id, owner] : world_.jobs.owners()) {
    bytes[owner] += bytes_below(world_.state.job(id));
    owners.insert(owner);
  }
  for (const auto& [id, run] : world_.runs.owners()) {
    bytes[run.owner] += bytes_below(world_.state.run(id));
    owners.insert(run.owner);
  }
  // Files of tokens and imports: each owner writes into a folder of its own. What the admins write
  // anywhere else is no one's.
  for (const fs::path& root : train::data_folders(world_.data_dir)) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root, error)) {
      const std::string name = entry.path().filename().string();
      if (owners.contains(name) && is_folder_name(name)) bytes[name] += bytes_below(entry.path());
    }
  }
  return bytes;
}

void Usage::look() const {
  ByOwner found = bytes_on_disk();
  const std::lock_guard lock(mutex_);
  on_disk_ = std::move(found);
}

void Usage::check_disk(const std::string& owner) const {
  if (!ticker_) return;
  const std::lock_guard lock(mutex_);
  world_.limits.check(LimitKind::kDiskBytes, owner,
                      {value_or_0(on_disk_, owner), sum_of(on_disk_)});
}

Usage::ByOwner Usage::use_of(LimitKind kind) const {
  switch (kind) {
    case LimitKind::kJobs: return world_.jobs.count_by_owner();
    case LimitKind::kRuns: {
      ByOwner open;
      for (const auto& [id, run] : world_.runs.owners()) open[run.owner] += run.open ? 1 : 0;
      return open;
    }
    case LimitKind::kResultBytes: return world_.runs.operations().bytes_by_owner();
    case LimitKind::kTransientUploads: return world_.transients.count_by_owner();
    case LimitKind::kDiskBytes: {
      look();
      const std::lock_guard lock(mutex_);
      return on_disk_;
    }
  }
  return {};
}

v1::GetUsageResponse Usage::tell(const Identity& who) const {
  std::vector<ByOwner> uses;
  std::set<std::string> owners = {who.owner()};
  for (const LimitRow& row : limit_rows()) {
    uses.push_back(use_of(row.kind));
    if (who.is_admin())
      for (const auto& [owner, used] : uses.back()) owners.insert(owner);
  }
  v1::GetUsageResponse response;
  for (const std::string& owner : owners) {
    v1::OwnerUsage& told = *response.add_owners();
    told.set_owner(owner);
    for (const LimitRow& row : limit_rows())
      *told.add_uses() =
          use(row, value_or_0(uses[static_cast<std::size_t>(row.kind)], owner),
              owner.empty() ? world_.limits.of_all(row.kind) : world_.limits.of_owner(row.kind));
  }
  if (!who.is_admin()) return response;
  for (const LimitRow& row : limit_rows())
    *response.add_total() =
        use(row, sum_of(uses[static_cast<std::size_t>(row.kind)]), world_.limits.of_all(row.kind));
  return response;
}

}  // namespace meshloom::control
