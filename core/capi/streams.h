// Bytes that go to the host's functions and come from them.
#pragma once

#include <vector>

#include "core/base/file.h"
#include "core/capi/handle.h"
#include "core/frontend/model_source.h"

namespace epl::capi {

// What a callback of the host has returned: its own code and message. The error is destroyed.
Status callback_status(epl_error* error);

// Hands chunks to the host. Small ones are gathered, large ones are cut, so that a call can end in between.
class HostWriter final : public ByteWriter {
 public:
  HostWriter(epl_write_fn write, void* userdata, const Stop& stop) : write_(write), userdata_(userdata), stop_(stop) {}
  Status write(const void* data, size_t bytes) override;
  Status finish() override;

 private:
  Status give(const char* data, size_t bytes);
  epl_write_fn write_;
  void* userdata_;
  const Stop& stop_;
  std::vector<char> gathered_;
};

// A source of the host's as a file. Its destroy function is called when nobody holds the file any more, and not before
// `keep` has been called: where the call that was given it fails, the userdata are still the host's.
class HostSource {
 public:
  static Result<HostSource> of(const epl_source* source, std::string_view name);
  const ModelSource& files() const { return files_; }
  void keep();

 private:
  struct Userdata;
  ModelSource files_;
  std::shared_ptr<Userdata> userdata_;
};

}  // namespace epl::capi
