// Checkpoints, exports, plans and models to and from the host's own functions: the same bytes as files, the host's own
// errors, and nothing half done.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

// An object store of one object.
struct Bucket {
  std::string bytes;
  int64_t calls = 0, fail_at = -1;  // the call that fails, counted from 0
  size_t largest = 0;
  int destroyed = 0;
  epl_cancel* cancels = nullptr;  // triggered by the first call

  epl_error* count(size_t chunk) {
    largest = std::max(largest, chunk);
    epl_cancel_trigger(cancels);
    if (calls++ != fail_at) return nullptr;
    return epl_error_create(EPL_ERROR_PEER_FAILED, EPL_STR("the bucket is gone"));
  }
  epl_source source() {
    epl_source out = EPL_SOURCE_INIT;
    out.bytes = bytes.size();
    out.userdata = this;
    out.read = [](void* userdata, uint64_t offset, void* target, size_t count) -> epl_error* {
      auto* self = static_cast<Bucket*>(userdata);
      if (epl_error* error = self->count(count)) return error;
      EXPECT_LE(offset + count, self->bytes.size());
      std::memcpy(target, self->bytes.data() + offset, count);
      return nullptr;
    };
    out.destroy = [](void* userdata) { ++static_cast<Bucket*>(userdata)->destroyed; };
    out.name = "s3://bucket/key";
    out.name_length = std::strlen(out.name);
    return out;
  }
};

epl_error* put(void* userdata, const void* data, size_t bytes) {
  auto* bucket = static_cast<Bucket*>(userdata);
  if (epl_error* error = bucket->count(bytes)) return error;
  bucket->bytes.append(static_cast<const char*>(data), bytes);
  return nullptr;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Streams : public testing::Test {
 protected:
  void SetUp() override {
    ::world_make(&w, folder.c_str(), 1, 20000);  // weights of several chunks, which stay in the file
    must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"classes\":true,\"order\":\"shuffled\"}"),
                          nullptr, &rows));
    must(epl_dataset_bind(rows, w.plan, EPL_ENTRY_TRAIN));
  }
  void TearDown() override {
    epl_dataset_destroy(rows);
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  void train(epl_session* session, int steps) {
    for (int i = 0; i < steps; ++i) {
      const epl_tensor* batch[2];
      must(epl_dataset_next(rows, nullptr, batch, 2));
      must(epl_session_step(session, batch, 2, nullptr, nullptr));
    }
  }
  uint64_t hash(epl_session* session) {
    uint64_t value = 0;
    must(epl_session_hash(session, nullptr, &value));
    return value;
  }
  epl_session* new_session() {
    epl_session* made = nullptr;
    must(epl_session_create(w.plan, nullptr, nullptr, &made));
    return made;
  }
  // Code and message of an error that must be the host's own.
  void expect_bucket_gone(epl_error* error) {
    EXPECT_EQ(epl_error_code(error), EPL_ERROR_PEER_FAILED);
    EXPECT_STREQ(epl_error_message(error, nullptr), "the bucket is gone");
    epl_error_destroy(error);
  }

  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path();
  world w;
  epl_dataset* rows = nullptr;
};

TEST_F(Streams, ACheckpointGoesOnBitForBit) {
  Bucket bucket;
  train(w.session, 3);
  must(epl_session_save_to(w.session, put, &bucket, rows, nullptr));
  train(w.session, 3);
  const uint64_t whole = hash(w.session);
  epl_source source = bucket.source();
  const std::string file = folder + "/checkpoint.zip";
  std::ofstream(file, std::ios::binary) << bucket.bytes;
  for (int way = 0; way < 3; ++way) {
    epl_session* session = new_session();
    must(epl_dataset_seek(rows, 0));
    must(way == 0   ? epl_session_load_bytes(session, bucket.bytes.data(), bucket.bytes.size(), rows, nullptr)
         : way == 1 ? epl_session_load_from(session, &source, rows, nullptr)
                    : epl_session_load(session, file.data(), file.size(), rows, nullptr));
    EXPECT_EQ(epl_session_steps(session), 3);
    EXPECT_EQ(epl_dataset_position(rows), 3);
    train(session, 3);
    EXPECT_EQ(hash(session), whole) << way;
    epl_session_destroy(session);
  }
  EXPECT_EQ(bucket.destroyed, 1);
}

TEST_F(Streams, AnErrorOfTheHostEndsAWriteAndChangesNothing) {
  train(w.session, 2);
  const uint64_t before = hash(w.session);
  Bucket all;
  must(epl_session_save_to(w.session, put, &all, rows, nullptr));
  ASSERT_GE(all.calls, 1);
  for (int64_t fail = 0; fail < all.calls; ++fail) {
    Bucket bucket{.fail_at = fail};
    expect_bucket_gone(epl_session_save_to(w.session, put, &bucket, rows, nullptr));
    expect_bucket_gone([&] {
      Bucket other{.fail_at = 0};
      return epl_session_export_to(w.session, EPL_STR("onnx"), put, &other, nullptr);
    }());
  }
  Bucket plan{.fail_at = 0};
  expect_bucket_gone(epl_plan_save_to(w.plan, put, &plan, nullptr));
  EXPECT_EQ(hash(w.session), before);
  train(w.session, 1);
  EXPECT_EQ(epl_session_steps(w.session), 3);
}

TEST_F(Streams, AnErrorOfTheHostEndsALoad) {
  Bucket bucket;
  train(w.session, 2);
  must(epl_session_save_to(w.session, put, &bucket, rows, nullptr));
  const uint64_t saved = hash(w.session);
  train(w.session, 1);
  const uint64_t before = hash(w.session);
  bucket.calls = 0;
  epl_source source = bucket.source();
  source.destroy = nullptr;
  {
    epl_session* other = new_session();
    must(epl_session_load_from(other, &source, nullptr, nullptr));
    epl_session_destroy(other);
  }
  const int64_t reads = bucket.calls;
  bool unchanged = false, lost = false;
  for (int64_t fail = 0; fail < reads; ++fail) {
    bucket.calls = 0, bucket.fail_at = fail;
    const int64_t position = epl_dataset_position(rows);
    expect_bucket_gone(epl_session_load_from(w.session, &source, rows, nullptr));
    EXPECT_EQ(epl_dataset_position(rows), position);
    epl_error* error = epl_session_step(w.session, w.inputs, 2, nullptr, nullptr);
    if (error == nullptr) {
      unchanged = true;
    } else {
      EXPECT_EQ(epl_error_code(error), EPL_ERROR_STATE_LOST) << epl_error_message(error, nullptr);
      epl_error_destroy(error);
      lost = true;
    }
    bucket.fail_at = -1;
    must(epl_session_load_from(w.session, &source, rows, nullptr));
    EXPECT_EQ(hash(w.session), saved);
  }
  EXPECT_TRUE(unchanged);
  EXPECT_TRUE(lost);
  EXPECT_NE(before, saved);
}

TEST_F(Streams, WhatIsNoCheckpointIsRefused) {
  Bucket bucket;
  must(epl_session_save_to(w.session, put, &bucket, nullptr, nullptr));
  const uint64_t before = hash(w.session);
  std::string damaged = bucket.bytes;
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_EQ(taken(epl_session_load_bytes(w.session, damaged.data(), damaged.size(), nullptr, nullptr)),
            EPL_ERROR_DATA_LOSS);
  EXPECT_EQ(taken(epl_session_load_bytes(w.session, damaged.data(), damaged.size() / 2, nullptr, nullptr)),
            EPL_ERROR_DATA_LOSS);
  EXPECT_EQ(taken(epl_session_load_bytes(w.session, "", 0, nullptr, nullptr)), EPL_ERROR_DATA_LOSS);
  EXPECT_EQ(hash(w.session), before);
  train(w.session, 1);
}

TEST_F(Streams, ExportsAreTheFiles) {
  train(w.session, 2);
  const std::string path = folder + "/exported";
  const std::pair<const char*, epl_error* (*)(epl_session*, const char*, size_t, const epl_call_options*)> formats[] = {
      {"onnx", epl_session_export_onnx},
      {"onnx_for_training", epl_session_export_onnx_for_training},
      {"safetensors", epl_session_export_safetensors}};
  for (const auto& [format, to_file] : formats) {
    Bucket bucket;
    must(to_file(w.session, TEXT(path.c_str()), nullptr));
    must(epl_session_export_to(w.session, TEXT(format), put, &bucket, nullptr));
    EXPECT_TRUE(bucket.bytes == read_file(path)) << format;
  }
  Bucket bucket;
  epl_error* error = epl_session_export_to(w.session, EPL_STR("onx"), put, &bucket, nullptr);
  EXPECT_EQ(epl_error_code(error), EPL_ERROR_NOT_FOUND);
  EXPECT_NE(std::strstr(epl_error_message(error, nullptr), "did you mean onnx"), nullptr)
      << epl_error_message(error, nullptr);
  epl_error_destroy(error);
  EXPECT_EQ(taken(epl_session_export_to(w.session, EPL_STR("onnx"), nullptr, nullptr, nullptr)),
            EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(taken(epl_session_save_to(w.session, nullptr, nullptr, nullptr, nullptr)), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(bucket.calls, 0);
}

TEST_F(Streams, ACancelledWriteEnds) {
  epl_cancel* cancel = nullptr;
  must(epl_cancel_create(w.engine, &cancel));
  Bucket bucket{.cancels = cancel};
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  call.cancel = cancel;
  EXPECT_EQ(taken(epl_session_save_to(w.session, put, &bucket, nullptr, &call)), EPL_ERROR_CANCELLED);
  EXPECT_EQ(bucket.calls, 1);
  train(w.session, 1);
  epl_cancel_destroy(cancel);
}

TEST_F(Streams, APlanIsTheFile) {
  Bucket bucket;
  const std::string path = folder + "/a.plan";
  must(epl_plan_save(w.plan, path.data(), path.size(), nullptr));
  must(epl_plan_save_to(w.plan, put, &bucket, nullptr));
  EXPECT_EQ(bucket.bytes, read_file(path));
  epl_plan* plan = nullptr;
  must(epl_plan_load_bytes(w.model, w.trainer, w.strategy, nullptr, bucket.bytes.data(), bucket.bytes.size(), nullptr,
                           &plan));
  Bucket again;
  must(epl_plan_save_to(plan, put, &again, nullptr));
  EXPECT_EQ(again.bytes, bucket.bytes);
  epl_plan_destroy(plan);
  bucket.bytes[bucket.bytes.size() / 2] ^= 1;
  EXPECT_EQ(taken(epl_plan_load_bytes(w.model, w.trainer, w.strategy, nullptr, bucket.bytes.data(), bucket.bytes.size(),
                                      nullptr, &plan)),
            EPL_ERROR_DATA_LOSS);
  EXPECT_EQ(plan, nullptr);
}

// Trains for a moment; the hash of the weights.
uint64_t trained(const world& w, const epl_model* model) {
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  uint64_t hash = 0;
  must(epl_plan_create(model, w.trainer, w.strategy, nullptr, nullptr, &plan));
  must(epl_session_create(plan, nullptr, nullptr, &session));
  for (int i = 0; i < 3; ++i) must(epl_session_step(session, w.inputs, 2, nullptr, nullptr));
  must(epl_session_hash(session, nullptr, &hash));
  epl_session_destroy(session);
  epl_plan_destroy(plan);
  return hash;
}

TEST_F(Streams, AModelComesFromTheHost) {
  const uint64_t of_file = trained(w, w.model);
  Bucket bucket{.bytes = read_file(w.model_path)};
  const epl_source source = bucket.source();
  epl_model* model = nullptr;
  must(epl_model_load_from(w.engine, &source, nullptr, nullptr, &model));
  EXPECT_EQ(trained(w, model), of_file);
  EXPECT_EQ(bucket.destroyed, 0);
  epl_model_destroy(model);
  EXPECT_EQ(bucket.destroyed, 1);

  bucket.calls = 0, bucket.fail_at = 0, bucket.destroyed = 0;
  expect_bucket_gone(epl_model_load_from(w.engine, &source, nullptr, nullptr, &model));
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(bucket.destroyed, 0);  // the host still has it
  bucket.fail_at = -1, bucket.bytes = "no model";
  epl_source garbage = bucket.source();
  EXPECT_EQ(taken(epl_model_load_from(w.engine, &garbage, nullptr, nullptr, &model)), EPL_ERROR_INVALID_MODEL);
  garbage.bytes = UINT64_MAX;
  EXPECT_EQ(taken(epl_model_load_from(w.engine, &garbage, nullptr, nullptr, &model)), EPL_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(bucket.destroyed, 0);
}

// Weights that stay with the host are read when they are wanted, and may fail then.
TEST_F(Streams, WeightsStayWithTheHost) {
  Bucket bucket{.bytes = read_file(w.model_path)};
  const epl_source source = bucket.source();
  epl_model* model = nullptr;
  must(epl_model_load_from(w.engine, &source, nullptr, nullptr, &model));
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  must(epl_plan_create(model, w.trainer, w.strategy, nullptr, nullptr, &plan));
  const int64_t before = bucket.calls;
  bucket.fail_at = before;
  expect_bucket_gone(epl_session_create(plan, nullptr, nullptr, &session));
  EXPECT_EQ(session, nullptr);
  must(epl_session_create(plan, nullptr, nullptr, &session));
  EXPECT_GT(bucket.calls, before);
  epl_session_destroy(session);
  epl_plan_destroy(plan);
  epl_model_destroy(model);
  EXPECT_EQ(bucket.destroyed, 1);
}

}  // namespace
