// Datasets of what the host gives: by a function that is asked, or batches that are pushed into a feed.
#include "core/data/host_data.h"

#include "core/base/shown.h"
#include "core/capi/dataset.h"
#include "core/capi/streams.h"

namespace epl::capi {
namespace {

Result<HostFields> fields_argument(const epl_tensor_info* fields, size_t count) {
  if (count == 0 || count > 4096) return invalid("field_count is ", count, "; 1 to 4096 are possible");
  EPL_REQUIRE(fields);
  HostFields out;
  for (size_t i = 0; i < count; ++i) {
    const std::string field = cat("fields[", i, "]");
    epl_tensor_info known = EPL_TENSOR_INFO_INIT;
    EPL_TRY(copy_options(&fields[i], known, "epl_tensor_info"));
    EPL_ASSIGN(const std::string_view name, text_argument(known.name, known.name_length, cat(field, ".name")));
    if (name.empty()) return invalid(field, " has no name");
    auto type = type_argument(known.dtype, known.dims, known.ndim);
    if (!type.ok()) return type.status().with_context(cat("field ", name));
    for (const auto& one : out) {
      if (one.first == name) return invalid("two fields are called ", shown(name));
    }
    out.emplace_back(std::string(name), *std::move(type));
  }
  return out;
}

// What the host's function is called with; its destroy function is called once the dataset is there to be destroyed.
struct Samples {
  epl_samples_fn read = nullptr;
  void* userdata = nullptr;
  epl_destroy_fn destroy = nullptr;
  ~Samples() {
    if (destroy) destroy(userdata);
  }
};

std::unique_ptr<epl_dataset> dataset_handle(const std::shared_ptr<Engine>& engine, OpenedDataset opened) {
  auto made = std::make_unique<epl_dataset>();
  made->engine = engine;
  made->path = "the host's data";
  made->opened = std::move(opened);
  for (const auto& [name, type] : made->opened.dataset->fields()) add_tensor(made->tensors, *made, type);
  return made;
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_dataset_create(const epl_engine* engine, const epl_tensor_info* fields, size_t field_count,
                              int64_t samples, epl_samples_fn read, void* userdata, epl_destroy_fn destroy,
                              const char* options, size_t options_length, epl_dataset** dataset) {
  return giving(dataset, "dataset", [&]() -> Result<std::unique_ptr<epl_dataset>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(options);
    EPL_ASSIGN(HostFields known, fields_argument(fields, field_count));
    if (read == nullptr) return invalid("read is missing");
    if (samples < -1 || samples >= endless_samples) return invalid("samples is ", samples);
    const auto host = std::make_shared<Samples>();
    host->read = read;
    host->userdata = userdata;
    const auto ask = [host](int field, std::span<const int64_t> wanted, void* target, size_t bytes) {
      return callback_status(host->read(host->userdata, field, wanted.data(), wanted.size(), target, bytes));
    };
    EPL_ASSIGN(OpenedDataset opened,
               host_dataset(std::move(known), samples < 0 ? endless_samples : samples, ask, options_text));
    auto made = dataset_handle(engine->engine, std::move(opened));
    host->destroy = destroy;
    return made;
  });
}

epl_error* epl_feed_create(const epl_engine* engine, const epl_tensor_info* fields, size_t field_count,
                           int64_t capacity, epl_feed** feed) {
  return giving(feed, "feed", [&]() -> Result<std::unique_ptr<epl_feed>> {
    EPL_REQUIRE(engine);
    EPL_ASSIGN(HostFields known, fields_argument(fields, field_count));
    if (capacity < 1 || capacity > 65536) return invalid("capacity is ", capacity, "; 1 to 65536 are possible");
    auto queue = std::make_shared<BatchQueue>(std::move(known), capacity);
    auto made = std::make_unique<epl_feed>();
    made->engine = engine->engine;
    made->queue = std::move(queue);
    return made;
  });
}

void epl_feed_destroy(epl_feed* feed) { destroy(feed); }

epl_error* epl_feed_push(epl_feed* feed, const epl_tensor* const* tensors, size_t count, const epl_call_options* call) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(feed);
    if (count > 0) EPL_REQUIRE(tensors);
    if (count > 65536) return invalid("count is ", count);
    EPL_ASSIGN(const Call begun, begin_call(*feed->engine, call));
    const std::shared_ptr<BatchQueue> queue = feed->queue;
    std::vector<Tensor> batch;
    for (size_t i = 0; i < count; ++i) {
      EPL_TRY(check_pointer(tensors[i], cat("tensors[", i, "]")));
      EPL_TRY(check_on_host(*tensors[i], cat("tensors[", i, "]")));
      batch.push_back(tensors[i]->tensor);
    }
    return queue->push(batch, begun.stop);
  });
}

epl_error* epl_feed_finish(epl_feed* feed) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(feed);
    feed->queue->finish();
    return {};
  });
}

epl_error* epl_dataset_of_feed(const epl_feed* feed, epl_dataset** dataset) {
  return giving(dataset, "dataset", [&]() -> Result<std::unique_ptr<epl_dataset>> {
    EPL_REQUIRE(feed);
    EPL_ASSIGN(OpenedDataset opened, queue_dataset(feed->queue));
    auto made = dataset_handle(feed->engine, std::move(opened));
    EPL_TRY(feed->queue->take(made->opened.dataset->reader()));
    return made;
  });
}
