// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/as_error.h"

#include <filesystem>
#include <new>
#include <system_error>

#include "daemon/base/files.h"

namespace meshloom::base {
namespace {

Error error_of(const std::filesystem::filesystem_error& refused) {
  try {
    throw_input_error("cannot use", refused.path1(), refused.code().value());
  } catch (const Error& known) {
    return known;
  }
}

}  // namespace

Error as_error(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& known) {
    return known;
  } catch (const std::filesystem::filesystem_error& refused) {
    return error_of(refused);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory", "OUT_OF_MEMORY");
  } catch (const std::system_error& refused) {
    // What std::thread throws, whose text says nothing of threads.
    if (refused.code() == std::errc::resource_unavailable_try_again)
      return ResourceExhausted(
          "no thread could be started: limits on processes (ulimit -u), address space (ulimit -v) "
          "or those of a cgroup (pids.max) leave no room",
          "NO_THREAD");
    return InternalError(refused.what());
  } catch (const std::exception& other) {
    return InternalError(other.what());
  } catch (...) {
    return InternalError("an exception of unknown type");
  }
}

}  // namespace meshloom::base
