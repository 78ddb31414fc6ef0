// SPDX-License-Identifier: Apache-2.0
// Collectives on tensors in symmetric memory and on ordinary ones, beside Open MPI's on the same
// ranks and beside copies of as many bytes on all ranks at once.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/comm/mesh/mpi_runtime.h"
#include "daemon/comm/symm_mem/symmetric_memory.h"
#include "kernels/base/error.h"
#include "planner/shard.h"
#include "tests/bench/bench.h"
#include "tests/bench/probe.h"

namespace meshloom::bench {
namespace {

struct CollectivesOptions {
  int local_ranks = 0;
  int threads = 1;
  int repetitions = 31;
  std::size_t from = 4, to = std::size_t{64} << 20;
  std::string dtype = "float32";
  std::vector<std::string> collectives{"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                       "barrier"};
  bool json = false;
};

/// Buffers are used in turn, so that a call does not find what the one before left in the cache.
constexpr int kTurns = 3;
/// Small calls are timed together: a clock takes as long as they do.
constexpr std::size_t kTogetherBytes = 16 << 10;
constexpr int kTogether = 16;

struct Buffers {
  std::byte* in = nullptr;
  std::byte* out = nullptr;
};

/// A group of all ranks whose all_reduce goes one way between hosts.
struct HostWay {
  std::string name;
  std::unique_ptr<comm::ProcessGroup> group;
};

class Bench {
 public:
  Bench(const CollectivesOptions& options, comm::RankRuntime& runtime, bool mpi,
        std::vector<HostWay> host_ways = {})
      : options_(options),
        runtime_(runtime),
        host_ways_(std::move(host_ways)),
        group_(runtime.make_world_group({.threads = Threads{options.threads}})),
        dtype_(options.dtype == "bfloat16" ? DType::kBFloat16 : DType::kFloat32),
        mpi_(mpi && dtype_ == DType::kFloat32) {}

  void run() {
    make_buffers();
    if (group_->rank() == 0 && !options_.json) std::printf("hosts: %s\n", hosts().c_str());
    for (const std::string& name : options_.collectives) {
      if (name == "barrier") {
        measure(name, 0);
        continue;
      }
      for (std::size_t bytes = options_.from; bytes <= options_.to; bytes *= 4)
        measure(name, bytes);
    }
    runtime_.bootstrap().barrier();
  }

 private:
  using Call = std::function<void(const Buffers&)>;

  /// The host of each rank, and the table of ways between them.
  std::string hosts() const { return group_->hosts().empty() ? "one" : group_->hosts(); }

  void make_buffers() {
    const auto memory = group_->symmetric_memory();
    const std::size_t bytes = std::max<std::size_t>(options_.to, 64);
    for (int turn = 0; turn < kTurns; ++turn) {
      Buffers ordinary, symmetric;
      for (std::byte** to : {&ordinary.in, &ordinary.out}) {
        ordinary_memory_.emplace_back(bytes + 64);
        auto at = reinterpret_cast<std::uintptr_t>(ordinary_memory_.back().data());
        *to = reinterpret_cast<std::byte*>((at + 63) / 64 * 64);
      }
      ordinary_.push_back(ordinary);
      if (!memory) continue;
      for (std::byte** to : {&symmetric.in, &symmetric.out}) {
        symmetric_memory_.push_back(memory->allocate(bytes));
        *to = symmetric_memory_.back().get();
      }
      symmetric_.push_back(symmetric);
    }
  }

  TensorView view(std::byte* data, std::int64_t begin, std::int64_t n) const {
    return make_view(data + begin * static_cast<std::int64_t>(dtype_size(dtype_)), dtype_, {n});
  }

  /// The parts of `elements` for every rank, by the ceil rule.
  std::vector<TensorView> parts(std::byte* data, std::int64_t elements) const {
    std::vector<TensorView> views;
    for (int r = 0; r < group_->size(); ++r) {
      const planner::ShardRange range = planner::shard_range(elements, group_->size(), r);
      views.push_back(view(data, range.begin, range.size()));
    }
    return views;
  }

  /// A collective on buffers, whose views are made once, as a program does that calls it again.
  struct Views {
    TensorView input, output;
    std::vector<TensorView> inputs, outputs;
  };

  Call ours(const std::string& name, std::int64_t n, const std::vector<Buffers>& buffers) {
    return ours(*group_, name, n, buffers);
  }

  Call ours(comm::ProcessGroup& group, const std::string& name, std::int64_t n,
            const std::vector<Buffers>& buffers) {
    const auto rank = static_cast<std::size_t>(group.rank());
    auto all = std::make_shared<std::map<const std::byte*, Views>>();
    for (const Buffers& b : buffers) {
      Views& views = (*all)[b.in];
      views.inputs = parts(b.in, n);
      views.outputs = parts(b.out, n);
      if (name == "all_to_all")
        // Each rank has as much for every other one.
        for (std::size_t r = 0; r < views.inputs.size(); ++r) {
          const auto block = n / group.size(), at = static_cast<std::int64_t>(r) * block;
          views.inputs[r] = view(b.in, at, block);
          views.outputs[r] = view(b.out, at, block);
        }
      const std::int64_t own = views.inputs[rank].numel();
      views.input = view(b.in, 0, name == "all_reduce" ? n : own);
      views.output = view(b.out, 0, own);
    }
    return [&group, all, name](const Buffers& b) {
      const Views& views = all->at(b.in);
      if (name == "barrier") {
        group.barrier()->wait_host();
      } else if (name == "all_reduce") {
        group.all_reduce(views.input, comm::ReduceOp::kSum)->wait_host();
      } else if (name == "reduce_scatter") {
        group.reduce_scatter(views.output, views.inputs, comm::ReduceOp::kSum)->wait_host();
      } else if (name == "all_gather") {
        group.all_gather(views.outputs, views.input)->wait_host();
      } else {
        group.all_to_all(views.outputs, views.inputs)->wait_host();
      }
    };
  }

  Call of_mpi(const std::string& name, std::int64_t n, bool in_place) {
    std::vector<int> counts, offsets;
    for (int r = 0; r < group_->size(); ++r) {
      const planner::ShardRange range = planner::shard_range(n, group_->size(), r);
      counts.push_back(static_cast<int>(range.size()));
      offsets.push_back(static_cast<int>(range.begin));
    }
    const int count = static_cast<int>(n), block = count / group_->size();
    const int own = counts[static_cast<std::size_t>(group_->rank())];
    if (name == "barrier") return [](const Buffers&) { MPI_Barrier(MPI_COMM_WORLD); };
    if (name == "all_reduce")
      return [=](const Buffers& b) {
        MPI_Allreduce(in_place ? MPI_IN_PLACE : b.out, b.in, count, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      };
    if (name == "reduce_scatter")
      return [=](const Buffers& b) {
        MPI_Reduce_scatter(b.in, b.out, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
    if (name == "all_gather")
      return [=](const Buffers& b) {
        MPI_Allgatherv(b.in, own, MPI_FLOAT, b.out, counts.data(), offsets.data(), MPI_FLOAT,
                       MPI_COMM_WORLD);
      };
    return [=](const Buffers& b) {
      MPI_Alltoall(b.in, block, MPI_FLOAT, b.out, block, MPI_FLOAT, MPI_COMM_WORLD);
    };
  }

  struct Contender {
    std::string name;
    Call call;
    const std::vector<Buffers>* buffers;
    std::vector<double> seconds;
  };

  /// All contenders take turns, round by round.
  void measure(const std::string& name, std::size_t bytes) {
    const auto n = static_cast<std::int64_t>(bytes / dtype_size(dtype_));
    const auto ranks = static_cast<std::size_t>(group_->size());
    // What one rank has to write at least; the other buffer takes its own part, too.
    const std::size_t moved = name == "reduce_scatter" ? bytes / ranks : bytes;
    std::vector<Contender> all;
    if (!symmetric_.empty())
      all.push_back({"symmetric", ours(name, n, symmetric_), &symmetric_, {}});
    all.push_back({"ordinary", ours(name, n, ordinary_), &ordinary_, {}});
    if (name == "all_reduce")
      for (const HostWay& way : host_ways_) {
        const std::vector<Buffers>& buffers = symmetric_.empty() ? ordinary_ : symmetric_;
        all.push_back({way.name, ours(*way.group, name, n, buffers), &buffers, {}});
      }
    if (mpi_) all.push_back({"mpi", of_mpi(name, n, false), &ordinary_, {}});
    if (mpi_ && name == "all_reduce")
      all.push_back({"mpi_in_place", of_mpi(name, n, true), &ordinary_, {}});
    if (moved >= (std::size_t{1} << 18)) {
      const std::size_t one = std::min(moved, options_.to);
      for (const auto& [title, kind] :
           {std::pair{"copy", CopyKind::kPlain}, std::pair{"stream", CopyKind::kNonTemporal}})
        all.push_back({title,
                       [this, kind = kind, one, moved](const Buffers& b) {
                         for (std::size_t at = 0; at < moved; at += one)
                           copy_seconds(Threads{options_.threads}, kind, b.out, b.in,
                                        std::min(one, moved - at));
                       },
                       &ordinary_,
                       {}});
    }
    const int together = bytes <= kTogetherBytes ? kTogether : 1;
    const int repetitions =
        bytes >= (std::size_t{16} << 20) ? options_.repetitions / 2 + 1 : options_.repetitions;
    for (int round = -2; round < repetitions; ++round)
      for (Contender& one : all) {
        const double seconds = time_once(one, round + 2, bytes, together);
        // The first two touch memory and fill pools.
        if (round >= 0) one.seconds.push_back(seconds);
      }
    report(name, bytes, all);
  }

  double time_once(const Contender& one, int turn, std::size_t bytes, int together) {
    const auto next = [&](int i) -> const Buffers& {
      return (*one.buffers)[static_cast<std::size_t>(turn + i) % one.buffers->size()];
    };
    const int used = std::min<int>(together, kTurns);
    for (int i = 0; i < used; ++i) {
      std::memset(next(i).in, 0, bytes);
      std::memset(next(i).out, 0, bytes);
    }
    if (mpi_) {
      MPI_Barrier(MPI_COMM_WORLD);
    } else {
      group_->barrier()->wait_host();
    }
    const auto start = Clock::now();
    for (int i = 0; i < together; ++i) one.call(next(i));
    return seconds_since(start) / together;
  }

  void report(const std::string& name, std::size_t bytes, const std::vector<Contender>& all) {
    nlohmann::ordered_json line{{"collective", name},
                                {"ranks", group_->size()},
                                {"hosts", hosts()},
                                {"dtype", options_.dtype},
                                {"bytes", bytes}};
    double fastest_mpi = 1e30, fastest_copy = 1e30;
    std::string text;
    for (const Contender& one : all) {
      const double seconds = median_of_slowest(one.seconds);
      line[one.name + "_us"] = seconds * 1e6;
      text += fmt::format(" {:>10.2f}", seconds * 1e6);
      if (one.name.rfind("mpi", 0) == 0) fastest_mpi = std::min(fastest_mpi, seconds);
      if (one.name == "copy" || one.name == "stream")
        fastest_copy = std::min(fastest_copy, seconds);
    }
    for (const char* mine : {"symmetric", "ordinary"}) {
      const std::string key = std::string(mine) + "_us";
      if (!line.contains(key)) continue;
      const double seconds = line[key].get<double>() * 1e-6;
      if (fastest_mpi < 1e30) line[std::string("mpi_over_") + mine] = fastest_mpi / seconds;
      if (fastest_copy < 1e30) line[std::string("copy_over_") + mine] = fastest_copy / seconds;
    }
    if (group_->rank() != 0) return;
    if (options_.json) {
      std::printf("%s\n", line.dump().c_str());
    } else {
      print_row(name, bytes, all, text, line);
    }
    std::fflush(stdout);
  }

  void print_row(const std::string& name, std::size_t bytes, const std::vector<Contender>& all,
                 const std::string& text, const nlohmann::ordered_json& line) {
    if (name != headed_ || all.size() != columns_) {
      headed_ = name;
      columns_ = all.size();
      std::string head;
      for (const Contender& one : all) head += fmt::format(" {:>10}", one.name.substr(0, 10));
      std::printf("%s\n", fmt::format("{:<15}{:>10}{} (us)", name, "bytes", head).c_str());
    }
    std::string ratios;
    for (const char* key :
         {"mpi_over_symmetric", "mpi_over_ordinary", "copy_over_symmetric", "copy_over_ordinary"})
      if (line.contains(key)) ratios += fmt::format("  {} {:.2f}", key, line[key].get<double>());
    std::printf("%s\n", fmt::format("{:<15}{:>10}{}{}", "", bytes, text, ratios).c_str());
  }

  /// In each round the slowest rank counts.
  double median_of_slowest(const std::vector<double>& mine) {
    std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
    std::vector<double> slowest(mine.size(), 0.0);
    for (const std::string& of_rank : runtime_.bootstrap().exchange(bytes)) {
      std::vector<double> seconds(mine.size());
      std::memcpy(seconds.data(), of_rank.data(), of_rank.size());
      for (std::size_t i = 0; i < mine.size(); ++i) slowest[i] = std::max(slowest[i], seconds[i]);
    }
    return percentile(slowest, 0.5);
  }

  CollectivesOptions options_;
  comm::RankRuntime& runtime_;
  std::vector<HostWay> host_ways_;
  std::unique_ptr<comm::ProcessGroup> group_;
  DType dtype_;
  bool mpi_;
  std::vector<std::vector<std::byte>> ordinary_memory_;
  std::vector<std::shared_ptr<std::byte>> symmetric_memory_;
  std::vector<Buffers> ordinary_, symmetric_;
  std::string headed_;
  std::size_t columns_ = 0;
};

}  // namespace

int run_collectives_bench(int argc, char** argv) {
  CLI::App app{"Collectives beside Open MPI (under mpirun) and beside copies"};
  CollectivesOptions options;
  app.add_option("--local-ranks", options.local_ranks, "forked ranks, without MPI")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "per rank")->capture_default_str();
  app.add_option("--repetitions", options.repetitions, "rounds, of which the median counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--from", options.from,
                 "smallest size in bytes, then four times as much and so on")
      ->check(CLI::Range(std::size_t{4}, std::size_t{1} << 30))
      ->capture_default_str();
  app.add_option("--to", options.to, "largest size in bytes")
      ->check(CLI::Range(std::size_t{4}, std::size_t{1} << 30))
      ->capture_default_str();
  app.add_option("--dtype", options.dtype, "float32 or bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--collectives", options.collectives, "which ones")
      ->check(
          CLI::IsMember({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier"}))
      ->delimiter(',')
      ->capture_default_str();
  app.add_flag("--json", options.json, "a JSON line for each size instead of a table");
  CLI11_PARSE(app, argc, argv);
  if (options.local_ranks > 0)
    return comm::run_local_ranks(options.local_ranks, [&](comm::RankRuntime& runtime) {
      Bench(options, runtime, false).run();
      return 0;
    });
  comm::MpiRuntime runtime;
  check(runtime.world_size() > 1,
        "collectives: one rank; start it with mpirun -n N, or give --local-ranks N");
  std::vector<HostWay> ways;
  if (runtime.topology().hosts > 1)
    for (const auto& [name, choice] : {std::pair("leaders", comm::HierarchyChoice::kLeaders),
                                       std::pair("striped", comm::HierarchyChoice::kStriped)})
      ways.push_back(
          {name, runtime.make_world_group({.threads = Threads{options.threads}}, choice)});
  Bench(options, runtime, true, std::move(ways)).run();
  runtime.finish();
  return 0;
}

}  // namespace meshloom::bench
