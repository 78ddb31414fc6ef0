// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/expect_reader.h"

#include <algorithm>
#include <string_view>

#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

constexpr std::string_view kPhases[] = {"forward", "backward"};
constexpr std::string_view kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter",
                                             "all_to_all", "broadcast",  "scatter",
                                             "gather",     "send_recv"};

template <typename Names>
bool is_one_of(const std::string& name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Tolerance read_pair(const Json& pair, const std::string& where) {
  const bool fits =
      pair.is_array() && pair.size() == 2 && pair[0].is_number() && pair[1].is_number();
  check(fits, "{} must be [absolute, relative], not {}", where, pair.dump());
  const Tolerance tolerance{pair[0].get<double>(), pair[1].get<double>()};
  check(tolerance.absolute >= 0 && tolerance.relative >= 0, "{} must not be negative: {}", where,
        pair.dump());
  return tolerance;
}

const Json& check_object(const Json& value, std::string_view where) {
  check(value.is_object(), "{} must be an object, not {}", where, value.dump());
  return value;
}

std::int64_t count_of(const Json& value, const std::string& where) {
  check(value.is_number_integer() && value.get<std::int64_t>() >= 0, "{} must be a count, not {}",
        where, value.dump());
  return value.get<std::int64_t>();
}

std::map<std::string, std::int64_t> read_limits(const Json& value, const std::string& where) {
  std::map<std::string, std::int64_t> limits;
  for (const auto& [phase, limit] : check_object(value, where).items()) {
    check(is_one_of(phase, kPhases), "{} has the unknown key '{}'", where, phase);
    limits[phase] = count_of(limit, where + "." + phase);
  }
  return limits;
}

std::map<std::string, CommCounts> read_comm(const Json& value) {
  std::map<std::string, CommCounts> comm;
  for (const auto& [phase, counts] : check_object(value, "expect.comm").items()) {
    check(is_one_of(phase, kPhases), "expect.comm has the unknown key '{}'", phase);
    CommCounts& expected = comm[phase];
    for (const auto& [name, count] : check_object(counts, "expect.comm." + phase).items()) {
      check(is_one_of(name, kCollectives), "expect.comm.{} names the unknown collective '{}'",
            phase, name);
      const std::int64_t calls = count_of(count, "expect.comm." + phase + "." + name);
      if (calls > 0) expected[name] = calls;
    }
  }
  return comm;
}

std::vector<Shape> read_shapes(const Json& value, const std::string& where) {
  check(value.is_array(), "{} must be a list of shapes, not {}", where, value.dump());
  std::vector<Shape> shapes;
  for (const Json& shape : value) {
    const bool fits =
        shape.is_array() && std::all_of(shape.begin(), shape.end(),
                                        [](const Json& n) { return n.is_number_integer(); });
    check(fits, "{} must hold shapes, not {}", where, shape.dump());
    const auto sizes = shape.get<std::vector<std::int64_t>>();
    shapes.emplace_back(std::span<const std::int64_t>(sizes));
  }
  return shapes;
}

}  // namespace

void read_tolerance(const Json& keys, Case& c) {
  if (!keys.contains("tolerance")) return;
  ObjectReader reader(keys.at("tolerance"), "tolerance");
  if (reader.has("out")) c.out = read_pair(reader.value("out"), "tolerance.out");
  if (reader.has("grad")) c.grad = read_pair(reader.value("grad"), "tolerance.grad");
  if (reader.has("param_after"))
    c.param_after = read_pair(reader.value("param_after"), "tolerance.param_after");
  reader.finish();
}

Expect read_expect(const Json& keys, const planner::MeshLayout& mesh) {
  Expect expect;
  if (!keys.contains("expect")) return expect;
  ObjectReader reader(keys.at("expect"), "expect");
  if (reader.has("comm")) expect.comm = read_comm(reader.value("comm"));
  if (reader.has("comm_max"))
    expect.comm_max = read_limits(reader.value("comm_max"), "expect.comm_max");
  if (reader.has("bytes_max"))
    expect.bytes_max = read_limits(reader.value("bytes_max"), "expect.bytes_max");
  if (reader.has("placements"))
    for (const auto& [output, list] :
         check_object(reader.value("placements"), "expect.placements").items())
      expect.placements[output] = read_raw_placements(list, mesh, "expect.placements." + output);
  if (reader.has("local_shapes"))
    for (const auto& [output, list] :
         check_object(reader.value("local_shapes"), "expect.local_shapes").items())
      expect.local_shapes[output] = read_shapes(list, "expect.local_shapes." + output);
  if (reader.has("error")) {
    ObjectReader error(reader.value("error"), "expect.error");
    expect.error_contains = error.string("contains");
    error.finish();
  }
  if (reader.has("cost")) expect.cost = reader.number("cost");
  reader.finish();
  return expect;
}

planner::Placements read_raw_placements(const Json& list, const planner::MeshLayout& mesh,
                                        const std::string& where) {
  check(list.is_array() && static_cast<int>(list.size()) == mesh.ndim(),
        "{} must hold one placement for each of {} mesh dims, not {}", where, mesh.ndim(),
        list.dump());
  planner::Placements placements;
  for (const Json& text : list) {
    check(text.is_string(), "{} must hold placements like \"S(0)\", not {}", where, text.dump());
    placements.push_back(planner::parse_placement(text.get<std::string>()));
  }
  return placements;
}

planner::Placements read_placements(const Json& list, const planner::MeshLayout& mesh, int ndim,
                                    const std::string& where) {
  return planner::normalize_placements(read_raw_placements(list, mesh, where), ndim);
}

std::vector<CaseInput> read_inputs(const Case& c, const char* key) {
  check(c.keys.contains(key), "a case of kind {} needs the key '{}'", c.kind, key);
  const Json& list = c.keys.at(key);
  check(list.is_array(), "{} must be a list, not {}", key, list.dump());
  std::vector<CaseInput> inputs;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", key, i);
    ObjectReader reader(list[i], where);
    CaseInput input;
    if (reader.has("value")) {
      input.value = reader.number("value");
    } else {
      input.name = reader.string("name");
      check(!input.name.empty(), "{}.name is empty", where);
      input.placements =
          read_raw_placements(reader.value("placements"), c.mesh, where + ".placements");
    }
    reader.finish();
    inputs.push_back(std::move(input));
  }
  return inputs;
}

}  // namespace meshloom::conformance
