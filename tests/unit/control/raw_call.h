// SPDX-License-Identifier: Apache-2.0
// A call of any method by its name, with any message: one is sent, all answers are read.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>
#include <vector>

namespace meshloom::control {

struct RawAnswer {
  grpc::Status status;
  std::vector<std::string> messages;  ///< serialised
};

/// `method`: "/meshloom.v1.JobService/GetJob".
inline RawAnswer raw_call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                          const google::protobuf::Message& request, grpc::ClientContext* context) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const auto done = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto call = stub.PrepareCall(context, method, &queue);
  call->StartCall(nullptr);
  RawAnswer answer;
  if (done()) {
    const grpc::Slice slice(request.SerializeAsString());
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    done();
    while (true) {
      grpc::ByteBuffer buffer;
      call->Read(&buffer, nullptr);
      if (!done()) break;
      std::vector<grpc::Slice> slices;
      (void)buffer.Dump(&slices);
      std::string& message = answer.messages.emplace_back();
      for (const grpc::Slice& part : slices)
        message.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  call->Finish(&answer.status, nullptr);
  done();
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  return answer;
}

}  // namespace meshloom::control
