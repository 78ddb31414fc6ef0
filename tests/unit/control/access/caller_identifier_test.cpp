// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/caller_identifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using ::testing::HasSubstr;

RoleRules rules(const std::vector<std::pair<std::string, std::string>>& given) {
  v1::AccessConfig config;
  for (const auto& [name, role] : given) {
    v1::RoleRule& rule = *config.add_roles();
    rule.set_name(name);
    rule.set_role(role);
  }
  return RoleRules(config);
}

std::string told(const Proven& proven) {
  return proven.identity.name + " " + role_name(proven.identity.role);
}

class CallerIdentifierTest : public ::testing::Test {
 protected:
  Evidence with_token(const std::string& token) const {
    return {.address = "10.0.0.1", .authorization = "Bearer " + token};
  }
  test::TempFolder folder_;
  TokenStore tokens_{folder_ / "tokens"};
  // No account of a host has this number.
  const uid_t stranger_ = 4'000'000'123;
};

TEST_F(CallerIdentifierTest, TheOwnAccountAndRootAreAdmins) {
  CallerIdentifier identifier({.rules = {}, .tokens = &tokens_});
  for (const uid_t account : {::geteuid(), uid_t{0}}) {
    EXPECT_EQ(told(identifier.identify({.address = "127.0.0.1", .account = account})),
              "admin admin");
    EXPECT_TRUE(identifier.account_connected(account).is_admin());
  }
  identifier.account_connected(stranger_);
  const Proven other = identifier.identify({.address = "127.0.0.1", .account = stranger_});
  EXPECT_EQ(told(other), "uid-4000000123 nobody");
  EXPECT_THAT(other.refusal, HasSubstr("has no role"));
  const Proven nobody = identifier.identify({.address = "10.0.0.1"});
  EXPECT_EQ(told(nobody), " nobody");
  EXPECT_THAT(nobody.refusal, HasSubstr("shows no token"));
}

TEST_F(CallerIdentifierTest, AnAccountHasTheRoleOfItsNameOrGroup) {
  const passwd* account = ::getpwnam("nobody");
  if (account == nullptr) GTEST_SKIP() << "this host has no account nobody";
  const uid_t number = account->pw_uid;
  CallerIdentifier by_name({.rules = rules({{"nobody", "viewer"}, {"@nogroup", "admin"}})});
  by_name.account_connected(number);
  EXPECT_EQ(told(by_name.identify({.address = "unix", .account = number})), "nobody viewer");
  CallerIdentifier by_group({.rules = rules({{"@nogroup", "submitter"}})});
  by_group.account_connected(number);
  EXPECT_EQ(told(by_group.identify({.address = "unix", .account = number})), "nobody submitter");
}

TEST_F(CallerIdentifierTest, ATokenCountsBeforeAllElseAlsoWhereItIsWrong) {
  CallerIdentifier identifier({.rules = rules({{"carol", "admin"}}), .tokens = &tokens_});
  const auto issued = tokens_.create("alice", Role::kViewer, std::nullopt);
  EXPECT_EQ(told(identifier.identify(with_token(issued.token))), "alice viewer");
  Evidence all = with_token(issued.token);
  all.account = ::geteuid();
  all.has_certificate = true;
  all.certificate_name = "carol";
  EXPECT_EQ(told(identifier.identify(all)), "alice viewer");
  all.authorization = "Bearer wrong";
  EXPECT_EQ(told(identifier.identify(all)), " nobody");
  all.authorization = "Basic " + issued.token;
  EXPECT_EQ(told(identifier.identify(all)), " nobody");
  all.authorization.reset();
  EXPECT_EQ(told(identifier.identify(all)), "carol admin");
}

TEST_F(CallerIdentifierTest, WrongTokensBarAnAddressForAMoment) {
  CallerIdentifier identifier({.rules = {}, .tokens = &tokens_});
  const auto issued = tokens_.create("alice", Role::kViewer, std::nullopt);
  for (int i = 0; i < 5; ++i)
    EXPECT_THAT(identifier.identify(with_token("wrong")).refusal, HasSubstr("not one of"));
  EXPECT_THAT(identifier.identify(with_token("wrong")).refusal, HasSubstr("too many"));
  EXPECT_THAT(identifier.identify(with_token(issued.token)).refusal, HasSubstr("too many"));
  Evidence other = with_token(issued.token);
  other.address = "10.0.0.2";
  EXPECT_EQ(told(identifier.identify(other)), "alice viewer");
}

TEST_F(CallerIdentifierTest, ACertificateIsKnownByANameOfOneSpelling) {
  CallerIdentifier identifier({.rules = rules({{"alice", "submitter"}})});
  const auto of = [&](const std::string& name) {
    return identifier.identify(
        {.address = "10.0.0.1", .has_certificate = true, .certificate_name = name});
  };
  EXPECT_EQ(told(of("alice")), "alice submitter");
  EXPECT_EQ(told(of("Alice")), "alice submitter");
  EXPECT_EQ(told(of("bob")), "bob nobody");
  for (const char* name : {"", "admin", "Admin", "../x", "a/b", "spiffe://x/alice", "\xC3\xA4"})
    EXPECT_EQ(told(of(name)), " nobody") << name;
  EXPECT_THAT(of("").refusal, HasSubstr("no subject alternative name"));
}

TEST_F(CallerIdentifierTest, WithInsecureEverybodyIsAnAdmin) {
  CallerIdentifier identifier({.everybody_is_admin = true, .rules = {}, .tokens = &tokens_});
  EXPECT_EQ(told(identifier.identify({.address = "10.0.0.1"})), "admin admin");
  EXPECT_EQ(told(identifier.identify(with_token("wrong"))), " nobody");
}

TEST(RoleRules, WhatCannotBeOneIsRefused) {
  EXPECT_EQ(test::reason_of([] { rules({{"alice", "boss"}}); }), "ROLE_INVALID");
  EXPECT_EQ(test::reason_of([] { rules({{"alice", "none"}}); }), "ROLE_INVALID");
  EXPECT_EQ(test::reason_of([] { rules({{"", "viewer"}}); }), "NAME_INVALID");
  EXPECT_EQ(test::reason_of([] { rules({{"@", "viewer"}}); }), "NAME_INVALID");
  EXPECT_EQ(test::reason_of([] { rules({{"admin", "viewer"}}); }), "NAME_INVALID");
}

}  // namespace
}  // namespace meshloom::control
