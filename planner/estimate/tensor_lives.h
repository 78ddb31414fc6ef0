// SPDX-License-Identifier: Apache-2.0
// TensorLives: a walk through a graph, forward and backward, with the memory that it takes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "planner/estimate/memory_pieces.h"
#include "planner/estimate/model_pass.h"
#include "planner/estimate/op_memory.h"
#include "planner/plan/activation_checkpoint.h"

namespace meshloom::planner {

/// RunLives counts bytes of one time of a run.
struct RunLives {
  std::int64_t kept = 0;      ///< until its backward, if it is not checkpointed
  std::int64_t boundary = 0;  ///< the same if it is
};

/// A tensor lives as long as forward holds it or backward needs it. Parameters and their gradients
/// are none of it, but for copies of them.
class TensorLives {
 public:
  /// One forward and backward, with `element_bytes` of the plan's dtype; `loss_bytes` is what the
  /// loss has in passing. Of equal blocks one is walked through, the last.
  TensorLives(const ModelPass& pass, ActivationCheckpoint checkpointing, std::int64_t element_bytes,
              std::int64_t loss_bytes);

  const std::vector<RunLives>& runs() const { return runs_; }
  /// Returns the most there is, all blocks together.
  std::int64_t peak() const { return peak_; }
  /// Returns the bytes that are there when backward has gone through all blocks.
  std::int64_t behind_blocks() const { return behind_blocks_; }

 private:
  /// The node keeps what was recorded of a step.
  struct Node {
    std::vector<int> saved;  ///< pieces
    int gradient = -1;       ///< of input 0, made in forward
    bool input_again = false;
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  const GraphStep& step(std::size_t i) const { return graph_.steps[i]; }
  std::int64_t bytes_of(int name, const Shape& local) const;
  int resolve(int storage) const;
  int piece_at(int storage) const;
  bool is_copy(int name, const PlacedInput& input) const;

  void walk();
  std::int64_t kept_beside(std::size_t r) const;
  void note_peak();
  bool is_checkpointed(const GraphRun& run) const {
    return run.is_block && checkpointing_ != ActivationCheckpoint::kNone;
  }
  void forward(const GraphRun& run, bool records);
  void release(std::size_t before_step);
  void release_all();
  void make(std::size_t i, std::size_t output, bool is_view);
  std::vector<int> place_inputs(std::size_t i);
  void border(std::size_t i);
  void op(std::size_t i, bool records);
  void record(std::size_t i, const OpMemory& memory, const std::vector<int>& inputs);
  void save(std::size_t i, int piece);
  std::int64_t passing(std::size_t i, const OpMemory& memory, bool backward) const;

  void backward(const GraphRun& run);
  void backward_border(std::size_t i);
  void backward_op(std::size_t i);
  bool lies_with_first(std::size_t i, const OpMemory& memory, std::size_t k) const;
  int gradient_piece(std::size_t i, const OpMemory& memory, std::size_t input);
  void emit(std::size_t i, std::size_t input, int piece);
  void emit_to(int name, int piece);

  std::vector<int> inputs_of(const GraphRun& run) const;
  void keep_boundary(const GraphRun& run, std::size_t i);
  void drop_boundary();
  void backward_checkpointed(const GraphRun& run);

  const ModelPass& pass_;
  const ModelGraph& graph_;
  ActivationCheckpoint checkpointing_;
  std::int64_t element_bytes_, loss_bytes_;
  MemoryPieces memory_;
  std::vector<int> pieces_;                ///< by storage
  std::vector<int> alias_;                 ///< of views: the storage that they lie in
  std::vector<bool> again_;                ///< storages whose values can be made again
  std::vector<int> scope_, storage_of_;    ///< by name: what forward holds, and where it lies
  std::vector<std::int64_t> local_bytes_;  ///< by name
  std::vector<Node> nodes_;                ///< by step
  std::vector<int> gradients_;             ///< by name
  std::map<int, int> copy_gradients_;      ///< by storage
  std::vector<std::vector<int>> held_;     ///< by run: what a checkpoint holds
  std::vector<bool> was_saved_;            ///< pieces
  std::vector<RunLives> runs_;
  std::vector<std::vector<int>> released_;  ///< by step: names that forward holds no longer
  std::int64_t beside_ = 0;                 ///< what the other blocks keep that are there
  std::int64_t peak_ = 0, behind_blocks_ = 0;
  std::size_t run_ = 0;     ///< at work
  bool is_replay_ = false;  ///< it runs forward once more
};

}  // namespace meshloom::planner
