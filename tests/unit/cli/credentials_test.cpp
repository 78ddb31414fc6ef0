// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "daemon/cli/exit_code.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

class CredentialsTest : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const std::string path = folder_.write(name, text).string();
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::string refusal(const CredentialFiles& files, const std::string& address) const {
    try {
      read_credentials(files, address);
      return "";
    } catch (const CliError& error) {
      EXPECT_EQ(error.code(), kUsage);
      return error.what();
    }
  }

  const std::string remote_ = "train.example.org:7420";
  test::TempFolder folder_;
};

TEST_F(CredentialsTest, TheLineWinsOverTheEnvironmentAndThatOverTheFolder) {
  base::Environment environment;
  environment.home = folder_.path().string();
  const std::string by_address = put(".config/meshloom/" + remote_ + "/token", "t");
  EXPECT_EQ(find_credentials({}, environment, remote_).token, by_address);
  EXPECT_EQ(find_credentials({}, environment, remote_).ca, "");
  EXPECT_EQ(find_credentials({}, environment, "other:7420").token, "");
  environment.token_file = "variable";
  EXPECT_EQ(find_credentials({}, environment, remote_).token, "variable");
  EXPECT_EQ(find_credentials({.token = "line"}, environment, remote_).token, "line");
  EXPECT_EQ(find_credentials({}, environment, "unix:/x/socket").token, "");
  EXPECT_EQ(find_credentials({.token = "line"}, environment, "unix:/x/socket").token, "line");
}

TEST_F(CredentialsTest, ATokenIsOneWordAndPrivate) {
  const std::string ca = put("ca.pem", "ca", 0644);
  EXPECT_EQ(read_credentials({.token = put("t", " word\n"), .ca = ca}, remote_).token, "word");
  EXPECT_THAT(refusal({.token = put("t", "two words"), .ca = ca}, remote_), HasSubstr("no token"));
  EXPECT_THAT(refusal({.token = put("t", ""), .ca = ca}, remote_), HasSubstr("no token"));
  EXPECT_THAT(refusal({.token = put("t", "word", 0644), .ca = ca}, remote_),
              HasSubstr("others may read it"));
  EXPECT_THAT(refusal({.token = (folder_ / "none").string(), .ca = ca}, remote_),
              HasSubstr("none"));
}

TEST_F(CredentialsTest, ATokenIsNeverSentInTheClearToAnotherHost) {
  const CredentialFiles token{.token = put("t", "word")};
  EXPECT_THAT(refusal(token, remote_), HasSubstr("in the clear"));
  EXPECT_THAT(refusal(token, "10.0.0.7:7420"), HasSubstr("in the clear"));
  for (const char* here : {"127.0.0.1:7420", "localhost:7420", "[::1]:7420", "unix:/x"})
    EXPECT_EQ(refusal(token, here), "") << here;
}

TEST_F(CredentialsTest, ACertificateNeedsItsKeyAndACa) {
  const std::string file = put("f", "x");
  EXPECT_THAT(refusal({.cert = file}, remote_), HasSubstr("--key is not given"));
  EXPECT_THAT(refusal({.key = file}, remote_), HasSubstr("--cert is not given"));
  EXPECT_THAT(refusal({.cert = file, .key = file}, remote_), HasSubstr("needs --ca"));
  EXPECT_THAT(refusal({.ca = file, .cert = file, .key = put("open", "x", 0640)}, remote_),
              HasSubstr("others may read it"));
  EXPECT_TRUE(read_credentials({.ca = file}, remote_).encrypts());
}

}  // namespace
}  // namespace meshloom::cli
