// SPDX-License-Identifier: Apache-2.0
// Certificates as tests need them: of any names and time, by any CA.
#pragma once

#include <string>

namespace meshloom::test {

/// A certificate and its key, as PEM.
struct Certified {
  std::string certificate;
  std::string key;
};

struct CertificateWishes {
  std::string names{};     ///< as OpenSSL has them, "DNS:localhost,IP:127.0.0.1"; may be empty
  long begins_in = -3600;  ///< seconds from now
  long ends_in = 90L * 24 * 3600;
  const Certified* by = nullptr;  ///< the CA; null: it is one itself
};

/// Throws std::runtime_error where OpenSSL does not make it.
Certified make_certificate(const CertificateWishes& wishes);

}  // namespace meshloom::test
