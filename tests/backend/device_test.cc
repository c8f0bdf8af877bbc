// What memory, streams and events of every backend mean.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/backend/conformance.h"

namespace epl::device_test {
namespace {

TEST_P(Backend, says_what_it_is) { EXPECT_FALSE(device->description().empty()); }

TEST_P(Backend, memory_is_aligned_and_its_own) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (int64_t bytes : {1, 63, 64, 65, 1000, 4096}) {
    buffers.push_back(buffer(bytes));
    ASSERT_NE(buffers.back(), nullptr);
    EXPECT_EQ(buffers.back()->bytes(), bytes);
    EXPECT_NE(buffers.back()->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back()->data()) % 64, 0u);
  }
  for (auto& a : buffers) {
    for (auto& b : buffers) {
      if (a == b) continue;
      auto from = reinterpret_cast<uintptr_t>(a->data()), other = reinterpret_cast<uintptr_t>(b->data());
      EXPECT_TRUE(from + a->bytes() <= other || other + b->bytes() <= from);
    }
  }
}

TEST_P(Backend, no_bytes_are_a_buffer_too) {
  auto empty = buffer(0);
  ASSERT_NE(empty, nullptr);
  EXPECT_EQ(empty->bytes(), 0);
  EXPECT_NE(empty->data(), nullptr);
}

TEST_P(Backend, memory_goes_back_to_the_host) {
  {
    auto a = buffer(1 << 16);
    auto b = buffer(100);
    device.reset();  // buffers may outlive their device
  }
  EXPECT_EQ(memory.bytes, 0);
}

TEST_P(Backend, too_much_memory_is_an_error_with_the_numbers) {
  memory.limit = 1 << 20;
  auto held = buffer(1000);
  auto refused = device->allocate(INT64_MAX);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::out_of_memory);
  EXPECT_NE(refused.status().message().find("9,223,372,036,854,775,807"), std::string::npos)
      << refused.status().message();
  EXPECT_NE(refused.status().message().find("1,024"), std::string::npos) << refused.status().message();
  EXPECT_EQ(device->allocate(-1).status().code(), Code::invalid_argument);
}

TEST_P(Backend, a_stream_needs_a_thread) {
  EXPECT_EQ(device->create_stream(0).status().code(), Code::invalid_argument);
  EXPECT_EQ(device->create_stream(-3).status().code(), Code::invalid_argument);
}

TEST_P(Backend, commands_run_in_order) {
  auto queue = stream(2);
  const int64_t bytes = 3 << 20;
  auto a = buffer(bytes), b = buffer(bytes);
  std::vector<uint8_t> sent(bytes), back(bytes, 7);
  std::iota(sent.begin(), sent.end(), uint8_t{0});
  queue->upload(a->data(), sent.data(), bytes);
  queue->fill(b->data(), bytes, 0x5a);
  queue->copy(b->data(), a->data(), bytes - 1);
  queue->fill(a->data(), bytes, 0);
  queue->download(back.data(), b->data(), bytes);
  ASSERT_TRUE(queue->synchronize().ok());
  if (!device->executes()) {
    EXPECT_EQ(back, std::vector<uint8_t>(bytes, 7)) << "a device that does not compute writes to no host memory either";
    return;
  }
  EXPECT_EQ(back.back(), 0x5a);
  back.back() = sent.back();
  EXPECT_EQ(back, sent);
}

TEST_P(Backend, rows_are_copied_between_larger_ones) {
  auto queue = stream(2);
  const int64_t rows = 900, bytes = 600, from = 1000, to = 700;  // several tasks of threads
  auto a = buffer(rows * from), b = buffer(rows * to);
  std::vector<uint8_t> sent(rows * from), back(rows * to, 7);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 31 + i / 1000);
  queue->upload(a->data(), sent.data(), rows * from);
  queue->fill(b->data(), rows * to, 0x5a);
  auto* source = static_cast<uint8_t*>(a->data());
  auto* target = static_cast<uint8_t*>(b->data());
  queue->copy_rows({target + 50, to, source + 300, from, bytes, rows});
  queue->copy_rows({target, to, source, 0, 20, rows});  // one row to many places
  queue->copy_rows({target, to, source, from, 0, rows});
  queue->copy_rows({target, to, source, from, bytes, 0});
  queue->download(back.data(), b->data(), rows * to);
  ASSERT_TRUE(queue->synchronize().ok());
  if (!device->executes()) return;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < to; ++i) {
      const uint8_t want = i < 20 ? sent[i] : i >= 50 && i < 650 ? sent[r * from + 300 + i - 50] : 0x5a;
      ASSERT_EQ(back[r * to + i], want) << r << " " << i;
    }
  }
}

TEST_P(Backend, commands_of_no_bytes_do_nothing) {
  auto queue = stream();
  auto a = buffer(0), b = buffer(0);
  uint8_t host = 42;
  queue->upload(a->data(), &host, 0);
  queue->copy(b->data(), a->data(), 0);
  queue->fill(b->data(), 0, 1);
  queue->download(&host, b->data(), 0);
  EXPECT_TRUE(queue->synchronize().ok());
  EXPECT_EQ(host, 42);
}

TEST_P(Backend, an_event_orders_streams) {
  if (!device->executes()) return;  // computes nothing; its time is tested in sim_test
  auto data = buffer(4096);
  auto writer = stream(), reader = stream();
  auto written = device->create_event();
  reader->wait(*written);  // never recorded: does not wait
  std::vector<uint8_t> back(4096);
  std::atomic<bool> issued{false};
  std::thread other([&] {
    writer->fill(data->data(), 4096, 9);
    writer->record(*written);
    issued = true;
  });
  while (!issued) std::this_thread::yield();
  reader->wait(*written);
  reader->download(back.data(), data->data(), 4096);
  ASSERT_TRUE(reader->synchronize().ok());
  other.join();
  EXPECT_EQ(back, std::vector<uint8_t>(4096, 9));
}

// Doubles every element, in tasks, and says which threads there were.
void double_elements(const KernelCall& call) {
  const float* x = call.in<float>(0);
  float* y = call.out<float>(0);
  *static_cast<int*>(call.workspace) = call.threads().size();
  call.threads().run_ranges(call.query.in(0).elements(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = 2 * x[i] + static_cast<float>(call.context.step);
  });
}

TEST_P(Backend, stamps_are_times_in_the_order_of_the_stream) {
  const auto memory_of_it = buffer(1 << 16);
  const auto on = stream(), another = stream();
  double seconds[4] = {-1, -1, -1, -1};
  if (!on->stamps()) GTEST_SKIP() << "the host tells the time";
  on->stamps()->stamp(&seconds[0]);
  on->fill(memory_of_it->data(), 1 << 16, 7);
  on->stamps()->stamp(&seconds[1]);
  ASSERT_TRUE(on->synchronize().ok());
  auto event = device->create_event();
  on->record(*event);
  another->wait(*event);
  another->stamps()->stamp(&seconds[2]);
  ASSERT_TRUE(another->synchronize().ok());
  on->stamps()->stamp(&seconds[3]);
  ASSERT_TRUE(on->synchronize().ok());
  EXPECT_GE(seconds[0], 0);
  EXPECT_LT(seconds[0], seconds[1]);
  EXPECT_LE(seconds[1], seconds[2] + 1e-4);  // what a float32 of milliseconds loses between streams
  EXPECT_LE(seconds[1], seconds[3]);
}

TEST_P(Backend, what_is_recorded_is_carried_out_when_it_is_replayed) {
  const auto on = stream(), beside = stream();
  StreamRecorder* const recorder = on->recorder();
  EXPECT_EQ(recorder != nullptr, device->records());
  if (recorder == nullptr) GTEST_SKIP() << "every command is given anew";
  constexpr int64_t bytes = 4096;
  const auto one = buffer(bytes), other = buffer(bytes);
  const auto sent = recorder->allocate_staging(bytes), back = recorder->allocate_staging(bytes);
  ASSERT_TRUE(sent.ok() && back.ok()) << sent.status().to_string() << back.status().to_string();
  const auto part = device->create_event(), meet = device->create_event();
  ASSERT_TRUE(recorder->begin().ok());
  on->upload(one->data(), (*sent)->data(), bytes);
  on->record(*part);
  beside->wait(*part);
  beside->copy(other->data(), one->data(), bytes);
  beside->fill(other->data(), bytes / 2, 9);
  beside->record(*meet);
  on->wait(*meet);
  on->download((*back)->data(), other->data(), bytes);
  auto recording = recorder->end();
  ASSERT_TRUE(recording.ok()) << recording.status().to_string();
  auto* const got = static_cast<uint8_t*>((*back)->data());
  for (const uint8_t value : {3, 4, 5}) {
    std::memset((*sent)->data(), value, bytes);
    std::memset(got, 0, bytes);
    recorder->replay(**recording);
    ASSERT_TRUE(on->synchronize().ok());
    EXPECT_TRUE(std::all_of(got, got + bytes / 2, [](uint8_t byte) { return byte == 9; })) << int{value};
    EXPECT_TRUE(std::all_of(got + bytes / 2, got + bytes, [&](uint8_t byte) { return byte == value; })) << int{value};
  }
}

// A stream whose recording has failed is as it was.
TEST_P(Backend, a_recording_that_fails_leaves_its_stream) {
  const auto on = stream(), beside = stream();
  StreamRecorder* const recorder = on->recorder();
  if (recorder == nullptr) GTEST_SKIP() << "every command is given anew";
  const auto data = buffer(64);
  const auto part = device->create_event();
  ASSERT_TRUE(recorder->begin().ok());
  on->fill(data->data(), 64, 1);
  on->record(*part);
  beside->wait(*part);
  beside->fill(data->data(), 64, 2);
  EXPECT_FALSE(recorder->end().ok()) << "the stream beside it is not waited for";
  ASSERT_TRUE(beside->synchronize().ok());
  std::vector<uint8_t> back(64);
  on->fill(data->data(), 64, 7);
  on->download(back.data(), data->data(), 64);
  ASSERT_TRUE(on->synchronize().ok());
  EXPECT_EQ(back, std::vector<uint8_t>(64, 7));
}

TEST_P(Backend, a_kernel_gets_what_it_was_launched_with) {
  if (GetParam() == "cuda") GTEST_SKIP() << "the kernel of this test runs on the host";
  KernelRow row{.op = "double", .name = "double", .launch = double_elements};
  KernelQuery query{.op = "double",
                    .input_types = {{DType::f32, {100}}},
                    .output_types = {{DType::f32, {100}}},
                    .input_present = {true},
                    .output_present = {true},
                    .flops = 100,
                    .bytes = 800};
  auto queue = stream(3);
  auto x = buffer(400), y = buffer(400), workspace = buffer(64);
  std::vector<float> host(100, 1.5f);
  queue->upload(x->data(), host.data(), 400);
  const void* inputs[] = {x->data()};
  void* outputs[] = {y->data()};
  StepContext context{.seed = 1, .step = 4};
  queue->launch(row, query, nullptr, inputs, outputs, workspace->data(), context);
  queue->download(host.data(), y->data(), 400);
  ASSERT_TRUE(queue->synchronize().ok());
  if (!device->executes()) {
    EXPECT_EQ(host, std::vector<float>(100, 1.5f));
    return;
  }
  EXPECT_EQ(host, std::vector<float>(100, 7.0f));
  int threads = 0;
  queue->download(&threads, workspace->data(), sizeof threads);
  ASSERT_TRUE(queue->synchronize().ok());
  EXPECT_EQ(threads, 3);
}

INSTANTIATE_TEST_SUITE_P(, Backend, testing::ValuesIn(backend_names()), [](const auto& info) { return info.param; });

TEST(Backends, an_unknown_name_lists_those_there_are) {
  TestHost memory;
  auto opened = open_device("gpu", memory.host());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::not_found);
  for (const std::string& name : backend_names()) EXPECT_NE(opened.status().message().find(name), std::string::npos);
}

}  // namespace
}  // namespace epl::device_test
