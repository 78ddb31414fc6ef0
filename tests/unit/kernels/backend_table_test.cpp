// SPDX-License-Identifier: Apache-2.0
// The table of devices, in a program that links tensors and no kernels.
#include "kernels/backend_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include "daemon/tensor/execution_context.h"
#include "kernels/base/error.h"

namespace meshloom::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string refusal_of(Device device) {
  try {
    backend_for(device);
  } catch (const Unimplemented& error) {
    EXPECT_EQ(error.reason(), "NO_DEVICE");
    return error.what();
  }
  return "no error";
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* all) {
        static_cast<std::vector<std::string>*>(all)->push_back(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

// One test: the table of a process never shrinks.
TEST(BackendTable, HoldsWhatTheProgramPutsThere) {
  EXPECT_THAT(device_indices(DeviceKind::kCpu), IsEmpty());
  EXPECT_EQ(refusal_of(kCpuDevice), "device cpu: this program has no cpu backend");
  EXPECT_THROW(ExecutionContext{}, Unimplemented);

  const auto never = []() -> Backend& { throw InternalError("asked for"); };
  add_device({DeviceKind::kCuda, 3}, never);
  add_device({DeviceKind::kCuda, 1}, never);
  EXPECT_THAT(device_indices(DeviceKind::kCuda), ElementsAre(1, 3));
  EXPECT_EQ(refusal_of({DeviceKind::kCuda, 2}), "device cuda:2: there is cuda:1, cuda:3");
  EXPECT_THROW(backend_for({DeviceKind::kCuda, 3}), InternalError) << "made when it is asked for";
  EXPECT_THROW(add_device({DeviceKind::kCuda, 3}, never), InternalError);
}

TEST(BackendTable, WithoutKernelsNoLibraryOfThemIsLinked) {
  for (const std::string& library : loaded_libraries()) {
    EXPECT_THAT(library, Not(HasSubstr("dnnl")));
    EXPECT_THAT(library, Not(HasSubstr("openblas")));
  }
}

}  // namespace
}  // namespace meshloom::kernels
