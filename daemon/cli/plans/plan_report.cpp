// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plans/plan_report.h"

#include <fmt/ranges.h>

#include "daemon/cli/output/output.h"
#include "daemon/cli/plans/plan_text.h"

namespace meshloom::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string count_text(double n) {
  if (n >= 1e9) return fmt::format("{:.2f}B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.1f}M", n / 1e6);
  return fmt::format("{:.0f}", n);
}

void print_memory(const v1::PlanEstimate& e) {
  const v1::MemoryEstimate& m = e.memory();
  Rows rows{{"memory of a rank", ""}};
  const auto add = [&](const char* name, std::int64_t bytes) {
    if (bytes > 0) rows.push_back({std::string("  ") + name, bytes_text(bytes)});
  };
  add("parameters", m.parameters());
  add("gradients", m.gradients());
  add("optimizer", m.optimizer());
  add("activations", m.activations());
  add("gathered parameters and gradients", m.gathered());
  add("workspace of kernels", m.workspace());
  add("staging of collectives", m.communication());
  add("process", m.process());
  add("in all", m.total());
  if (e.memory_limit_bytes() > 0) {
    rows.push_back({"  of", fmt::format("{}{}", bytes_text(e.memory_limit_bytes()),
                                        e.fits() ? "" : ": does not fit")});
  }
  print_table(rows);
}

void print_time(const v1::StepTimeEstimate& t, const std::string& cluster) {
  Rows rows{{fmt::format("a step on {}", cluster), ""}};
  const auto add = [&](const char* name, double seconds) {
    rows.push_back({std::string("  ") + name, seconds_text(seconds)});
  };
  add("matrix products", t.matmul());
  add("attention", t.attention());
  add("norms and activations", t.memory());
  add("optimizer", t.optimizer());
  if (t.communication() > 0.0) {
    add("communication", t.communication());
    add("of it not hidden", t.exposed_communication());
  }
  add("in all", t.total());
  rows.push_back({"  tokens per second", fmt::format("{:.0f}", t.tokens_per_second())});
  rows.push_back({"  mfu", fmt::format("{:.1f} %", 100.0 * t.mfu())});
  if (t.attention_balance() > 0.0)
    rows.push_back({"  balance of attention", fmt::format("{:.4f}", t.attention_balance())});
  print_table(rows);
}

/// Plans are ranked by seconds that are only as good as the machine's numbers.
void print_equal(const v1::PlanSearch& s) {
  // Rates of a cluster are told to one or two digits.
  constexpr double kTimeError = 0.1;
  const double most = (1.0 + kTimeError) * s.plans(0).seconds().total();
  int equal = 1;
  while (equal < s.plans_size() && s.plans(equal).seconds().total() <= most) ++equal;
  if (equal > 1)
    fmt::print(
        "Plans 1 to {} are equal within the estimate's error ({:.0f} %): what they need of "
        "memory, or a measured step, tells them apart.\n",
        equal, 100.0 * kTimeError);
}

}  // namespace

void print_traffic(const google::protobuf::RepeatedPtrField<v1::TrafficEstimate>& traffic) {
  if (traffic.empty()) {
    fmt::print("no collectives\n");
    return;
  }
  Rows rows{{"dim", "collective", "phase", "of what", "calls", "tensor", "sent by a rank"}};
  std::int64_t sum = 0;
  for (const v1::TrafficEstimate& t : traffic) {
    rows.push_back({t.mesh_dim(), t.collective(), t.phase(), t.what(), std::to_string(t.calls()),
                    bytes_text(t.data_bytes()), bytes_text(t.bytes_sent())});
    sum += t.bytes_sent();
  }
  rows.push_back({"", "", "", "in all", "", "", bytes_text(sum)});
  print_table(rows);
}

void print_estimate(const std::string& model, const v1::PlanEstimate& e) {
  fmt::print("{}: {} parameters, {} of them on a rank\n", model,
             count_text(static_cast<double>(e.parameters())),
             count_text(static_cast<double>(e.local_parameters())));
  fmt::print("mesh {}; {}\n", mesh_text(e.mesh()), plan_text(e.plan()));
  fmt::print("{} {} of {} tokens a step, {} at once on a rank\n\n", e.global_batch_size(),
             e.global_batch_size() == 1 ? "sample" : "samples", e.seq_len(), e.micro_batch_size());
  print_memory(e);
  fmt::print("\n");
  print_time(e.seconds(), e.cluster());
  fmt::print("\n");
  print_traffic(e.traffic());
}

void print_comment(const v1::PlanEstimate& e) {
  fmt::print("# a rank takes {}", bytes_text(e.memory().total()));
  if (e.memory_limit_bytes() > 0)
    fmt::print(" of {}{}", bytes_text(e.memory_limit_bytes()), e.fits() ? "" : ", does not fit");
  fmt::print("\n");
  if (e.has_seconds())
    fmt::print("# a step takes {} on {} and sends {} from a rank\n",
               seconds_text(e.seconds().total()), e.cluster(), bytes_text(e.bytes_sent()));
}

void print_description(const v1::PlanDescription& d) {
  fmt::print("{} on {}; {}\n", d.model(), mesh_text(d.mesh()), plan_text(d.plan()));
  fmt::print("{} parameters, {} of them on rank {}; placements over ({})\n\n",
             count_text(static_cast<double>(d.parameter_count())),
             count_text(static_cast<double>(d.local_parameter_count())), d.rank(),
             fmt::join(d.mesh_dims(), ", "));
  Rows rows{{"parameter", "layers", "shape", "placements", "on this rank", "kept together"}};
  for (const v1::ParameterPlacement& p : d.parameters())
    rows.push_back({p.name(), p.count() > 1 ? std::to_string(p.count()) : "",
                    fmt::format("[{}]", fmt::join(p.shape(), ", ")),
                    fmt::format("[{}]", fmt::join(p.placements(), ", ")),
                    fmt::format("[{}]", fmt::join(p.local_shape(), ", ")), p.units()});
  print_table(rows);
  fmt::print("\ncollectives of a step\n");
  print_traffic(d.traffic());
}

void print_search(const v1::PlanSearch& s) {
  fmt::print("{} on {} of {}, ", s.model(), plural(s.ranks(), "rank"), s.cluster());
  fmt::print("{}; {} tried, meshes that fit: {}\n\n",
             s.memory_limit_bytes() > 0 ? bytes_text(s.memory_limit_bytes()) + " each"
                                        : std::string("memory not limited"),
             plural(s.plans_tried(), "plan"), s.meshes_that_fit());
  if (!s.plans().empty()) {
    Rows rows{{"", "mesh", "step", "tokens/s", "mfu", "memory", "sent", "balance", "micro batch",
               "plan"}};
    for (const v1::PlanEstimate& e : s.plans()) {
      const double balance = e.seconds().attention_balance();
      rows.push_back(
          {std::to_string(rows.size()), mesh_text(e.mesh()), seconds_text(e.seconds().total()),
           fmt::format("{:.0f}", e.seconds().tokens_per_second()),
           fmt::format("{:.1f} %", 100.0 * e.seconds().mfu()), bytes_text(e.memory().total()),
           bytes_text(e.bytes_sent()), balance > 0.0 ? fmt::format("{:.3f}", balance) : "",
           std::to_string(e.micro_batch_size()), plan_text(e.plan())});
    }
    print_table(rows);
    print_equal(s);
  }
  if (s.rejected().empty()) return;
  fmt::print("\nmeshes that do not fit: {}{}\n", s.rejected_count(),
             s.rejected_size() < s.rejected_count() ? ", of them (--rejected shows more)" : "");
  Rows rows{{"mesh", "why not"}};
  for (const v1::RejectedMesh& r : s.rejected()) rows.push_back({mesh_text(r.mesh()), r.reason()});
  print_table(rows);
}

}  // namespace meshloom::cli
