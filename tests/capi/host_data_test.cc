// Data that the host gives, asked for or pushed: the same bits as a file, in every order and with every position, waits
// that end, and the host's own errors.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

constexpr int64_t samples = 50, features = 4;

float feature(int64_t sample, int64_t i) { return std::sin(static_cast<float>(sample * features + i)); }
int64_t target(int64_t sample) { return sample % 2; }

// A host's table, and how often it was asked.
struct Table {
  std::atomic<int64_t> calls{0}, rows{0};
  std::atomic<int64_t> fails_once_at{-1};  // the first sample of a call
  std::atomic<int> destroyed{0};
  int64_t end = samples;
  int64_t no_class_at = -1;  // the sample whose target is none

  static epl_error* read(void* userdata, int32_t field, const int64_t* wanted, size_t count, void* to, size_t bytes) {
    auto* self = static_cast<Table*>(userdata);
    self->rows += static_cast<int64_t>(count);
    ++self->calls;
    int64_t first = wanted[0];
    if (self->fails_once_at.compare_exchange_strong(first, -1))
      return epl_error_create(EPL_ERROR_PEER_FAILED, EPL_STR("the table is gone"));
    EXPECT_EQ(bytes, count * (field == 0 ? features * sizeof(float) : sizeof(int64_t)));
    for (size_t s = 0; s < count; ++s) {
      if (wanted[s] >= self->end) return epl_error_create(EPL_ERROR_NOT_FOUND, EPL_STR("the table has ended"));
      for (int64_t i = 0; field == 0 && i < features; ++i)
        static_cast<float*>(to)[static_cast<int64_t>(s) * features + i] = feature(wanted[s], i);
      if (field == 1) static_cast<int64_t*>(to)[s] = wanted[s] == self->no_class_at ? 7 : target(wanted[s]);
    }
    return nullptr;
  }
  static void destroy(void* userdata) { ++static_cast<Table*>(userdata)->destroyed; }
};

epl_tensor_info info(const char* name, int32_t dtype, std::vector<int64_t> dims) {
  epl_tensor_info out = EPL_TENSOR_INFO_INIT;
  out.name = name;
  out.name_length = std::strlen(name);
  out.dtype = dtype;
  out.ndim = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), out.dims);
  return out;
}

class HostData : public testing::Test {
 protected:
  void SetUp() override { ::world_make(&w, folder.c_str(), 1, 8); }
  void TearDown() override {
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  epl_dataset* open(Table& table, const std::string& options, int64_t count = samples) {
    const epl_tensor_info fields[] = {info("x", EPL_DTYPE_F32, {features}), info("target", EPL_DTYPE_I64, {})};
    epl_dataset* made = nullptr;
    must(epl_dataset_create(w.engine, fields, 2, count, Table::read, &table, Table::destroy, options.data(),
                            options.size(), &made));
    must(epl_dataset_bind(made, w.plan, EPL_ENTRY_TRAIN));
    return made;
  }
  epl_feed* open_feed(int64_t capacity, epl_dataset** dataset) {
    const epl_tensor_info fields[] = {info("x", EPL_DTYPE_F32, {world_batch, features}),
                                      info("target", EPL_DTYPE_I64, {world_batch})};
    epl_feed* feed = nullptr;
    must(epl_feed_create(w.engine, fields, 2, capacity, &feed));
    must(epl_dataset_of_feed(feed, dataset));
    must(epl_dataset_bind(*dataset, w.plan, EPL_ENTRY_TRAIN));
    return feed;
  }
  // Batch `number` of the table, in the order of its samples.
  epl_error* push(epl_feed* feed, int64_t number, const epl_call_options* call = nullptr) {
    float x[world_batch * features];
    int64_t y[world_batch];
    for (int64_t s = 0; s < world_batch; ++s) {
      for (int64_t i = 0; i < features; ++i) x[s * features + i] = feature(number * world_batch + s, i);
      y[s] = target(number * world_batch + s);
    }
    const int64_t dims[] = {world_batch, features};
    epl_tensor* tensors[2] = {};
    must(epl_tensor_create_copy(w.engine, EPL_DTYPE_F32, dims, 2, x, sizeof x, &tensors[0]));
    must(epl_tensor_create_copy(w.engine, EPL_DTYPE_I64, dims, 1, y, sizeof y, &tensors[1]));
    epl_error* error = epl_feed_push(feed, tensors, 2, call);
    for (epl_tensor* tensor : tensors) epl_tensor_destroy(tensor);
    return error;
  }
  epl_error* next(epl_dataset* dataset, const epl_call_options* call = nullptr) {
    const epl_tensor* batch[2];
    return epl_dataset_next(dataset, call, batch, 2);
  }
  // Trains a new session on so many batches; the hash of its weights.
  uint64_t train(epl_dataset* dataset, int steps, epl_session* session = nullptr) {
    epl_session* own = nullptr;
    if (session == nullptr) must(epl_session_create(w.plan, nullptr, nullptr, &own));
    session = session ? session : own;
    for (int i = 0; i < steps; ++i) {
      const epl_tensor* batch[2];
      must(epl_dataset_next(dataset, nullptr, batch, 2));
      must(epl_session_step(session, batch, 2, nullptr, nullptr));
    }
    uint64_t hash = 0;
    must(epl_session_hash(session, nullptr, &hash));
    epl_session_destroy(own);
    return hash;
  }
  static epl_call_options within(int64_t milliseconds) {
    epl_call_options call = EPL_CALL_OPTIONS_INIT;
    call.timeout_nanoseconds = milliseconds * 1'000'000;
    return call;
  }

  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path();
  world w;
};

TEST_F(HostData, IsReadAsAFileIs) {
  std::string rows = "a,b,c,d,y\n";
  char text[200];
  for (int64_t s = 0; s < samples; ++s) {
    std::snprintf(text, sizeof text, "%.9g,%.9g,%.9g,%.9g,%d\n", feature(s, 0), feature(s, 1), feature(s, 2),
                  feature(s, 3), static_cast<int>(target(s)));
    rows += text;
  }
  ::world_write(w.csv_path, rows.data(), rows.size());
  for (const std::string options :
       {"{\"batch\":8}", "{\"batch\":8,\"order\":\"shuffled\",\"seed\":5}",
        "{\"batch\":8,\"order\":\"shuffled\",\"prefetch\":3,\"split\":\"train\",\"held_out\":0.3}"}) {
    Table table;
    epl_dataset* of_file = nullptr;
    const std::string with_classes = options.substr(0, options.size() - 1) + ",\"classes\":true}";
    must(epl_dataset_open(w.engine, TEXT(w.csv_path), with_classes.data(), with_classes.size(), nullptr, &of_file));
    must(epl_dataset_bind(of_file, w.plan, EPL_ENTRY_TRAIN));
    epl_dataset* dataset = open(table, options);
    EXPECT_EQ(epl_dataset_samples(dataset), epl_dataset_samples(of_file));
    EXPECT_EQ(epl_dataset_batches(dataset), epl_dataset_batches(of_file));
    EXPECT_EQ(train(dataset, 15), train(of_file, 15)) << options;
    epl_dataset_destroy(of_file);
    EXPECT_EQ(table.destroyed, 0);
    epl_dataset_destroy(dataset);
    EXPECT_EQ(table.destroyed, 1);
    EXPECT_GE(table.rows, 15 * world_batch * 2);
    EXPECT_EQ(table.rows, table.calls * world_batch);  // a full batch of a field at a time
  }
}

TEST_F(HostData, GoesOnFromACheckpoint) {
  Table table;
  epl_dataset* dataset = open(table, "{\"batch\":8,\"order\":\"shuffled\",\"prefetch\":2}");
  epl_session *session = nullptr, *second = nullptr;
  must(epl_session_create(w.plan, nullptr, nullptr, &session));
  train(dataset, 7, session);
  const int64_t before = table.calls;
  must(epl_session_save(session, TEXT(w.checkpoint), dataset, nullptr));
  EXPECT_LE(table.calls, before + 6);  // what is read ahead, and nothing to see which data it is
  const uint64_t whole = train(dataset, 7, session);
  must(epl_session_create(w.plan, nullptr, nullptr, &second));
  must(epl_session_load(second, TEXT(w.checkpoint), dataset, nullptr));
  EXPECT_EQ(epl_dataset_position(dataset), 7);
  EXPECT_EQ(train(dataset, 7, second), whole);
  epl_session_destroy(session);
  epl_session_destroy(second);
  epl_dataset_destroy(dataset);
}

TEST_F(HostData, ItsErrorsAreItsOwn) {
  for (const std::string options : {"{\"batch\":8}", "{\"batch\":8,\"prefetch\":2}"}) {
    Table table;
    epl_dataset* dataset = open(table, options);
    must(next(dataset));
    // Of what is not read ahead yet: what was before a seek is forgotten, and its errors too.
    table.fails_once_at = 100 % (samples / 8) * 8;
    must(epl_dataset_seek(dataset, 100));
    epl_error* error = nullptr;
    for (int i = 0; i < 4 && error == nullptr; ++i) error = next(dataset);
    ASSERT_EQ(epl_error_code(error), EPL_ERROR_PEER_FAILED);
    EXPECT_STREQ(epl_error_message(error, nullptr), "the table is gone");
    epl_error_destroy(error);
    const int64_t position = epl_dataset_position(dataset);
    must(next(dataset));  // it is asked again
    EXPECT_EQ(epl_dataset_position(dataset), position + 1);
    epl_dataset_destroy(dataset);
  }
}

TEST_F(HostData, MayHaveNoKnownEnd) {
  Table table;
  table.end = 20;
  epl_dataset* dataset = open(table, "{\"batch\":8}", -1);
  EXPECT_EQ(epl_dataset_samples(dataset), -1);
  EXPECT_EQ(epl_dataset_batches(dataset), -1);
  must(next(dataset));
  must(next(dataset));
  epl_error* error = next(dataset);
  EXPECT_EQ(epl_error_code(error), EPL_ERROR_NOT_FOUND);
  EXPECT_STREQ(epl_error_message(error, nullptr), "the table has ended");
  epl_error_destroy(error);
  EXPECT_EQ(epl_dataset_position(dataset), 2);
  EXPECT_EQ(taken(epl_dataset_check(dataset, w.plan, EPL_ENTRY_TRAIN, nullptr)), EPL_ERROR_INVALID_ARGUMENT);
  epl_evaluation* evaluation = nullptr;
  must(epl_evaluation_create(w.plan, nullptr, 0, &evaluation));
  EXPECT_EQ(taken(epl_evaluation_add_dataset(evaluation, w.session, dataset, 0, nullptr)), EPL_ERROR_INVALID_ARGUMENT);
  must(epl_dataset_seek(dataset, 0));
  must(epl_evaluation_add_dataset(evaluation, w.session, dataset, 2, nullptr));
  EXPECT_EQ(epl_evaluation_samples(evaluation), 16);
  epl_evaluation_destroy(evaluation);
  epl_dataset_destroy(dataset);
}

TEST_F(HostData, WhatMakesNoDatasetIsNamed) {
  Table table;
  epl_dataset* dataset = nullptr;
  epl_tensor_info fields[] = {info("x", EPL_DTYPE_F32, {features}), info("x", EPL_DTYPE_I64, {})};
  const auto refuse = [&](int64_t count, const char* options, const char* words) {
    epl_error* error =
        epl_dataset_create(w.engine, fields, 2, count, Table::read, &table, Table::destroy, TEXT(options), &dataset);
    EXPECT_EQ(epl_error_code(error), EPL_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(epl_error_message(error, nullptr), words), nullptr) << epl_error_message(error, nullptr);
    epl_error_destroy(error);
    EXPECT_EQ(dataset, nullptr);
  };
  refuse(10, "{}", "two fields are called \"x\"");
  fields[1] = info("target", EPL_DTYPE_I64, {-3});
  refuse(10, "{}", "target");
  fields[1] = info("target", EPL_DTYPE_I64, {});
  refuse(-2, "{}", "samples is -2");
  refuse(4, "{\"batch\":8}", "8 samples");
  refuse(-1, "{\"batch\":8,\"order\":\"shuffled\"}", "how many there are");
  EXPECT_EQ(table.destroyed, 0);
}

// The pushing thread is ahead by no more than the feed holds, and the bits are those of a file in its order.
TEST_F(HostData, PushedBatchesTrainAlike) {
  Table table;
  epl_dataset *asked = open(table, "{\"batch\":8}", -1), *pushed = nullptr;
  epl_feed* feed = open_feed(2, &pushed);
  std::atomic<int64_t> ahead{0};
  table.end = 1000;
  const uint64_t expected = train(asked, 20);
  std::thread producer([&] {
    for (int64_t i = 0; i < 20; ++i) {
      must(push(feed, i));
      ++ahead;
    }
    must(epl_feed_finish(feed));
  });
  while (ahead < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ahead, 2);
  EXPECT_EQ(train(pushed, 20), expected);
  producer.join();
  epl_error* error = next(pushed);
  EXPECT_EQ(epl_error_code(error), EPL_ERROR_NOT_FOUND);
  EXPECT_NE(std::strstr(epl_error_message(error, nullptr), "after 20 batches"), nullptr)
      << epl_error_message(error, nullptr);
  epl_error_destroy(error);
  EXPECT_EQ(taken(push(feed, 20)), EPL_ERROR_MISUSE);
  epl_feed_destroy(feed);
  epl_dataset_destroy(pushed);
  epl_dataset_destroy(asked);
}

TEST_F(HostData, WaitsOfAFeedEnd) {
  epl_dataset* dataset = nullptr;
  epl_feed* feed = open_feed(1, &dataset);
  const epl_call_options soon = within(20);
  EXPECT_EQ(taken(next(dataset, &soon)), EPL_ERROR_DEADLINE_EXCEEDED);
  EXPECT_EQ(epl_dataset_position(dataset), 0);
  must(push(feed, 0));
  EXPECT_EQ(taken(push(feed, 1, &soon)), EPL_ERROR_DEADLINE_EXCEEDED);
  must(next(dataset));
  must(push(feed, 1));  // the late one was not pushed
  must(next(dataset));
  epl_cancel* cancel = nullptr;
  must(epl_cancel_create(w.engine, &cancel));
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  call.cancel = cancel;
  std::thread trigger([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    epl_cancel_trigger(cancel);
  });
  EXPECT_EQ(taken(next(dataset, &call)), EPL_ERROR_CANCELLED);
  trigger.join();
  epl_cancel_destroy(cancel);
  epl_dataset* second = nullptr;
  EXPECT_EQ(taken(epl_dataset_of_feed(feed, &second)), EPL_ERROR_MISUSE);
  // Those who wait are told that the other end is gone.
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    epl_feed_destroy(feed);
  });
  EXPECT_EQ(taken(next(dataset)), EPL_ERROR_MISUSE);
  ends.join();
  epl_dataset_destroy(dataset);

  feed = open_feed(1, &dataset);
  must(push(feed, 0));
  std::thread consumer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    epl_dataset_destroy(dataset);
  });
  EXPECT_EQ(taken(push(feed, 1)), EPL_ERROR_MISUSE);
  consumer.join();
  epl_feed_destroy(feed);
}

TEST_F(HostData, AFeedGoesOnFromACheckpoint) {
  epl_dataset* dataset = nullptr;
  epl_feed* feed = open_feed(4, &dataset);
  epl_session *session = nullptr, *second = nullptr;
  must(epl_session_create(w.plan, nullptr, nullptr, &session));
  for (int64_t i = 0; i < 3; ++i) must(push(feed, i));
  train(dataset, 3, session);
  must(epl_session_save(session, TEXT(w.checkpoint), dataset, nullptr));
  for (int64_t i = 3; i < 6; ++i) must(push(feed, i));
  const uint64_t whole = train(dataset, 2, session);
  must(epl_session_create(w.plan, nullptr, nullptr, &second));
  must(epl_session_load(second, TEXT(w.checkpoint), dataset, nullptr));  // batch 5, which waits, is dropped
  EXPECT_EQ(epl_dataset_position(dataset), 3);
  for (int64_t i = 3; i < 5; ++i) must(push(feed, i));
  EXPECT_EQ(train(dataset, 2, second), whole);
  epl_session_destroy(session);
  epl_session_destroy(second);
  epl_dataset_destroy(dataset);
  epl_feed_destroy(feed);
}

// Whoever looks for the sample in the host's data has its number, and not its row in a batch.
TEST_F(HostData, AClassOutOfRangeIsNamedByItsSample) {
  Table table;
  table.no_class_at = 41;
  const auto says_which = [](epl_error* error) {
    const std::string message = epl_error_message(error, nullptr);
    EXPECT_EQ(taken(error), EPL_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(message.find("target holds 7"), std::string::npos) << message;
    EXPECT_NE(message.find("(sample 41 of the dataset"), std::string::npos) << message;
  };
  epl_dataset* dataset = open(table, R"({"batch":8,"order":"shuffled","seed":5})");
  epl_error* error = nullptr;
  for (int i = 0; i < 60 && error == nullptr; ++i) {  // an epoch leaves two samples out
    const epl_tensor* batch[2];
    must(epl_dataset_next(dataset, nullptr, batch, 2));
    error = epl_session_step(w.session, batch, 2, nullptr, nullptr);
    if (error == nullptr) continue;
    says_which(epl_session_evaluate(w.session, batch, 2, nullptr, nullptr));
  }
  says_which(error);
  must(epl_dataset_seek(dataset, 0));
  epl_evaluation* evaluation = nullptr;
  must(epl_evaluation_create(w.plan, EPL_STR("accuracy"), &evaluation));
  epl_dataset* measured = open(table, R"({"batch":8})");
  must(epl_dataset_bind(measured, w.plan, EPL_ENTRY_EVALUATE));
  says_which(epl_evaluation_add_dataset(evaluation, w.session, measured, 6, nullptr));
  epl_evaluation_destroy(evaluation);
  epl_job* job = nullptr;
  must(epl_job_create(w.engine, EPL_STR(R"({"steps":1000,"check":false})"), &job));
  must(epl_job_start(job, w.session, dataset, nullptr, nullptr));
  for (epl_job_event event = EPL_JOB_EVENT_INIT; error = epl_job_next(job, nullptr, &event), error == nullptr;)
    ASSERT_NE(event.kind, EPL_JOB_DONE);
  says_which(error);
  epl_job_destroy(job);
  epl_dataset_destroy(measured);
  epl_dataset_destroy(dataset);
}

TEST_F(HostData, WhatIsPushedMustFit) {
  epl_dataset* dataset = nullptr;
  epl_feed* feed = open_feed(2, &dataset);
  const epl_tensor* wrong[] = {w.target, w.x};
  epl_error* error = epl_feed_push(feed, wrong, 2, nullptr);
  EXPECT_EQ(epl_error_code(error), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(epl_error_message(error, nullptr), "field x is f32[8,4]"), nullptr)
      << epl_error_message(error, nullptr);
  epl_error_destroy(error);
  EXPECT_EQ(taken(epl_feed_push(feed, wrong, 1, nullptr)), EPL_ERROR_INVALID_ARGUMENT);
  must(epl_feed_push(feed, w.inputs, 2, nullptr));
  must(next(dataset));
  epl_feed_destroy(feed);
  epl_dataset_destroy(dataset);
}

}  // namespace
