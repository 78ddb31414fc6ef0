// SPDX-License-Identifier: Apache-2.0
// All methods that clients may call, as the files of the protocol have them.
#pragma once

#include <google/protobuf/descriptor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/source_folder.h"
#include "v1/access_service.pb.h"
#include "v1/checkpoint_service.pb.h"
#include "v1/data_service.pb.h"
#include "v1/evaluate_service.pb.h"
#include "v1/event_service.pb.h"
#include "v1/generate_service.pb.h"
#include "v1/job_service.pb.h"
#include "v1/model_service.pb.h"
#include "v1/operation_service.pb.h"
#include "v1/plan_service.pb.h"
#include "v1/run_service.pb.h"
#include "v1/token_service.pb.h"
#include "v1/upload_service.pb.h"
#include "v1/worker_service.pb.h"

namespace meshloom::control {

/// Of every proto/v1/*_service.proto but those between the ranks. A file that this program does not
/// have is a null pointer, which fails the test that uses it.
inline std::vector<const google::protobuf::MethodDescriptor*> client_methods() {
  // So that the linker keeps the files' descriptors.
  (void)v1::GetUsageRequest::descriptor();
  (void)v1::WhoAmIRequest::descriptor();
  (void)v1::StreamEventsRequest::descriptor();
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_file("proto/v1"))) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with("_service.proto") || name.starts_with("rank_")) continue;
    const auto* file =
        google::protobuf::DescriptorPool::generated_pool()->FindFileByName("v1/" + name);
    for (int i = 0; file != nullptr && i < file->service_count(); ++i)
      for (int j = 0; j < file->service(i)->method_count(); ++j)
        methods.push_back(file->service(i)->method(j));
    if (file == nullptr) methods.push_back(nullptr);
  }
  return methods;
}

}  // namespace meshloom::control
