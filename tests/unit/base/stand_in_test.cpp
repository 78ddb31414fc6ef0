// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/stand_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4665cb5dc1e46e2c3ab8ee3e11ca5c7e2d0ea5a2ea2e7a1ed3b2b3f2e1ad2b0a\nsize 548118077\n";

/// "REASON: text" of what refuse_stand_in throws.
std::string refusal(std::string_view beginning) {
  try {
    refuse_stand_in(beginning, "model/file");
  } catch (const Error& error) {
    return fmt::format("{}: {}", error.reason(), error.what());
  }
  return "taken";
}

TEST(StandIn, APointerOfGitLfsIsNamedWithWhatToDo) {
  EXPECT_THAT(refusal(kPointer), AllOf(HasSubstr("GIT_LFS_POINTER"), HasSubstr("model/file"),
                                       HasSubstr("git lfs pull")));
}

TEST(StandIn, APageIsNamed) {
  for (const char* page :
       {"<!DOCTYPE html><html>", "<!doctype HTML PUBLIC", "\xef\xbb\xbf\n <HTML lang"})
    EXPECT_THAT(refusal(page), AllOf(HasSubstr("WEB_PAGE"), HasSubstr("model/file"))) << page;
}

TEST(StandIn, EverythingElseIsTaken) {
  for (const char* text : {"", "version", "version 2", "{\"a\": 1}", "<s>", "<htm", "html"})
    EXPECT_EQ(refusal(text), "taken") << text;
}

TEST(StandIn, AFileIsLookedAtByItsBeginningAndReadAsTextRefused) {
  const test::TempFolder folder;
  folder.write("pointer", kPointer);
  folder.write("page", "<html>" + std::string(1000, ' '));
  folder.write("text", "hello");
  EXPECT_THROW(refuse_stand_in(InputFile(folder / "pointer"), "p"), InvalidArgument);
  EXPECT_THROW(refuse_stand_in(InputFile(folder / "page"), "p"), InvalidArgument);
  refuse_stand_in(InputFile(folder / "text"), "p");
  try {
    InputFile(folder / "pointer").read_text(1000);
    FAIL() << "a pointer was read as the text that it stands for";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.reason(), "GIT_LFS_POINTER");
  }
  EXPECT_EQ(InputFile(folder / "text").read_text(1000), "hello");
}

}  // namespace
}  // namespace meshloom::base
