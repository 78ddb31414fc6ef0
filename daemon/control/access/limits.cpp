// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/limits.h"

#include <google/protobuf/descriptor.h>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

constexpr std::array<LimitRow, kLimitKinds> kRows{{
    {LimitKind::kJobs, "jobs", "jobs", 500, 1000, "QUEUE_FULL", "jobs that have not ended",
     "cancel some, or wait for their ends"},
    {LimitKind::kRuns, "runs", "runs", 75, 100, "TOO_MANY_RUNS", "runs that have not ended",
     "close some, or wait for the end of their leases"},
    {LimitKind::kResultBytes, "result_bytes", "bytes", 768 * kMiB, 1024 * kMiB, "RESULTS_FULL",
     "bytes of outcomes that wait to be fetched",
     "fetch those of this run (WaitOperation, for large ones ReadResult), or close runs whose "
     "outcomes nobody needs"},
    {LimitKind::kTransientUploads, "transient_uploads", "uploads", 192, 256, "QUOTA_EXCEEDED",
     "transient uploads", "abort some, or send the verbs that take them"},
    {LimitKind::kDiskBytes, "disk_bytes", "bytes", kNoLimit, kNoLimit, "DISK_QUOTA_EXCEEDED",
     "bytes of checkpoints, exports, states, weights and files of tokens", "delete some"},
}};

const google::protobuf::FieldDescriptor* field_of(const std::string& name) {
  return v1::LimitConfig::descriptor()->FindFieldByName(name);
}

void set_default(const std::string& name, std::int64_t value, v1::LimitConfig* limits) {
  const auto* field = field_of(name);
  const auto* reflection = limits->GetReflection();
  if (!reflection->HasField(*limits, field)) reflection->SetInt64(limits, field, value);
  const std::int64_t set = reflection->GetInt64(*limits, field);
  meshloom::check(set >= 0, "limits.{} is {}, expected 0 or more", name, set);
}

std::int64_t value_of(const v1::LimitConfig& limits, const std::string& name) {
  return limits.GetReflection()->GetInt64(limits, field_of(name));
}

[[noreturn]] void refuse(const LimitRow& row, const std::string& limit, const std::string& whose,
                         std::int64_t used, std::int64_t asked, std::int64_t most) {
  throw ResourceExhausted(
      fmt::format("limits.{}: {} has {} {}, {} more are asked for and {} are allowed: {}", limit,
                  whose, used, row.what, asked, most, row.remedy),
      row.reason,
      {{"limit", limit}, {"used", std::to_string(used)}, {"most", std::to_string(most)}});
}

}  // namespace

std::span<const LimitRow> limit_rows() { return kRows; }

v1::LimitConfig with_limit_defaults(v1::LimitConfig limits) {
  for (const LimitRow& row : kRows) {
    set_default(std::string("owner_") + row.name, row.owner, &limits);
    set_default(std::string("total_") + row.name, row.total, &limits);
  }
  meshloom::check(!limits.has_max_running_seconds() || limits.max_running_seconds() > 0,
                  "limits.max_running_seconds is {}, expected 1 or more; leave it out for ever",
                  limits.max_running_seconds());
  return limits;
}

Limits::Limits(const v1::LimitConfig& limits) {
  const v1::LimitConfig whole = with_limit_defaults(limits);
  for (const LimitRow& row : kRows) {
    owner_[static_cast<std::size_t>(row.kind)] = value_of(whole, std::string("owner_") + row.name);
    total_[static_cast<std::size_t>(row.kind)] = value_of(whole, std::string("total_") + row.name);
  }
  max_running_seconds_ = whole.max_running_seconds();
}

void Limits::check(LimitKind kind, const std::string& owner, const Taken& taken,
                   std::int64_t asked) const {
  const LimitRow& row = kRows[static_cast<std::size_t>(kind)];
  if (!owner.empty() && taken.own > of_owner(kind) - asked)
    refuse(row, std::string("owner_") + row.name, fmt::format("\"{}\"", owner), taken.own, asked,
           of_owner(kind));
  if (taken.all > of_all(kind) - asked)
    refuse(row, std::string("total_") + row.name, "the daemon", taken.all, asked, of_all(kind));
}

}  // namespace meshloom::control
