// SPDX-License-Identifier: Apache-2.0
#include "kernels/plugin/cuda_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"

namespace meshloom::kernels {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> open_libraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* all) {
        static_cast<std::vector<std::string>*>(all)->push_back(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

TEST(CudaPlugin, LiesInTheFolderOfPluginsOrBesideTheProgram) {
  const auto places = cuda_plugin_places("/opt/meshloom/bin");
  const auto plugins = std::filesystem::path("/opt/meshloom/bin") / MESHLOOM_PLUGIN_FOLDER;
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0], plugins.lexically_normal() / "libmeshloom_cuda.so");
  EXPECT_EQ(places[1], "/opt/meshloom/bin/libmeshloom_cuda.so");
}

// This program's folder has no plugin.
TEST(CudaPlugin, WithoutItNothingIsOpenedAndTheReasonIsTold) {
  const std::vector<std::string> before = open_libraries();
  const std::string why = load_cuda_plugin();
  EXPECT_THAT(why, HasSubstr("libmeshloom_cuda.so is not there"));
  EXPECT_THAT(why, Not(HasSubstr("\n")));
  EXPECT_EQ(open_libraries(), before);
  EXPECT_THAT(open_libraries(), Not(Contains(HasSubstr("libcuda"))));
  EXPECT_EQ(missing_text(DeviceKind::kCuda), why);
  EXPECT_THAT(device_indices(DeviceKind::kCuda), Not(Contains(0)));
}

TEST(CudaPlugin, TheReasonStandsInRefusals) {
  if (!device_indices(DeviceKind::kCuda).empty())
    GTEST_SKIP() << "another test has added devices: then they are named";
  note_missing(DeviceKind::kCuda, "no driver: install one");
  try {
    backend_for({DeviceKind::kCuda, 0});
    FAIL() << "there is none";
  } catch (const Unimplemented& error) {
    EXPECT_STREQ(error.what(), "device cuda:0: no driver: install one");
    EXPECT_EQ(error.reason(), "NO_DEVICE");
  }
}

}  // namespace
}  // namespace meshloom::kernels
