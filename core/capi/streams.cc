#include "core/capi/streams.h"

#include <algorithm>

#include "core/base/shown.h"

namespace epl::capi {
namespace {

constexpr size_t gathered_bytes = size_t{256} << 10, chunk_bytes = size_t{4} << 20;

}  // namespace

Status callback_status(epl_error* error) {
  if (error == nullptr) return {};
  struct Destroyed {
    epl_error* error;
    ~Destroyed() { epl_error_destroy(error); }
  } destroyed{error};
  const int32_t code = epl_error_code(error);
  size_t length = 0, where_length = 0;
  const char* message = epl_error_message(error, &length);
  const char* where = epl_error_where(error, &where_length);
  return Status(
      static_cast<Code>(code),
      length > 0 ? std::string(message, length) : std::string("a callback returned an error without a message"),
      std::string(where, where_length));
}

Status HostWriter::give(const char* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += chunk_bytes) {
    EPL_TRY(stop_.check());
    EPL_TRY(callback_status(write_(userdata_, data + at, std::min(chunk_bytes, bytes - at))));
  }
  return {};
}

Status HostWriter::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  if (gathered_.size() + bytes > gathered_bytes) EPL_TRY(finish());
  if (bytes > gathered_bytes) return give(from, bytes);
  gathered_.insert(gathered_.end(), from, from + bytes);
  return {};
}

Status HostWriter::finish() {
  EPL_TRY(give(gathered_.data(), gathered_.size()));
  gathered_.clear();
  return {};
}

struct HostSource::Userdata {
  void* userdata = nullptr;
  epl_destroy_fn destroy = nullptr;
  bool kept = false;
  ~Userdata() {
    if (kept && destroy) destroy(userdata);
  }
};

void HostSource::keep() { userdata_->kept = true; }

Result<HostSource> HostSource::of(const epl_source* source, std::string_view name) {
  EPL_TRY(check_pointer(source, name));
  epl_source known = EPL_SOURCE_INIT;
  EPL_TRY(copy_options(source, known, "epl_source"));
  if (known.read == nullptr) return invalid(name, " has no function that reads");
  EPL_ASSIGN(const std::string_view given, text_argument(known.name, known.name_length, "name of the source"));
  HostSource out;
  out.userdata_ = std::make_shared<Userdata>();
  out.userdata_->userdata = known.userdata;
  out.userdata_->destroy = known.destroy;
  const auto read = [kept = out.userdata_, read = known.read](uint64_t offset, void* target, size_t bytes) {
    return callback_status(read(kept->userdata, offset, target, bytes));
  };
  out.files_.file = FileReader::of_function(given.empty() ? "the host's bytes" : std::string(given), known.bytes, read);
  if (known.open == nullptr) return out;
  out.files_.beside = [kept = out.userdata_,
                       open = known.open](const std::string& location) -> Result<std::shared_ptr<const FileReader>> {
    epl_source beside = EPL_SOURCE_INIT;
    EPL_TRY(callback_status(open(kept->userdata, location.data(), location.size(), &beside)));
    EPL_ASSIGN(HostSource opened, of(&beside, cat("what was opened for ", shown(location, 200))));
    opened.keep();
    return opened.files_.file;
  };
  return out;
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_source_init(epl_source* source) {
  if (source) *source = EPL_SOURCE_INIT;
}
