// SPDX-License-Identifier: Apache-2.0
// Numbers that a message may leave out: one that is given is taken or refused, never replaced.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/field_error.h"

namespace meshloom::base {

/// Throws InvalidArgument with the field for a number that is given and not above 0. `otherwise` is
/// what it is if it is left out ("the model's context").
template <typename Number>
void check_given_positive(const std::string& field, bool is_given, Number value,
                          std::string_view otherwise) {
  if (is_given && !(value > 0))
    refuse_field(field, "must be above 0, got {}; leave it out for {}", value, otherwise);
}

}  // namespace meshloom::base
