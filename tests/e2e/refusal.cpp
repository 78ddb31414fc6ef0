// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/refusal.h"

#include <gtest/gtest.h>

namespace meshloom::e2e {

void expect_refused(RunClient& client, const Refusals& refusals) {
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    const Outcome outcome = refusal.send(client);
    EXPECT_EQ(outcome.code, refusal.code) << outcome.message;
    EXPECT_EQ(outcome.reason, refusal.reason) << outcome.message;
    if (!refusal.field.empty()) {
      EXPECT_EQ(outcome.field, refusal.field) << outcome.message;
    }
  }
}

}  // namespace meshloom::e2e
