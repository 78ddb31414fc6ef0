// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/estimate/model_graph.h"

namespace meshloom::planner {
namespace {

/// Steps of one block, or between two.
struct Segment {
  std::size_t begin = 0, end = 0;
  int layer = -1;
  std::vector<int> made;  ///< tensors, in order
  std::size_t kept = 0;   ///< the segment that stands for it: itself, or an equal one before it

  std::size_t size() const { return end - begin; }
};

class Folding {
 public:
  explicit Folding(ModelGraph graph) : graph_(std::move(graph)) {
    segment_of_.assign(graph_.tensors.size(), -1);
    place_of_.assign(graph_.tensors.size(), -1);
    find_segments();
  }

  ModelGraph run() {
    find_equal();
    ModelGraph result{
        .rows = graph_.rows, .tokens = graph_.tokens, .tensors = {}, .steps = {}, .runs = {}};
    begins_.assign(segments_.size(), 0);
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (segments_[s].kept != s) {
        begins_[s] = begins_[segments_[s].kept];
        ++result.runs.back().times;
        continue;
      }
      begins_[s] = result.steps.size();
      for (std::size_t i = segments_[s].begin; i < segments_[s].end; ++i)
        result.steps.push_back(graph_.steps[i]);
      result.runs.push_back(
          {.begin = begins_[s], .end = result.steps.size(), .is_block = segments_[s].layer >= 0});
      if (s + 1 < segments_.size() && segments_[s + 1].kept == s)
        result.runs.back().carried = carried(s);
    }
    name_tensors(result);
    return result;
  }

 private:
  void find_segments() {
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) {
      const GraphStep& step = graph_.steps[i];
      if (segments_.empty() || segments_.back().layer != step.layer)
        segments_.push_back(
            {.begin = i, .layer = step.layer, .made = {}, .kept = segments_.size()});
      Segment& segment = segments_.back();
      segment.end = i + 1;
      for (const int t : step.outputs) {
        if (t < 0) continue;
        segment_of_[index(t)] = static_cast<int>(segments_.size()) - 1;
        place_of_[index(t)] = static_cast<int>(segment.made.size());
        segment.made.push_back(t);
      }
    }
  }

  void find_equal() {
    std::vector<std::int64_t> before;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      std::vector<std::int64_t> now = description(s);
      if (s > 0 && segments_[s].layer >= 0 && now == before)
        segments_[s].kept = segments_[s - 1].kept;
      before = std::move(now);
    }
  }

  /// Equal of two neighbouring segments that do the same with what the one before each left.
  std::vector<std::int64_t> description(std::size_t s) const {
    const Segment& segment = segments_[s];
    std::vector<std::int64_t> d;
    for (std::size_t i = segment.begin; i < segment.end; ++i) {
      const GraphStep& step = graph_.steps[i];
      d.insert(d.end(), {static_cast<std::int64_t>(step.kind), step.module,
                         static_cast<std::int64_t>(step.op), step.input_activation,
                         step.keeps_output, step.causal, step.window});
      d.insert(d.end(), step.attributes.ints.begin(), step.attributes.ints.end());
      d.insert(d.end(), step.attributes.dims.begin(), step.attributes.dims.end());
      for (const int t : step.inputs) describe_input(s, t, d);
      d.push_back(static_cast<std::int64_t>(step.outputs.size()));
    }
    for (const int t : segment.made) {
      const GraphTensor& tensor = graph_.tensors[index(t)];
      const auto released = static_cast<std::size_t>(tensor.released);
      d.push_back(released <= segment.end ? tensor.released - static_cast<int>(segment.begin) : -1);
      d.insert(d.end(), tensor.shape.begin(), tensor.shape.end());
    }
    return d;
  }

  void describe_input(std::size_t s, int t, std::vector<std::int64_t>& d) const {
    if (t < 0) {
      d.push_back(-1);
    } else if (const GraphTensor& tensor = graph_.tensors[index(t)]; tensor.is_parameter()) {
      d.insert(d.end(), {0, tensor.module, tensor.parameter});
    } else if (segment_of_[index(t)] == static_cast<int>(s)) {
      d.insert(d.end(), {1, place_of_[index(t)]});
    } else if (segment_of_[index(t)] + 1 == static_cast<int>(s)) {
      d.insert(d.end(), {2, from_end(t)});
    } else {
      d.insert(d.end(), {3, t});
    }
  }

  /// The last tensor of its segment is 1 from the end: what blocks give comes last.
  int from_end(int t) const {
    const Segment& segment = segments_[index(segment_of_[index(t)])];
    return static_cast<int>(segment.made.size()) - place_of_[index(t)];
  }

  /// What a segment takes of the one before it, and its own tensor in that one's place.
  std::vector<std::pair<int, int>> carried(std::size_t s) const {
    std::vector<std::pair<int, int>> pairs;
    for (std::size_t i = segments_[s].begin; i < segments_[s].end; ++i)
      for (const int t : graph_.steps[i].inputs) {
        if (t < 0 || graph_.tensors[index(t)].is_parameter() ||
            segment_of_[index(t)] + 1 != static_cast<int>(s))
          continue;
        const std::vector<int>& made = segments_[s].made;
        const std::pair pair{made[made.size() - index(from_end(t))], t};
        if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
      }
    return pairs;
  }

  /// The tensor that stands for `t` where only kept segments are left.
  int kept(int t) const {
    const int s = segment_of_[index(t)];
    if (s < 0) return t;
    const Segment& by = segments_[segments_[static_cast<std::size_t>(s)].kept];
    return by.made[index(place_of_[index(t)])];
  }

  /// Where step `i` is in the result; the begin of a segment is the end of the one before it.
  int place_of_step(int i) const {
    const auto at = static_cast<std::size_t>(i);
    std::size_t s = 0;
    while (segments_[s].end < at) ++s;
    return static_cast<int>(begins_[s] + (at - segments_[s].begin));
  }

  void name_tensors(ModelGraph& result) const {
    std::vector<int> names(graph_.tensors.size(), -1), last(graph_.tensors.size());
    for (std::size_t t = 0; t < last.size(); ++t)
      last[index(kept(static_cast<int>(t)))] = static_cast<int>(t);
    const auto rename = [&](int& t) {
      if (t < 0) return;
      const std::size_t old = index(kept(t));
      if (names[old] < 0) {
        names[old] = static_cast<int>(result.tensors.size());
        GraphTensor tensor = graph_.tensors[old];
        // What follows takes the tensors of the last of equal segments.
        tensor.released = place_of_step(graph_.tensors[index(last[old])].released);
        if (tensor.made >= 0) tensor.made = place_of_step(tensor.made + 1) - 1;
        result.tensors.push_back(tensor);
      }
      t = names[old];
    };
    for (GraphStep& step : result.steps) {
      for (int& t : step.inputs) rename(t);
      for (int& t : step.outputs) rename(t);
    }
    for (GraphRun& run : result.runs)
      for (auto& [from, to] : run.carried) {
        rename(from);
        rename(to);
      }
  }

  static std::size_t index(int t) { return static_cast<std::size_t>(t); }

  ModelGraph graph_;
  std::vector<Segment> segments_;
  std::vector<int> segment_of_, place_of_;  ///< of tensors
  std::vector<std::size_t> begins_;         ///< of segments, in the result
};

}  // namespace

ModelGraph fold_blocks(ModelGraph graph) { return Folding(std::move(graph)).run(); }

}  // namespace meshloom::planner
