// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/launch_key.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

// Clocks of hosts differ; the key is gone with its launch.
constexpr long kBegin = -30L * 24 * 3600, kEnd = 20L * 365 * 24 * 3600;

template <auto Free>
struct FreedBy {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

void need(bool done) { check_internal(done, "OpenSSL makes no key for the ranks"); }

template <typename Write>
std::string pem_of(const Write& write) {
  const std::unique_ptr<BIO, FreedBy<&BIO_free_all>> bio(BIO_new(BIO_s_mem()));
  need(bio && write(bio.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

}  // namespace

LaunchKey make_launch_key() {
  const std::unique_ptr<EVP_PKEY, FreedBy<&EVP_PKEY_free>> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, FreedBy<&X509_free>> certificate(X509_new());
  need(key && certificate);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), kBegin);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kEnd);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  need(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                  reinterpret_cast<const unsigned char*>(kLaunchName), -1, -1,
                                  0) == 1);
  X509_set_issuer_name(certificate.get(), name);
  const std::unique_ptr<X509_EXTENSION, FreedBy<&X509_EXTENSION_free>> names(X509V3_EXT_conf_nid(
      nullptr, nullptr, NID_subject_alt_name, fmt::format("DNS:{}", kLaunchName).c_str()));
  need(names && X509_add_ext(certificate.get(), names.get(), -1) == 1 &&
       X509_set_pubkey(certificate.get(), key.get()) == 1 &&
       X509_sign(certificate.get(), key.get(), EVP_sha256()) != 0);
  return {pem_of([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); }),
          pem_of([&](BIO* bio) {
            return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace meshloom::control
