// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/in_step.h"

#include <algorithm>

#include "daemon/base/as_error.h"
#include "daemon/comm/agreement/status_agreement.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::train {
namespace {

bool was_woken(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const comm::PeerFailed&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// Meets all ranks; `mine` is empty if this rank has no error of its own.
[[noreturn]] void recover(comm::ProcessGroup& world, const std::string& mine) {
  const comm::FailureDomain::Recovery recovery = world.failures()->recover(mine);
  const auto& reports = recovery.reports;
  const auto first =
      std::find_if(reports.begin(), reports.end(), [](const auto& r) { return !r.empty(); });
  if (first == reports.end())
    throw InternalError("the ranks met to recover, but none of them has failed");
  const bool all = std::none_of(reports.begin(), reports.end(),
                                [](const std::string& report) { return report.empty(); });
  const int rank = static_cast<int>(first - reports.begin());
  try {
    if (all && recovery.in_step) comm::rethrow_encoded(*first);
    comm::rethrow_failed_alone(*first, rank);
  } catch (const Error& error) {
    spdlog::error("rank {} met the others: {}", world.rank(), error.what());
    throw;
  }
}

}  // namespace

void run_in_step(comm::ProcessGroup& world, const std::function<void()>& verb) {
  if (world.failures() != nullptr) world.failures()->begin_verb();
  std::exception_ptr error;
  try {
    verb();
    return;
  } catch (...) {
    error = std::current_exception();
  }
  comm::FailureDomain* failures = world.failures();
  if (failures == nullptr || comm::is_agreed(error)) std::rethrow_exception(error);
  if (was_woken(error)) recover(world, {});
  comm::rethrow_comm_error(error);
  const Error known = base::as_error(error);
  failures->raise(fmt::format("{}: {}", error_kind_name(known.kind()), known.what()));
  recover(world, comm::encode_error(error, world.rank()));
}

void join_recovery(comm::ProcessGroup& world) { recover(world, {}); }

}  // namespace meshloom::train
