// SPDX-License-Identifier: Apache-2.0
// ReferenceData: the samples that a client's batches name below the data dir, as a job reads them.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>

#include "daemon/base/disk.h"
#include "daemon/nn/models/model_config.h"
#include "daemon/train/data/dataset.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/loss/loss_batch.h"
#include "daemon/train/run/run_mesh.h"
#include "v1/config.pb.h"
#include "v1/step.pb.h"

namespace meshloom::train {

/// ReferenceData belongs to one run; every rank has one. Data are opened once, as a job opens its
/// own.
class ReferenceData {
 public:
  /// `config` is the run's, resolved. `disk`, where the data are, outlives this.
  ReferenceData(v1::RunConfig config, nn::ModelConfig model, std::filesystem::path data_dir,
                base::Disk& disk = base::own_disk());

  struct Samples {
    v1::LossBatch batch;  ///< with its data in place of the reference
    WholeBatch whole;
    v1::DataIdentity identity;
  };
  /// Reads what the reference of a checked batch names: rank 0 everything, the others what they
  /// compute. `text` says where the tokens of text are (resolve_reference_text). Every rank of the
  /// mesh's world calls it, and what one throws all throw: InvalidArgument with a field below
  /// "reference", NotFound, IoError, FailedPrecondition (DATA_CHANGED), OutOfRange
  /// (DATA_OUT_OF_RANGE).
  Samples read(const v1::LossBatch& batch, const RunMesh& mesh, const TokenizedText& text = {});

 private:
  struct Opened {
    std::string key;
    std::shared_ptr<const Dataset> dataset;
    v1::DataIdentity identity;
  };
  const Opened& open(const v1::DataReference& reference, const TokenizedText& text,
                     comm::ProcessGroup& world);
  /// Adds the samples of a place to a batch.
  void read_data(const v1::DataReference& reference, const Opened& opened, const BatchSplit& split,
                 std::int64_t place, v1::LossBatch& batch) const;

  const v1::RunConfig config_;
  const nn::ModelConfig model_;
  const std::filesystem::path data_dir_;
  base::Disk& disk_;
  std::deque<Opened> opened_;  ///< newest last
};

}  // namespace meshloom::train
