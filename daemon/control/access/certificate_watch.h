// SPDX-License-Identifier: Apache-2.0
// CertificateWatch: the daemon's certificate, renewed without a restart.
#pragma once

#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/control/access/certificate_files.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// Copies the files into a folder of the daemon's own, where whoever serves TLS reads them: after a
/// key that does not fit gRPC would take no connection any more, so that new files are checked
/// before they get there. A copy is a folder of its own, and `current` a link to the newest, so
/// that certificate and key change at once. Any thread may call any function.
class CertificateWatch {
 public:
  /// How long ahead the end of a certificate is told.
  static constexpr std::chrono::hours kAhead{14 * 24};

  /// Throws as read_certificate_files() and check_certificate(). `folder` is made (mode 0700).
  CertificateWatch(v1::AccessConfig config, std::filesystem::path folder);
  /// Removes the copies.
  ~CertificateWatch();
  CertificateWatch(const CertificateWatch&) = delete;
  CertificateWatch& operator=(const CertificateWatch&) = delete;

  std::filesystem::path certificate() const { return folder_ / "current" / "cert.pem"; }
  std::filesystem::path key() const { return folder_ / "current" / "key.pem"; }
  /// Empty where clients show no certificates.
  std::filesystem::path client_ca() const;

  /// Takes the files if they have changed and can be used; what cannot is logged, and the copies
  /// stay. Call it now and then.
  void look();
  std::vector<std::string> names();
  /// What is to be told: an end that comes soon, files that are not taken.
  std::vector<std::string> notes();

 private:
  std::string stamp() const;
  void take(const CertificateTexts& texts);

  const v1::AccessConfig config_;
  const std::filesystem::path folder_;
  std::mutex mutex_;
  CertificateFacts facts_;
  std::string stamp_;
  std::string trouble_;
  int generation_ = 0;
};

}  // namespace meshloom::control
