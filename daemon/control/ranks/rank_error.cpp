// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_error.h"

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/control/net/status.h"

namespace meshloom::control {
namespace {

v1::ErrorScope scope_of(const std::exception_ptr& error) {
  if (comm::ends_the_group(error)) return v1::ERROR_SCOPE_RANKS;
  if (comm::is_failed_alone(error)) return v1::ERROR_SCOPE_RUN_LOST;
  try {
    std::rethrow_exception(error);
  } catch (const RunGone&) {
    return v1::ERROR_SCOPE_RUN_GONE;
  } catch (const RunLost&) {
    return v1::ERROR_SCOPE_RUN_LOST;
  } catch (...) {
    return v1::ERROR_SCOPE_UNSPECIFIED;
  }
}

}  // namespace

bool loses_run(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RunLost&) {
    return true;
  } catch (const RunGone&) {
    return true;
  } catch (...) {
    return false;
  }
}

void set_error(const std::exception_ptr& error, v1::RankResult* result) {
  *result->mutable_error() = to_details(error);
  result->set_error_scope(scope_of(error));
}

void throw_error(const v1::RankResult& result) {
  const Error error = to_error(result.error());
  if (result.error_scope() == v1::ERROR_SCOPE_RUN_GONE)
    throw RunGone(error.what(), error.metadata());
  if (result.error_scope() == v1::ERROR_SCOPE_RUN_LOST) throw RunLost(error);
  throw error;
}

}  // namespace meshloom::control
