// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/tensor_lives.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace meshloom::planner {

TensorLives::TensorLives(const ModelPass& pass, ActivationCheckpoint checkpointing,
                         std::int64_t element_bytes, std::int64_t loss_bytes)
    : pass_(pass),
      graph_(*pass.graph),
      checkpointing_(checkpointing),
      element_bytes_(element_bytes),
      loss_bytes_(loss_bytes),
      pieces_(pass.storages.size(), -1),
      alias_(pass.storages.size()),
      again_(pass.storages.size(), false),
      scope_(graph_.tensors.size(), -1),
      storage_of_(graph_.tensors.size(), -1),
      local_bytes_(graph_.tensors.size(), 0),
      nodes_(graph_.steps.size()),
      gradients_(graph_.tensors.size(), -1),
      held_(graph_.runs.size()),
      runs_(graph_.runs.size()),
      released_(graph_.steps.size() + 1) {
  std::iota(alias_.begin(), alias_.end(), 0);
  for (std::size_t t = 0; t < graph_.tensors.size(); ++t)
    released_[index(graph_.tensors[t].released)].push_back(static_cast<int>(t));
  walk();
}

std::int64_t TensorLives::bytes_of(int name, const Shape& local) const {
  const std::int64_t bytes = graph_.tensors[index(name)].element_bytes;
  return numel(local) * (bytes > 0 ? bytes : element_bytes_);
}

int TensorLives::resolve(int storage) const {
  while (alias_[index(storage)] != storage) storage = alias_[index(storage)];
  return storage;
}

/// -1 if there is none.
int TensorLives::piece_at(int storage) const {
  const int piece = pieces_[index(resolve(storage))];
  return piece >= 0 && memory_.holders(piece) > 0 ? piece : -1;
}

/// Whether an op reads a tensor elsewhere than where it lies.
bool TensorLives::is_copy(int name, const PlacedInput& input) const {
  return resolve(input.storage) != storage_of_[index(name)];
}

/// What equal blocks keep beside the one that is walked through.
std::int64_t TensorLives::kept_beside(std::size_t r) const {
  const GraphRun& run = graph_.runs[r];
  return (run.times - 1) * (is_checkpointed(run) ? runs_[r].boundary : runs_[r].kept);
}

void TensorLives::note_peak() { peak_ = std::max(peak_, memory_.take_peak() + beside_); }

void TensorLives::walk() {
  for (run_ = 0; run_ < graph_.runs.size(); ++run_) {
    const GraphRun& run = graph_.runs[run_];
    forward(run, !is_checkpointed(run));
    if (!is_checkpointed(run)) drop_boundary();
    beside_ += kept_beside(run_);
    note_peak();
  }
  release_all();
  for (run_ = graph_.runs.size(); run_-- > 0;) {
    const GraphRun& run = graph_.runs[run_];
    is_checkpointed(run) ? backward_checkpointed(run) : backward(run);
    note_peak();
    beside_ -= kept_beside(run_);
    if (run.is_block) behind_blocks_ = memory_.in_use();
  }
}

void TensorLives::release(std::size_t before_step) {
  for (const int name : released_[before_step])
    memory_.drop(std::exchange(scope_[index(name)], -1));
}

void TensorLives::release_all() {
  for (int& piece : scope_) memory_.drop(std::exchange(piece, -1));
}

void TensorLives::forward(const GraphRun& run, bool records) {
  for (std::size_t i = run.begin; i < run.end; ++i) {
    release(i);
    step(i).kind == GraphStepKind::kOp ? op(i, records) : border(i);
    if (run.is_block && !is_replay_) keep_boundary(run, i);
  }
}

/// An output of a step is there, in memory of its own unless it lies in some already.
void TensorLives::make(std::size_t i, std::size_t output, bool is_view) {
  const int name = step(i).outputs[output];
  const PassStep& noted = pass_.steps[i];
  if (name < 0) return;
  int storage = noted.storages[output];
  if (is_view) alias_[index(storage)] = resolve(noted.inputs[0].storage);
  storage = resolve(storage);
  const std::int64_t bytes = bytes_of(name, noted.outputs[output]);
  int piece = piece_at(storage);
  if (piece >= 0) {
    memory_.hold(piece);
  } else {
    piece = pieces_[index(storage)] = memory_.take(bytes);
    again_[index(storage)] = false;
  }
  scope_[index(name)] = piece;
  storage_of_[index(name)] = storage;
  local_bytes_[index(name)] = bytes;
}

/// Pieces that the step's inputs lie in, each held once for the step; -1 of parameters that are
/// read where they lie.
std::vector<int> TensorLives::place_inputs(std::size_t i) {
  std::vector<int> inputs;
  for (std::size_t k = 0; k < step(i).inputs.size(); ++k) {
    const int name = step(i).inputs[k];
    const PlacedInput& placed = pass_.steps[i].inputs[k];
    inputs.push_back(-1);
    if (name < 0 || placed.storage < 0) continue;
    const bool parameter = graph_.tensors[index(name)].is_parameter();
    if (parameter && !placed.copied) continue;
    const bool unknown = !parameter && storage_of_[index(name)] < 0;
    const std::int64_t bytes = bytes_of(name, placed.local);
    if (unknown) {
      storage_of_[index(name)] = resolve(placed.storage);
      local_bytes_[index(name)] = bytes;
    }
    int piece = piece_at(placed.storage);
    if (piece >= 0) {
      memory_.hold(piece);
    } else {
      piece = pieces_[index(resolve(placed.storage))] = memory_.take(bytes);
      again_[index(resolve(placed.storage))] = false;
      // What no step made is there before.
      if (!parameter && !is_copy(name, placed)) {
        memory_.hold(piece);
        scope_[index(name)] = piece;
      }
    }
    inputs.back() = piece;
  }
  return inputs;
}

void TensorLives::border(std::size_t i) {
  const std::vector<int> inputs = place_inputs(i);
  for (std::size_t k = 0; k < step(i).outputs.size(); ++k) make(i, k, false);
  for (const int piece : inputs) memory_.drop(piece);
}

void TensorLives::save(std::size_t i, int piece) {
  if (piece < 0) return;
  memory_.hold(piece);
  nodes_[i].saved.push_back(piece);
  was_saved_.resize(std::max(was_saved_.size(), index(memory_.count())), false);
  if (!was_saved_[index(piece)]) {
    was_saved_[index(piece)] = true;
    runs_[run_].kept += memory_.bytes(piece);
  }
}

void TensorLives::record(std::size_t i, const OpMemory& memory, const std::vector<int>& inputs) {
  const GraphStep& at = step(i);
  const PassStep& noted = pass_.steps[i];
  Node& node = nodes_[i];
  for (const int k : memory.keeps_inputs) save(i, inputs[index(k)]);
  for (const int k : memory.keeps_outputs) save(i, scope_[index(at.outputs[index(k)])]);
  if (memory.keeps_input) {
    node.input_again = again_[index(resolve(noted.inputs[0].storage))];
    if (!node.input_again) save(i, inputs[0]);
  }
  // Copies of weights.
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (at.inputs[k] >= 0 && graph_.tensors[index(at.inputs[k])].is_parameter()) save(i, inputs[k]);
  const auto take = [&](std::int64_t bytes) {
    const int piece = memory_.take(bytes);
    save(i, piece);
    memory_.drop(piece);
    return piece;
  };
  const Shape& rows = noted.outputs[0];
  if (memory.row_statistics > 0)
    take(memory.row_statistics * numel(rows) / std::max<std::int64_t>(1, rows.back()) * 4);
  if (at.op == OpId::kAttention)
    if (const std::int64_t copied = copied_key_elements(graph_, i, noted); copied > 0)
      take(2 * copied * element_bytes_);
  if (memory.keeps_gradient) node.gradient = take(bytes_of(at.inputs[0], noted.inputs[0].local));
  if (memory.makes_again) {
    again_[index(resolve(noted.storages[0]))] = true;
    // The output knows what it is made of.
    for (const int piece : node.saved)
      memory_.attach(pieces_[index(resolve(noted.storages[0]))], piece);
  }
}

/// Bytes that a step takes and gives back at once.
std::int64_t TensorLives::passing(std::size_t i, const OpMemory& memory, bool backward) const {
  const GraphStep& at = step(i);
  const PassStep& noted = pass_.steps[i];
  std::int64_t bytes = 0;
  if (!noted.inputs.empty() && at.inputs[0] >= 0) {
    const int copies =
        backward ? memory.backward_copies + (nodes_[i].input_again ? 1 : 0) : memory.forward_copies;
    bytes += copies * bytes_of(at.inputs[0], noted.inputs[0].local);
  }
  if (!backward) return bytes + (at.op == OpId::kLinearCrossEntropy ? loss_bytes_ : 0);
  // Row sums of attention's gradient.
  if (at.op == OpId::kAttention) bytes += numel(noted.outputs[1]) * 4;
  // A gradient that is summed over ranks is there twice.
  for (std::size_t k = 0; k < at.inputs.size(); ++k)
    if (at.inputs[k] >= 0 && graph_.tensors[index(at.inputs[k])].is_parameter() &&
        noted.inputs[k].summed)
      bytes += numel(noted.inputs[k].local) * element_bytes_;
  return bytes;
}

void TensorLives::op(std::size_t i, bool records) {
  const OpMemory memory = op_memory(step(i), graph_);
  const std::vector<int> inputs = place_inputs(i);
  for (std::size_t k = 0; k < step(i).outputs.size(); ++k) make(i, k, memory.is_view);
  nodes_[i] = {};
  if (records && graph_.tensors[index(step(i).outputs[0])].recorded) record(i, memory, inputs);
  memory_.pass(passing(i, memory, false));
  for (const int piece : inputs) memory_.drop(piece);
}

void TensorLives::backward(const GraphRun& run) {
  for (std::size_t i = run.end; i-- > run.begin;)
    step(i).kind == GraphStepKind::kOp ? backward_op(i) : backward_border(i);
}

/// `piece` is held for the gradient. A second one is added to the first.
void TensorLives::emit_to(int name, int piece) {
  int& gradient = gradients_[index(name)];
  if (gradient >= 0) {
    memory_.drop(piece);
  } else {
    gradient = piece;
  }
}

void TensorLives::emit(std::size_t i, std::size_t input, int piece) {
  const int name = step(i).inputs[input];
  const PlacedInput& placed = pass_.steps[i].inputs[input];
  if (!is_copy(name, placed)) return emit_to(name, piece);
  // The gradient of a copy goes back once all uses of it have added theirs.
  const auto [sum, is_first] = copy_gradients_.try_emplace(placed.storage, piece);
  if (!is_first) memory_.drop(piece);
  if (!placed.copied) return;
  const int copy = sum->second;
  copy_gradients_.erase(sum);
  emit_to(name, memory_.take(local_bytes_[index(name)]));
  memory_.drop(copy);
}

void TensorLives::backward_border(std::size_t i) {
  for (std::size_t k = 0; k < step(i).outputs.size(); ++k) {
    const int output = step(i).outputs[k], input = step(i).inputs[k];
    if (output < 0 || gradients_[index(output)] < 0) continue;
    const int gradient = std::exchange(gradients_[index(output)], -1);
    if (storage_of_[index(output)] == storage_of_[index(input)]) {
      emit_to(input, gradient);
    } else {
      emit_to(input, memory_.take(local_bytes_[index(input)]));
      memory_.drop(gradient);
    }
  }
}

int TensorLives::gradient_piece(std::size_t i, const OpMemory& memory, std::size_t input) {
  const GraphStep& at = step(i);
  const auto gradient_of = [&](std::size_t k) { return gradients_[index(at.outputs[k])]; };
  const auto own = [&] {
    return memory_.take(bytes_of(at.inputs[input], pass_.steps[i].inputs[input].local));
  };
  const auto share = [&](int piece) {
    memory_.hold(piece);
    return piece;
  };
  switch (memory.gradients[input]) {
    case GradientMemory::kShared: {
      const int piece = memory.keeps_gradient ? nodes_[i].gradient : gradient_of(0);
      // Pieces that lie one behind the other are the whole already.
      for (std::size_t k = 1; at.op == OpId::kSplit && k < at.outputs.size(); ++k)
        if (gradient_of(k) != piece) return own();
      return share(piece);
    }
    case GradientMemory::kInPlace: {
      const int sum = gradient_of(1);
      return sum >= 0 && memory_.holders(sum) == 1 ? share(sum) : own();
    }
    default: break;
  }
  std::int64_t bytes = 0;
  for (std::size_t k = input; k < memory.gradients.size(); ++k)
    if (k == input || (input == 0 && lies_with_first(i, memory, k)))
      bytes += bytes_of(at.inputs[k], pass_.steps[i].inputs[k].local);
  return memory_.take(bytes);
}

/// Whether the gradient of input `k` is one piece with that of input 0: what a norm adds has one
/// gradient, and queries, keys and values of one projection have theirs side by side.
bool TensorLives::lies_with_first(std::size_t i, const OpMemory& memory, std::size_t k) const {
  if (memory.gradients[k] == GradientMemory::kInPlace) return true;
  const GraphStep& at = step(i);
  return at.op == OpId::kAttention && k < 3 &&
         storage_of_[index(at.inputs[0])] == storage_of_[index(at.inputs[k])];
}

void TensorLives::backward_op(std::size_t i) {
  const GraphStep& at = step(i);
  Node& node = nodes_[i];
  const OpMemory memory = op_memory(at, graph_);
  const bool reached = memory.keeps_gradient
                           ? node.gradient >= 0
                           : std::any_of(at.outputs.begin(), at.outputs.end(),
                                         [&](int t) { return gradients_[index(t)] >= 0; });
  std::vector<int> pieces(memory.gradients.size(), -1);
  for (std::size_t k = 0; reached && k < pieces.size(); ++k) {
    const int name = at.inputs[k];
    if (memory.gradients[k] == GradientMemory::kNone || name < 0) continue;
    const GraphTensor& tensor = graph_.tensors[index(name)];
    if (!tensor.recorded || tensor.is_parameter()) continue;
    if (k > 0 && pieces[0] >= 0 && lies_with_first(i, memory, k)) {
      pieces[k] = pieces[0];
      memory_.hold(pieces[k]);
    } else {
      pieces[k] = gradient_piece(i, memory, k);
    }
  }
  if (reached) memory_.pass(passing(i, memory, true));
  for (std::size_t k = 0; k < pieces.size(); ++k)
    if (pieces[k] >= 0) emit(i, k, pieces[k]);
  for (const int t : at.outputs) memory_.drop(std::exchange(gradients_[index(t)], -1));
  for (const int piece : node.saved) memory_.drop(piece);
  node = {};
}

/// What a block, or what is outside them, takes of what others made.
std::vector<int> TensorLives::inputs_of(const GraphRun& run) const {
  std::vector<int> names;
  for (std::size_t i = run.begin; i < run.end; ++i)
    for (const int name : step(i).inputs) {
      if (name < 0) continue;
      const GraphTensor& tensor = graph_.tensors[index(name)];
      const bool outside = tensor.made < static_cast<int>(run.begin);
      if (tensor.recorded && !tensor.is_parameter() && outside &&
          std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
    }
  return names;
}

/// Holds what a checkpoint does, once step `i` of a block is done: what goes in, and what attention
/// gives if that is kept.
void TensorLives::keep_boundary(const GraphRun& run, std::size_t i) {
  std::vector<int>& held = held_[run_];
  const auto hold = [&](int name) {
    const int piece = scope_[index(name)];
    if (piece < 0) return;
    if (std::find(held.begin(), held.end(), piece) == held.end())
      runs_[run_].boundary += memory_.bytes(piece);
    memory_.hold(piece);
    held.push_back(piece);
  };
  if (i == run.begin)
    for (const int name : inputs_of(run)) hold(name);
  const bool attends = step(i).kind == GraphStepKind::kOp && step(i).op == OpId::kAttention;
  if (attends && checkpointing_ == ActivationCheckpoint::kSelective)
    for (const int name : step(i).outputs) hold(name);
}

void TensorLives::drop_boundary() {
  for (const int piece : std::exchange(held_[run_], {})) memory_.drop(piece);
}

void TensorLives::backward_checkpointed(const GraphRun& run) {
  for (const int name : inputs_of(run)) again_[index(storage_of_[index(name)])] = false;
  is_replay_ = true;
  forward(run, true);
  is_replay_ = false;
  // The outputs stay with their gradients, which who called backward holds; all else is what was
  // recorded.
  std::vector<int> left;
  for (const int name : step(run.end - 1).outputs) {
    if (name < 0) continue;
    left.push_back(std::exchange(scope_[index(name)], -1));
    const int gradient = gradients_[index(name)];
    if (gradient < 0) continue;
    memory_.hold(gradient);
    left.push_back(gradient);
  }
  release_all();
  drop_boundary();
  backward(run);
  for (const int piece : left) memory_.drop(piece);
}

}  // namespace meshloom::planner
