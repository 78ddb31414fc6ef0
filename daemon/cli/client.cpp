// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/client.h"

#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>

#include <cctype>
#include <random>
#include <string_view>
#include <thread>

namespace meshloom::cli {
namespace {

constexpr int kMessageBytes = 8 << 20;

/// Spells an address as gRPC reads it: the path of a Unix socket is one of a URI, which has no
/// spaces and the like.
std::string grpc_target(const std::string& address) {
  constexpr std::string_view kUnix = "unix:";
  if (!address.starts_with(kUnix)) return address;
  std::string target(kUnix);
  for (const char c : address.substr(kUnix.size())) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || std::string_view("/._-~").find(c) != std::string_view::npos)
      target += c;
    else
      target += fmt::format("%{:02X}", byte);
  }
  return target;
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address,
                                            const Credentials& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetMaxReceiveMessageSize(kMessageBytes);
  // A proxy of the environment is for the internet, not for a daemon on this host.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(grpc_target(address), channel_credentials(credentials),
                                   arguments);
}

/// Wrong values in a request or config are the user's to correct: the same code as wrong usage.
ExitCode exit_code_of(const v1::ErrorDetails& details) {
  switch (details.code()) {
    case grpc::StatusCode::UNAVAILABLE: return kUnreachable;
    case grpc::StatusCode::CANCELLED: return kCancelled;
    case grpc::StatusCode::INVALID_ARGUMENT: return kUsage;
    default: return details.violations_size() > 0 ? kUsage : kFailed;
  }
}

template <typename Message>
bool unpack(const google::protobuf::Any& any, const char* type, Message* message) {
  return any.type_url() == std::string("type.googleapis.com/google.rpc.") + type &&
         message->ParseFromString(any.value());
}

/// What a refusal by gRPC itself means, before or beside any handler: its own texts, if there
/// are any, speak of its insides.
std::string meaning_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "refused the call: a message is larger than allowed (16 MiB for requests), or too "
             "many "
             "calls are served at once";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "does not know this call, or could not read its request: it is of another version, or "
             "the request holds text that is not UTF-8 or messages nested too deep";
    case grpc::StatusCode::CANCELLED:
      return "ended the call: it stops, or this client took nothing from the stream for too long";
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED: return "does not let this client do that";
    case grpc::StatusCode::INTERNAL: return "could not read the request, or broke the protocol";
    default: return "ended the call";
  }
}

/// What of gRPC's text about a connection that failed helps its user: " (...)" or nothing.
std::string why_unreachable(const std::string& text, bool encrypts) {
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (says("CERTIFICATE_VERIFY_FAILED") || says("certificate verify failed"))
    return " (its certificate is not of the CA that --ca names, or is not valid now)";
  if (says("not in peer certificate")) return " (its certificate is for other names than this)";
  if (says("WRONG_VERSION_NUMBER") || says("wrong version number"))
    return " (it does not speak TLS: leave --ca out)";
  if (encrypts && says("Ssl handshake failed"))
    return " (TLS fails: its certificate is not of the CA that --ca names or is not valid now, or "
           "it "
           "does not take this client's certificate)";
  if (!encrypts && says("Socket closed"))
    return " (it closes the connection: perhaps it speaks TLS, and needs --ca)";
  if (says("DNS") || says("C-ares") || says("getaddrinfo") || says("resolv"))
    return " (no host of that name is known)";
  for (const char* cause : {"Connection refused", "Connection reset", "No route to host",
                            "Network is unreachable", "Permission denied"})
    if (says(cause)) return fmt::format(" ({})", cause);
  if (says("Timeout") || says("timed out")) return " (it did not answer in time)";
  return "";
}

}  // namespace

Client::Client(const std::string& address, std::string name, std::string run_token,
               const Credentials& credentials)
    : address_(complete_address(address)),
      name_(std::move(name)),
      run_token_(std::move(run_token)),
      authorization_(credentials.token.empty() ? "" : "Bearer " + credentials.token),
      encrypts_(credentials.encrypts()),
      channel_(make_channel(address_, credentials)),
      tokens_(v1::TokenService::NewStub(channel_)),
      jobs_(v1::JobService::NewStub(channel_)),
      generation_(v1::GenerateService::NewStub(channel_)),
      evaluation_(v1::EvaluateService::NewStub(channel_)),
      data_(v1::DataService::NewStub(channel_)),
      checkpoints_(v1::CheckpointService::NewStub(channel_)),
      workers_(v1::WorkerService::NewStub(channel_)),
      uploads_(v1::UploadService::NewStub(channel_)),
      models_(v1::ModelService::NewStub(channel_)),
      plans_(v1::PlanService::NewStub(channel_)),
      access_(v1::AccessService::NewStub(channel_)),
      runs_(v1::RunService::NewStub(channel_)),
      operations_(v1::OperationService::NewStub(channel_)),
      events_(v1::EventService::NewStub(channel_)) {}

std::string complete_address(const std::string& given) {
  constexpr const char* kDefaultPort = "7420";
  std::string address = given;
  if (address.starts_with("https://"))
    throw CliError(kUsage, fmt::format("--address {}: meshloomd speaks no https; write host:port, "
                                       "and --ca for one that speaks TLS",
                                       given));
  for (const std::string scheme : {"http://", "grpc://"})
    if (address.starts_with(scheme)) address.erase(0, scheme.size());
  if (address.starts_with("unix:") || address.starts_with("dns:") || address.starts_with("ipv4:") ||
      address.starts_with("ipv6:"))
    return address;
  if (const auto slash = address.find('/'); slash != std::string::npos) address.resize(slash);
  if (address.empty() && !given.empty())
    throw CliError(kUsage, fmt::format("--address {}: names no host; write host:port", given));
  // A port of this host.
  if (!address.empty() && address.find_first_not_of("0123456789") == std::string::npos)
    return "127.0.0.1:" + address;
  const auto colon = address.rfind(':');
  const bool in_brackets = address.starts_with("[");
  const bool several = !in_brackets && colon != std::string::npos && address.find(':') != colon;
  if (several) return fmt::format("[{}]:{}", address, kDefaultPort);  // IPv6 without brackets
  const bool has_port = colon != std::string::npos && (!in_brackets || address[colon - 1] == ']');
  return has_port || address.empty() ? address : fmt::format("{}:{}", address, kDefaultPort);
}

bool Client::wait_to_repeat(const grpc::Status& status, int attempt) {
  const bool is_full = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
                       status.error_message() == "Server Threadpool Exhausted";
  if (attempt >= kAttempts || (status.error_code() != grpc::StatusCode::UNAVAILABLE && !is_full))
    return false;
  static thread_local std::minstd_rand random{std::random_device{}()};
  const int base = 100 << attempt;
  const std::chrono::milliseconds pause(base / 2 +
                                        static_cast<int>(random() % static_cast<unsigned>(base)));
  if (is_full)
    std::this_thread::sleep_for(pause);
  else
    wait_for_connection(pause);
  return true;
}

void Client::fail(const grpc::Status& status) const {
  v1::ErrorDetails details = details_of(status);
  const ExitCode code = exit_code_of(details);
  // A daemon that answers is reachable, even if it says UNAVAILABLE: it gives a reason.
  if (code == kUnreachable && details.info().reason().empty())
    throw CliError(
        code,
        fmt::format("no meshloomd answers at {}{}. Start one with meshloom up -n N --data-dir DIR, "
                    "or name another with --address or MESHLOOM_ADDRESS",
                    address_, why_unreachable(status.error_message(), encrypts_)));
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && details.info().reason().empty())
    throw CliError(kUnreachable, fmt::format("meshloomd at {} did not answer in time", address_));
  if (details.info().reason().empty()) {
    const std::string own = details.message().empty() ? "no text" : details.message();
    details.set_message(fmt::format("meshloomd at {} {} (gRPC code {}: {})", address_,
                                    meaning_of(status.error_code()), details.code(), own));
  }
  throw CliError(code, details.message(), details);
}

void Client::wait_for_connection(std::chrono::milliseconds timeout) {
  channel_->WaitForConnected(std::chrono::system_clock::now() + timeout);
}

Client::Health Client::health() {
  // grpc.health.v1: an empty request asks for the whole server; byte 0x08 0x01 answers SERVING.
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kHealthTime);
  grpc::CompletionQueue queue;
  const grpc::Slice nothing("", 0);
  const grpc::ByteBuffer request(&nothing, 1);
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice slice;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
      channel_->GetState(false) == GRPC_CHANNEL_READY)
    return Health::kBusy;
  if (!ok || !status.ok() || !response.DumpToSingleSlice(&slice).ok()) return Health::kUnreachable;
  const bool serving = slice.size() == 2 && slice.begin()[0] == 0x08 && slice.begin()[1] == 0x01;
  return serving ? Health::kServing : Health::kNotServing;
}

v1::ErrorDetails details_of(const grpc::Status& status) {
  v1::ErrorDetails details;
  details.set_code(status.error_code());
  details.set_message(status.error_message());
  v1::RpcStatus wire;
  if (!wire.ParseFromString(status.error_details())) return details;
  for (const auto& any : wire.details()) {
    v1::BadRequest bad;
    if (unpack(any, "ErrorInfo", details.mutable_info())) continue;
    if (unpack(any, "BadRequest", &bad)) *details.mutable_violations() = bad.field_violations();
  }
  return details;
}

std::string make_request_id() {
  std::random_device random;
  const auto bits = [&] { return static_cast<std::uint64_t>(random()) << 32 | random(); };
  const std::uint64_t high = (bits() & ~0xF000ULL) | 0x4000ULL;
  const std::uint64_t low = (bits() & ~(3ULL << 62)) | 1ULL << 63;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xFFFF,
                     high & 0xFFFF, low >> 48, low & 0xFFFFFFFFFFFFULL);
}

}  // namespace meshloom::cli
