// SPDX-License-Identifier: Apache-2.0
#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdint>
#include <memory>
#include <stdexcept>

namespace meshloom::test {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<&EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<&X509_free>>;
using Bio = std::unique_ptr<BIO, Freed<&BIO_free_all>>;

void need(bool done) {
  if (!done) throw std::runtime_error("OpenSSL makes no certificate");
}

Bio reader(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_in(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

void add_extension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  need(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

void name_subject(X509* certificate, const char* name) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  need(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                  reinterpret_cast<const unsigned char*>(name), -1, -1, 0) == 1);
}

}  // namespace

Certified make_certificate(const CertificateWishes& wishes) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  need(key && certificate);
  X509_set_version(certificate.get(), 2);
  std::uint32_t serial = 0;
  need(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), static_cast<long>(serial >> 1));
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), wishes.begins_in);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), wishes.ends_in);
  need(X509_set_pubkey(certificate.get(), key.get()) == 1);
  name_subject(certificate.get(), wishes.by != nullptr ? "leaf" : "test CA");
  Key signer;
  if (wishes.by != nullptr) {
    const Certificate ca(
        PEM_read_bio_X509(reader(wishes.by->certificate).get(), nullptr, nullptr, nullptr));
    signer.reset(PEM_read_bio_PrivateKey(reader(wishes.by->key).get(), nullptr, nullptr, nullptr));
    need(ca && signer);
    X509_set_issuer_name(certificate.get(), X509_get_subject_name(ca.get()));
  } else {
    X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
    add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  }
  if (!wishes.names.empty()) add_extension(certificate.get(), NID_subject_alt_name, wishes.names);
  need(X509_sign(certificate.get(), signer ? signer.get() : key.get(), EVP_sha256()) != 0);
  const Bio certificate_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_mem()));
  need(PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1 &&
       PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) ==
           1);
  return {text_in(certificate_text.get()), text_in(key_text.get())};
}

}  // namespace meshloom::test
