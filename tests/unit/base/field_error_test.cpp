// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/field_error.h"

#include <gtest/gtest.h>

namespace meshloom::base {
namespace {

template <ErrorKind Kind>
void expect_kept() {
  SCOPED_TRACE(error_kind_name(Kind));
  try {
    with_field("run.data.path", []() -> int {
      throw ErrorOf<Kind>("the daemon is stopping", "STOPPING", {{"limit_ms", "5"}});
    });
    FAIL() << "nothing was thrown";
  } catch (const ErrorOf<Kind>& error) {
    EXPECT_EQ(error.kind(), Kind);
    EXPECT_EQ(error.reason(), "STOPPING");
    EXPECT_STREQ(error.what(), "run.data.path: the daemon is stopping");
    EXPECT_EQ(error.metadata().at("field"), "run.data.path");
    EXPECT_EQ(error.metadata().at("limit_ms"), "5");
  } catch (const Error& error) {
    FAIL() << "it became " << error_kind_name(error.kind());
  }
}

template <int... Kinds>
void expect_all_kept(std::integer_sequence<int, Kinds...>) {
  (expect_kept<static_cast<ErrorKind>(Kinds)>(), ...);
}

TEST(FieldError, EveryKindIsKept) {
  constexpr int kKinds = static_cast<int>(ErrorKind::kInternal) + 1;
  expect_all_kept(std::make_integer_sequence<int, kKinds>());
}

TEST(FieldError, TheInnermostFieldIsTheOneThatIsNamed) {
  try {
    with_field("run.data", [] { refuse_field("run.data.path", "is empty"); });
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "run.data.path: is empty");
    EXPECT_EQ(error.metadata().at("field"), "run.data.path");
  }
}

TEST(FieldError, WhatTheBodyReturnsGoesThrough) {
  EXPECT_EQ(with_field("steps", [] { return 7; }), 7);
}

}  // namespace
}  // namespace meshloom::base
