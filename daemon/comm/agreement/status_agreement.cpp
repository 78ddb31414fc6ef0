// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/agreement/status_agreement.h"

#include <nlohmann/json.hpp>

#include "daemon/base/as_error.h"
#include "daemon/base/throw_kind.h"
#include "daemon/comm/failure.h"
#include "kernels/base/device.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

using Json = nlohmann::json;

/// Tells errors that all ranks throw from those of one rank.
struct AgreedMark {
  virtual ~AgreedMark() = default;
};

/// Of these, the errors that one rank of several has met.
struct FailedAloneMark : AgreedMark {};

template <ErrorKind Kind, typename Mark>
struct Agreed final : ErrorOf<Kind>, Mark {
  using ErrorOf<Kind>::ErrorOf;
};

template <ErrorKind Kind>
using AgreedError = Agreed<Kind, AgreedMark>;
template <ErrorKind Kind>
using FailedAloneError = Agreed<Kind, FailedAloneMark>;

template <typename Mark>
bool has_mark(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Mark&) {
    return true;
  } catch (...) {
    return false;
  }
}

template <template <ErrorKind> typename Class>
[[noreturn]] void throw_agreed(const Json& json, const std::string& prefix,
                               const Error::Metadata& more) {
  const auto kind = static_cast<ErrorKind>(json.at("kind").get<int>());
  const auto message = prefix + json.at("message").get<std::string>();
  const auto reason = json.at("reason").get<std::string>();
  auto metadata = json.at("metadata").get<Error::Metadata>();
  metadata.insert(more.begin(), more.end());
  base::throw_kind<Class>(kind, message, reason, metadata);
}

}  // namespace

bool ends_the_group(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const GroupBroken&) {
    return true;
  } catch (const Error& e) {
    return e.kind() == ErrorKind::kComm || e.kind() == ErrorKind::kDeadlineExceeded ||
           e.kind() == ErrorKind::kAborted || e.reason() == kDeviceFailed;
  } catch (...) {
    return false;
  }
}

void rethrow_comm_error(const std::exception_ptr& error) {
  if (error && ends_the_group(error)) std::rethrow_exception(error);
}

std::string encode_error(const std::exception_ptr& error, int rank) {
  const Error known = base::as_error(error);
  Error::Metadata metadata = known.metadata();
  metadata["rank"] = std::to_string(rank);
  const Json json = {{"kind", static_cast<int>(known.kind())},
                     {"reason", known.reason()},
                     {"message", known.what()},
                     {"metadata", metadata}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void rethrow_encoded(const std::string& text) {
  throw_agreed<AgreedError>(Json::parse(text), {}, {});
}

void rethrow_failed_alone(const std::string& text, int rank) {
  throw_agreed<FailedAloneError>(Json::parse(text), fmt::format("rank {} failed alone: ", rank),
                                 {{"failed_rank", std::to_string(rank)}});
}

bool is_agreed(const std::exception_ptr& error) { return has_mark<AgreedMark>(error); }

bool is_failed_alone(const std::exception_ptr& error) { return has_mark<FailedAloneMark>(error); }

void agree(ProcessGroup& group, const std::exception_ptr& mine) {
  if (mine && ends_the_group(mine)) std::rethrow_exception(mine);
  if (group.size() == 1) {
    if (mine) std::rethrow_exception(mine);
    return;
  }
  // The lowest failing rank, or the size if there is none: exact in float32.
  float first = static_cast<float>(mine ? group.rank() : group.size());
  group.all_reduce(make_view(&first, DType::kFloat32, {1}), ReduceOp::kMin)->wait_host();
  const int failing = static_cast<int>(first);
  if (failing == group.size()) return;

  std::string text = failing == group.rank() ? encode_error(mine, failing) : std::string();
  auto length = static_cast<std::int64_t>(text.size());
  group.broadcast(make_view(&length, DType::kInt64, {1}), failing)->wait_host();
  text.resize(static_cast<std::size_t>(length));
  group.broadcast(make_view(text.data(), DType::kUInt8, {length}), failing)->wait_host();
  rethrow_encoded(text);
}

void run_agreed(ProcessGroup& group, const std::function<void()>& body) {
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  agree(group, error);
}

}  // namespace meshloom::comm
