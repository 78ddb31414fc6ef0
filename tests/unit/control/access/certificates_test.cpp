// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>

#include "daemon/control/access/certificate_files.h"
#include "daemon/control/access/certificate_watch.h"
#include "kernels/base/error.h"
#include "tests/support/certificates.h"
#include "tests/support/file_text.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr long kDay = 24 * 3600;

std::int64_t now() { return static_cast<std::int64_t>(std::time(nullptr)); }

std::string refusal_of(const CertificateTexts& texts) {
  try {
    check_certificate(texts, now());
    return "";
  } catch (const FailedPrecondition& error) {
    EXPECT_EQ(error.reason(), "CERTIFICATE_INVALID");
    return error.what();
  }
}

TEST(CertificateFiles, WhatCannotServeIsRefusedByName) {
  const test::Certified ca = test::make_certificate({});
  const test::Certified good =
      test::make_certificate({.names = "DNS:train.example.org,IP:10.0.0.7", .by = &ca});
  const test::Certified other = test::make_certificate({.by = &ca});
  const test::Certified old =
      test::make_certificate({.begins_in = -2 * kDay, .ends_in = -kDay, .by = &ca});
  const test::Certified young =
      test::make_certificate({.begins_in = kDay, .ends_in = 2 * kDay, .by = &ca});
  EXPECT_EQ(refusal_of({good.certificate, good.key, ca.certificate}), "");
  EXPECT_EQ(refusal_of({good.certificate, good.key, ""}), "");
  EXPECT_THAT(refusal_of({good.certificate, other.key, ""}), HasSubstr("is not that of"));
  EXPECT_THAT(refusal_of({old.certificate, old.key, ""}), HasSubstr("has expired on 20"));
  EXPECT_THAT(refusal_of({young.certificate, young.key, ""}), HasSubstr("is not valid before 20"));
  EXPECT_THAT(refusal_of({"", good.key, ""}), HasSubstr("--tls-cert: holds no certificate"));
  EXPECT_THAT(refusal_of({good.certificate.substr(0, 200), good.key, ""}),
              HasSubstr("--tls-cert: holds no certificate"));
  EXPECT_THAT(refusal_of({good.certificate, "x", ""}), HasSubstr("--tls-key: holds no key"));
  EXPECT_THAT(refusal_of({good.certificate, good.key, "x"}), HasSubstr("--tls-client-ca: holds"));
  EXPECT_THAT(check_certificate({good.certificate, good.key, ""}, now()).names,
              ElementsAre("train.example.org", "10.0.0.7"));
  EXPECT_THAT(check_certificate({other.certificate, other.key, ""}, now()).names, IsEmpty());
}

TEST(CertificateFiles, ANameFitsAHost) {
  const std::vector<std::string> names = {"a.example.org", "*.lab.example.org", "10.0.0.7"};
  for (const char* host : {"a.example.org", "A.Example.ORG", "x.lab.example.org", "10.0.0.7"})
    EXPECT_TRUE(fits_host(names, host)) << host;
  for (const char* host :
       {"example.org", "x.y.lab.example.org", ".lab.example.org", "10.0.0.8", ""})
    EXPECT_FALSE(fits_host(names, host)) << host;
}

class CertificateWatchTest : public ::testing::Test {
 protected:
  void put(const test::Certified& certified) {
    folder_.write("cert.pem", certified.certificate);
    folder_.write("key.pem", certified.key);
    ::chmod((folder_ / "key.pem").c_str(), 0600);
  }
  v1::AccessConfig config() const {
    v1::AccessConfig config;
    config.set_tls_cert((folder_ / "cert.pem").string());
    config.set_tls_key((folder_ / "key.pem").string());
    return config;
  }

  test::TempFolder folder_;
};

TEST_F(CertificateWatchTest, ANewPairIsTakenAndABadOneIsNot) {
  const test::Certified first = test::make_certificate({.names = "DNS:first"});
  const test::Certified second = test::make_certificate({.names = "DNS:second"});
  put(first);
  CertificateWatch watch(config(), folder_ / "tls");
  EXPECT_EQ(test::file_text(watch.key()), first.key);
  EXPECT_THAT(watch.notes(), IsEmpty());
  put({second.certificate, first.key});
  watch.look();
  EXPECT_EQ(test::file_text(watch.certificate()), first.certificate) << "the key does not fit";
  EXPECT_THAT(watch.notes(), ElementsAre(HasSubstr("is not that of the certificate")));
  put(second);
  watch.look();
  EXPECT_EQ(test::file_text(watch.certificate()), second.certificate);
  EXPECT_EQ(test::file_text(watch.key()), second.key);
  EXPECT_THAT(watch.notes(), IsEmpty());
  EXPECT_THAT(watch.names(), ElementsAre("second"));
  std::filesystem::remove(folder_ / "key.pem");
  watch.look();
  EXPECT_EQ(test::file_text(watch.key()), second.key);
  EXPECT_THAT(watch.notes(), ElementsAre(HasSubstr("the certificate of before is in use")));
}

TEST_F(CertificateWatchTest, AnEndIsToldFourteenDaysAhead) {
  put(test::make_certificate({.ends_in = 15 * kDay}));
  EXPECT_THAT(CertificateWatch(config(), folder_ / "tls").notes(), IsEmpty());
  put(test::make_certificate({.ends_in = 13 * kDay + 60}));
  EXPECT_THAT(CertificateWatch(config(), folder_ / "tls").notes(),
              ElementsAre(HasSubstr("expires in 13 days")));
}

TEST_F(CertificateWatchTest, AKeyThatOthersMayReadIsRefused) {
  put(test::make_certificate({}));
  ::chmod((folder_ / "key.pem").c_str(), 0640);
  EXPECT_EQ(test::reason_of([&] { CertificateWatch(config(), folder_ / "tls"); }),
            "KEY_NOT_PRIVATE");
}

}  // namespace
}  // namespace meshloom::control
