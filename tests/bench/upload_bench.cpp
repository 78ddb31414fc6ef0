// SPDX-License-Identifier: Apache-2.0
// An upload into a folder (a tmpfs by default) against what its parts cost when each is alone.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "daemon/base/crc32c.h"
#include "daemon/base/files.h"
#include "daemon/base/sha256.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/services/run_holders.h"
#include "daemon/control/services/upload_service.h"
#include "daemon/control/stores/state_contents.h"
#include "daemon/control/stores/upload_store.h"
#include "tests/bench/bench.h"
#include "tests/support/temp_folder.h"

namespace meshloom::bench {
namespace {

constexpr std::size_t kChunk = 1 << 20;

struct UploadOptions {
  std::string folder = "/dev/shm";
  int mib = 512;
  int repeats = 3;
};

/// Takes every chunk and does nothing with it.
class PlainStream final : public v1::UploadService::Service {
 public:
  grpc::Status WriteUpload(grpc::ServerContext*, grpc::ServerReader<v1::WriteUploadRequest>* chunks,
                           v1::WriteUploadResponse*) override {
    v1::WriteUploadRequest chunk;
    while (chunks->Read(&chunk)) {
    }
    return grpc::Status::OK;
  }
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Every run is open, and anybody's.
class AnyRun final : public control::RunHolders {
 public:
  std::string own_open_run(const control::Caller&, const std::string& name) const override {
    return name;
  }
  control::Hold hold_lease(const control::Caller&, const std::string&) const override { return {}; }
};

struct Cost {
  double wall = 0, cpu = 0;
};

Cost cost_of(const std::function<void()>& work) {
  const double cpu = cpu_seconds();
  const auto begin = Clock::now();
  work();
  return {seconds_since(begin), cpu_seconds() - cpu};
}

/// One run of everything, interleaved with the other runs of it.
class UploadBench {
 public:
  explicit UploadBench(const UploadOptions& options)
      : chunks_(static_cast<std::size_t>(options.mib)), folder_(options.folder) {
    std::mt19937_64 random(1);
    block_.resize(kChunk);
    for (char& byte : block_) byte = static_cast<char>(random());
    base::Sha256 digest;
    for (std::size_t i = 0; i < chunks_; ++i) digest.update(block());
    sha256_ = digest.hex();
  }

  Cost plain() {
    PlainStream service;
    return with_server(&service, [&](v1::UploadService::Stub& stub) {
      return cost_of([&] { send(stub, "uploads/any", false); });
    });
  }
  /// With all digests, or without a SHA-256, which what a verb takes has none of.
  Cost whole(v1::UploadKind kind) {
    const test::TempFolder state(folder_);
    control::UploadStore uploads(
        {state / "blobs", control::with_upload_defaults(v1::UploadConfig())});
    const auto ledger = control::open_ledger(state / "journal", {&uploads});
    const AnyRun any_run;
    control::UploadServiceImpl service(uploads, any_run, {});
    return with_server(&service, [&](v1::UploadService::Stub& stub) {
      const std::string name = create(stub, kind);
      return cost_of([&] {
        send(stub, name, true);
        finish(stub, name);
      });
    });
  }
  Cost crc() {
    return cost_of([&] {
      for (std::size_t i = 0; i < chunks_; ++i) seen_ = seen_ + base::crc32c(block());
    });
  }
  Cost sha() {
    return cost_of([&] {
      base::Sha256 digest;
      for (std::size_t i = 0; i < chunks_; ++i) digest.update(block());
      seen_ = seen_ + static_cast<std::uint32_t>(digest.hex()[0]);
    });
  }
  Cost write() {
    const test::TempFolder folder(folder_);
    const base::UniqueFd file = base::open_output(folder / "file", O_WRONLY | O_CREAT, 0600);
    return cost_of([&] {
      for (std::size_t i = 0; i < chunks_; ++i)
        base::write_all(file.get(), block(), folder / "file");
    });
  }

 private:
  std::span<const std::byte> block() const { return std::as_bytes(std::span(block_)); }

  static void check_ok(const grpc::Status& status) {
    if (!status.ok()) throw InternalError("upload: " + status.error_message());
  }

  template <typename Body>
  Cost with_server(grpc::Service* service, Body&& body) {
    control::GrpcServer server(control::GrpcServerOptions{
        control::resolve_listen_address("127.0.0.1:0", "listen"), {service}});
    const auto channel = grpc::CreateChannel(fmt::format("127.0.0.1:{}", server.port()),
                                             grpc::InsecureChannelCredentials());
    const Cost cost = body(*v1::UploadService::NewStub(channel));
    server.shutdown();
    return cost;
  }
  std::string create(v1::UploadService::Stub& stub, v1::UploadKind kind) {
    grpc::ClientContext context;
    v1::CreateUploadRequest request;
    request.set_file_name("bytes.bin");
    request.set_size_bytes(static_cast<std::int64_t>(chunks_ * kChunk));
    request.set_kind(kind);
    if (kind == v1::UPLOAD_KIND_TRANSIENT)
      request.set_run("runs/any");
    else
      request.set_sha256(sha256_);
    v1::CreateUploadResponse response;
    check_ok(stub.CreateUpload(&context, request, &response));
    return response.upload().name();
  }
  void send(v1::UploadService::Stub& stub, const std::string& name, bool with_crc) {
    grpc::ClientContext context;
    v1::WriteUploadResponse response;
    const auto writer = stub.WriteUpload(&context, &response);
    v1::WriteUploadRequest chunk;
    chunk.set_upload(name);
    chunk.set_data(block_);
    for (std::size_t i = 0; i < chunks_; ++i) {
      chunk.set_write_offset(static_cast<std::int64_t>(i * kChunk));
      if (with_crc) chunk.set_crc32c(base::crc32c(block()));
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    check_ok(writer->Finish());
  }
  static void finish(v1::UploadService::Stub& stub, const std::string& name) {
    grpc::ClientContext context;
    v1::FinishUploadRequest request;
    request.set_name(name);
    v1::FinishUploadResponse response;
    check_ok(stub.FinishUpload(&context, request, &response));
  }

  const std::size_t chunks_;
  const std::filesystem::path folder_;
  std::string block_, sha256_;
  volatile std::uint32_t seen_ = 0;  ///< so that nothing is left out as unused
};

nlohmann::ordered_json measure(UploadBench& bench, double bytes) {
  const Cost plain = bench.plain(), crc = bench.crc(), sha = bench.sha(), write = bench.write();
  const Cost whole = bench.whole(v1::UPLOAD_KIND_FILE);
  const Cost transient = bench.whole(v1::UPLOAD_KIND_TRANSIENT);
  constexpr double kCores = 2;
  const double parts = (plain.cpu + 2 * crc.cpu + sha.cpu + write.cpu) / kCores;
  const auto rate = [&](double seconds) { return bytes / seconds / 1e9; };
  return {{"upload_gb_per_s", rate(whole.wall)},
          {"upload_cpu_s_per_gb", whole.cpu / bytes * 1e9},
          {"plain_stream_gb_per_s", rate(plain.wall)},
          {"plain_stream_cpu_s_per_gb", plain.cpu / bytes * 1e9},
          {"crc32c_gb_per_s", rate(crc.wall)},
          {"sha256_gb_per_s", rate(sha.wall)},
          {"write_gb_per_s", rate(write.wall)},
          {"parts_over_two_cores_gb_per_s", rate(parts)},
          {"share_of_parts", parts / whole.wall},
          {"transient_gb_per_s", rate(transient.wall)},
          {"transient_to_plain_stream", plain.wall / transient.wall}};
}

}  // namespace

int run_upload_bench(int argc, char** argv) {
  UploadOptions options;
  CLI::App app(
      "An upload with all digests against its parts, and a transient one, which has no SHA-256, "
      "against a plain stream",
      argv[0]);
  app.add_option("--folder", options.folder, "Where the state dir is made. Default /dev/shm");
  app.add_option("--mib", options.mib, "Size of the upload. Default 512")
      ->check(CLI::Range(1, 1024));
  app.add_option("--repeats", options.repeats, "Lines. Default 3")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  UploadBench bench(options);
  for (int i = 0; i < options.repeats; ++i) {
    fmt::print("{}\n", measure(bench, static_cast<double>(options.mib) * kChunk).dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace meshloom::bench
