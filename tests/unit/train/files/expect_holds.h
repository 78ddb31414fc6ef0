// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace meshloom::train {

/// That something was refused with a message that holds all of `words`.
inline void expect_holds(const std::string& message, const std::vector<std::string>& words) {
  EXPECT_FALSE(message.empty()) << "was accepted";
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "no '" << word << "' in: " << message;
}

}  // namespace meshloom::train
