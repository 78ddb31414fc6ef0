// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/field_error.h"

#include "daemon/base/throw_kind.h"

namespace meshloom::base {

void throw_with_field(const Error& error, const std::string& field) {
  Error::Metadata metadata = error.metadata();
  metadata["field"] = field;
  throw_kind<ErrorOf>(error.kind(), fmt::format("{}: {}", field, error.what()), error.reason(),
                      metadata);
}

}  // namespace meshloom::base
