// SPDX-License-Identifier: Apache-2.0
#include "kernels/plugin/load_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"

namespace meshloom::kernels {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::filesystem::path plugin_file(const std::string& name) {
  return std::filesystem::path(SCRATCH_PLUGINS) / ("lib" + name + ".so");
}

struct Refusal {
  std::string reason;
  std::string text;
};

Refusal refusal_of(const std::filesystem::path& file) {
  try {
    load_plugin(file);
  } catch (const FailedPrecondition& error) {
    return {error.reason(), error.what()};
  }
  return {"none", ""};
}

TEST(LoadPlugin, RefusesWhatIsNoPluginOfThisBuild) {
  const Refusal missing = refusal_of("/nowhere/libx.so");
  EXPECT_EQ(missing.reason, "PLUGIN_NOT_LOADED");
  EXPECT_THAT(missing.text, AllOf(HasSubstr("/nowhere/libx.so"), HasSubstr("No such file"),
                                  HasSubstr("install"), Not(HasSubstr("\n"))));

  const Refusal library = refusal_of(plugin_file("scratch_missing_library"));
  EXPECT_EQ(library.reason, "PLUGIN_NOT_LOADED");
  EXPECT_THAT(library.text, AllOf(HasSubstr("libscratch_gone.so"), HasSubstr("LD_LIBRARY_PATH")));

  const Refusal other = refusal_of(plugin_file("scratch_no_plugin"));
  EXPECT_EQ(other.reason, "NO_PLUGIN");
  EXPECT_THAT(other.text, HasSubstr("no function meshloom_plugin"));

  const Refusal abi = refusal_of(plugin_file("scratch_other_abi"));
  EXPECT_EQ(abi.reason, "PLUGIN_ABI");
  EXPECT_THAT(abi.text, AllOf(HasSubstr("interface 4711"), HasSubstr("of one build")));

  EXPECT_THAT(device_indices(DeviceKind::kCuda), IsEmpty()) << "none of them brought a device";
}

TEST(LoadPlugin, WhatTheEntryThrowsIsOfItsType) {
  const Refusal refusal = refusal_of(plugin_file("scratch_refusal"));
  EXPECT_EQ(refusal.reason, "NO_DEVICE");
  EXPECT_EQ(refusal.text, "no GPU of its kind is found: check the power");
}

// Last, since the table of a process never shrinks.
TEST(LoadPlugin, AddsDevicesWhoseErrorsAreOfTheirTypes) {
  load_plugin(plugin_file("scratch_plugin"));
  EXPECT_THAT(device_indices(DeviceKind::kCuda), ElementsAre(40, 41));
  try {
    backend_for({DeviceKind::kCuda, 40});
    FAIL() << "it throws";
  } catch (const InvalidArgument&) {
    FAIL() << "of a sibling's type";
  } catch (const ResourceExhausted& error) {
    EXPECT_STREQ(error.what(), "cuda:40 is full");
    EXPECT_EQ(error.reason(), "OUT_OF_MEMORY");
    EXPECT_EQ(error.metadata().at("asked"), "17");
  }
  EXPECT_THROW(backend_for({DeviceKind::kCuda, 40}), Error) << "the base of all errors";
  EXPECT_THROW(backend_for({DeviceKind::kCuda, 41}), std::out_of_range);
}

}  // namespace
}  // namespace meshloom::kernels
