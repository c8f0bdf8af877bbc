// Mistakes planted into the calls that a training makes, a row each: a function of the pack's tables is replaced by one
// that is wrong, and the machine for tests, the session or the CPU's bits must find it. Beside each kind of training
// stands the one without a mistake.
#include <mutex>
#include <set>

#include "tests/cuda/planted_training.h"

namespace epl::planted {
namespace {

constexpr Training alone = {"cuda:0", 1, "exact", 1}, replayed = {"cuda:0", 1, "exact", 4},
                   two = {"cuda:0,1", 2, "exact", 2}, products = {"cuda:0", 1, "data", 1},
                   sums = {"cuda:0,1", 2, "run", 2}, gathers = {"cuda:0,1", 2, "exact", 2, R"("zero.level": "v2")"};

// What wrong functions remember of a training.
int calls = 0;
EventHandle an_event = nullptr;
ExecutableHandle a_graph = nullptr;
Module a_module = nullptr;
Address an_address = 0;
NcclEnd an_end = nullptr;
std::vector<char> pageable;
std::mutex functions_mutex;  // several threads load kernels
std::set<Function> multiplying;
void forget() {
  multiplying.clear();
  calls = 0, an_event = nullptr, a_graph = nullptr, a_module = nullptr, an_address = 0, an_end = nullptr;
}

bool captured(StreamHandle stream) {
  int status = 0;
  return driver.capturing(stream, &status) == 0 && status != capture_none;
}

struct Mistake {
  const char* what;
  const Training& in;
  void (*plant)();
  const char* found;  // words of the machine, of the session's error or of its log; "bits": others than without it
};

// The parameters of functions that several rows replace.
#define EPL_LAUNCH                                                                                           \
  Function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
      StreamHandle on, void **a, void **extra
#define EPL_SUM const void *from, void *to, size_t count, int type, int how, NcclEnd end, StreamHandle on
#define EPL_MULTIPLY                                                                                              \
  BlasHandle h, BlasOperation o, [[maybe_unused]] const void *alpha, const void *a, BlasLayout la, const void *b, \
      BlasLayout lb, [[maybe_unused]] const void *beta, const void *c, BlasLayout lc, void *d, BlasLayout ld,     \
      const BlasAlgorithm *how, void *w, size_t bytes, [[maybe_unused]] StreamHandle on

const Mistake mistakes[] = {
    // Streams and events.
    {"no wait for an event", two, [] { pack.driver->wait = [](StreamHandle, EventHandle, unsigned) { return 0; }; },
     "race"},
    {"an event that is never recorded", two, [] { pack.driver->record = [](EventHandle, StreamHandle) { return 0; }; },
     "race"},
    {"a wait for the wrong event", two,
     [] {
       pack.driver->wait = [](StreamHandle on, EventHandle event, unsigned flags) {
         if (an_event == nullptr) an_event = event;
         return driver.wait(on, an_event, flags);
       };
     },
     "race"},
    {"a kernel on the context's own stream", alone,
     [] {
       pack.driver->launch = [](EPL_LAUNCH) {
         return driver.launch(f, gx, gy, gz, bx, by, bz, shared, ++calls % 2 ? nullptr : on, a, extra);
       };
     },
     "that nobody has written"},
    {"a result that is short by an element", alone,
     [] {
       pack.driver->download = [](void* to, Address from, size_t bytes, StreamHandle on) {
         return driver.download(to, from, bytes > 8 ? bytes - 4 : bytes, on);
       };
     },
     "bits"},
    {"a call without a context", alone,
     [] {
       pack.driver->push = [](Context) { return 0; };
       pack.driver->pop = [](Context*) { return 0; };
     },
     "no context is current"},
    // Memory.
    {"memory that is freed too early", alone,
     [] {
       pack.driver->allocate = [](Address* memory, size_t bytes) {
         const DriverCode code = driver.allocate(memory, bytes);
         if (bytes > 1024) driver.release(*memory);
         return code;
       };
     },
     "that was freed"},
    {"memory of half the size", alone,
     [] { pack.driver->allocate = [](Address* memory, size_t bytes) { return driver.allocate(memory, bytes / 2); }; },
     "behind the end of one"},
    {"memory that is not aligned", alone,
     [] {
       pack.driver->allocate = [](Address* memory, size_t bytes) {
         const DriverCode code = driver.allocate(memory, bytes + 2);
         *memory += 2;
         return code;
       };
     },
     "not aligned"},
    {"an upload that is left out", alone,
     [] {
       pack.driver->upload = [](Address to, const void* from, size_t bytes, StreamHandle on) {
         return ++calls == 1 ? 0 : driver.upload(to, from, bytes, on);
       };
     },
     "that nobody has written"},
    {"an upload that is short by an element", alone,
     [] {
       pack.driver->upload = [](Address to, const void* from, size_t bytes, StreamHandle on) {
         return driver.upload(to, from, bytes > 8 ? bytes - 4 : bytes, on);
       };
     },
     "that nobody has written"},
    {"a copy between GPUs that is short by an element", two,
     [] {
       pack.driver->copy_between = [](Address to, Context tc, Address from, Context fc, size_t bytes, StreamHandle on) {
         return driver.copy_between(to, tc, from, fc, bytes - 4, on);
       };
     },
     "that nobody has written"},
    {"a copy that names the wrong context", two,
     [] {
       pack.driver->copy_between = [](Address to, Context tc, Address from, Context, size_t bytes, StreamHandle on) {
         return driver.copy_between(to, tc, from, tc, bytes, on);
       };
     },
     "of device"},
    {"a copy from one element further on", two,
     [] {
       pack.driver->copy_between = [](Address to, Context tc, Address from, Context fc, size_t bytes, StreamHandle on) {
         return driver.copy_between(to, tc, from + 4, fc, bytes, on);
       };
     },
     "bits"},
    // Launches.
    {"half of the threads", alone,
     [] {
       pack.driver->launch = [](EPL_LAUNCH) {
         return driver.launch(f, gx, gy, gz, bx > 64 ? bx / 2 : bx, by, bz, shared, on, a, extra);
       };
     },
     "that nobody has written"},
    {"a launch that is left out", alone,
     [] {
       pack.driver->launch = [](EPL_LAUNCH) {
         return ++calls == 3 ? 0 : driver.launch(f, gx, gy, gz, bx, by, bz, shared, on, a, extra);
       };
     },
     "that nobody has written"},
    {"a result in an operand's place", alone,
     [] {
       pack.driver->module_function = [](Function* function, Module of, const char* name) {
         const DriverCode code = driver.module_function(function, of, name);
         const std::lock_guard lock(functions_mutex);
         if (std::string_view(name) == "product") multiplying.insert(*function);
         return code;
       };
       pack.driver->launch = [](EPL_LAUNCH) {
         const std::lock_guard lock(functions_mutex);
         if (multiplying.contains(f)) std::swap(a[0], a[3]);  // product(a, b, bias, c), whose c nobody has written yet
         return driver.launch(f, gx, gy, gz, bx, by, bz, shared, on, a, extra);
       };
     },
     "that nobody has written"},
    // Recorded steps.
    {"a stale pointer in a replayed graph", replayed,
     [] {
       pack.driver->allocate = [](Address* memory, size_t bytes) {
         const DriverCode code = driver.allocate(memory, bytes);
         if (bytes > 1024) an_address = *memory;
         return code;
       };
       pack.driver->launch_graph = [](ExecutableHandle graph, StreamHandle on) {
         if (++calls == 3) driver.release(an_address);
         return driver.launch_graph(graph, on);
       };
     },
     "that was freed"},
    {"a module that is unloaded before its graph", replayed,
     [] {
       pack.driver->module_function = [](Function* function, Module of, const char* name) {
         a_module = of;
         return driver.module_function(function, of, name);
       };
       pack.driver->launch_graph = [](ExecutableHandle graph, StreamHandle on) {
         if (++calls == 3) driver.unload_module(a_module);
         return driver.launch_graph(graph, on);
       };
     },
     "cuGraphLaunch gave CUDA_ERROR_INVALID_HANDLE"},
    {"the graph of another part", replayed,
     [] {
       pack.driver->launch_graph = [](ExecutableHandle graph, StreamHandle on) {
         if (a_graph == nullptr) a_graph = graph;
         return driver.launch_graph(a_graph, on);
       };
     },
     "bits"},
    {"a graph that is launched twice", replayed,
     [] {
       pack.driver->launch_graph = [](ExecutableHandle graph, StreamHandle on) {
         driver.launch_graph(graph, on);
         return driver.launch_graph(graph, on);
       };
     },
     "bits"},
    {"the numbers of the step before", replayed,
     [] {
       pack.driver->launch_graph = [](ExecutableHandle graph, StreamHandle on) {
         ++calls;
         return driver.launch_graph(graph, on);
       };
       pack.driver->upload = [](Address to, const void* from, size_t bytes, StreamHandle on) {
         return calls > 1 ? 0 : driver.upload(to, from, bytes, on);
       };
     },
     "bits"},
    {"a wait of the host in a recording", replayed,
     [] {
       pack.driver->launch = [](EPL_LAUNCH) {
         if (captured(on)) driver.synchronize(on);
         return driver.launch(f, gx, gy, gz, bx, by, bz, shared, on, a, extra);
       };
     },
     "STREAM_CAPTURE"},
    {"an allocation in a recording", replayed,
     [] {
       pack.driver->launch = [](EPL_LAUNCH) {
         Address memory = 0;
         if (captured(on)) driver.allocate(&memory, 16);
         return driver.launch(f, gx, gy, gz, bx, by, bz, shared, on, a, extra);
       };
     },
     "STREAM_CAPTURE"},
    {"memory in a recording that is not pinned", replayed,
     [] {
       pack.driver->upload = [](Address to, const void* from, size_t bytes, StreamHandle on) {
         pageable.assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
         return driver.upload(to, pageable.data(), bytes, on);
       };
     },
     "STREAM_CAPTURE"},
    {"the context's own stream is recorded", replayed,
     [] { pack.driver->begin_capture = [](StreamHandle, int mode) { return driver.begin_capture(nullptr, mode); }; },
     "STREAM_CAPTURE"},
    // Products of cuBLASLt.
    {"a leading dimension of the other size", products,
     [] {
       pack.blas->create_layout = [](BlasLayout* layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
         return blas.create_layout(layout, type, rows, columns, rows == uint64_t(leading) ? leading - 1 : leading);
       };
     },
     "leading dimension"},
    {"a transposition that is left out", products,
     [] {
       pack.blas->set_operation = [](BlasOperation o, int attribute, const void* value, size_t bytes) {
         if (attribute == operation_transpose_a || attribute == operation_transpose_b) return 0;
         return blas.set_operation(o, attribute, value, bytes);
       };
     },
     "to sum over"},
    {"an epilogue without its operand", products,
     [] {
       pack.blas->set_operation = [](BlasOperation o, int attribute, const void* value, size_t bytes) {
         const uint32_t bias = blas_epilogue_bias;
         return blas.set_operation(o, attribute, attribute == operation_epilogue ? &bias : value, bytes);
       };
     },
     "a bias and no bias"},
    {"a scale of another type", products,
     [] {
       pack.blas->create_operation = [](BlasOperation* o, int compute, int) {
         return blas.create_operation(o, compute, blas_f16);
       };
     },
     "alpha and beta that are not float32"},
    {"operands of another type", products,
     [] {
       pack.blas->create_layout = [](BlasLayout* layout, int, uint64_t rows, uint64_t columns, int64_t leading) {
         return blas.create_layout(layout, blas_bf16, rows, columns, leading);
       };
     },
     "not float32"},
    {"what was there before is added", products,
     [] {
       pack.blas->multiply = [](EPL_MULTIPLY) {
         return blas.multiply(h, o, alpha, a, la, b, lb, alpha, c, lc, d, ld, how, w, bytes, on);
       };
     },
     "that nobody has written"},
    {"a product on the context's own stream", products,
     [] {
       pack.blas->multiply = [](EPL_MULTIPLY) {
         return blas.multiply(h, o, alpha, a, la, b, lb, beta, c, lc, d, ld, how, w, bytes, nullptr);
       };
     },
     "that nobody has written"},
    {"a scale in the memory of the device", products,
     [] {
       pack.blas->multiply = [](EPL_MULTIPLY) {
         return blas.multiply(h, o, a, a, la, b, lb, beta, c, lc, d, ld, how, w, bytes, on);
       };
     },
     "an address of a device"},
    // Sums and copies of NCCL.
    {"counts that differ between ranks", sums,
     [] {
       pack.nccl->all_reduce = [](EPL_SUM) {
         return nccl.all_reduce(from, to, count - ++calls % 2, type, how, end, on);
       };
     },
     "calls ncclAllReduce of"},
    {"types that differ between ranks", sums,
     [] {
       pack.nccl->all_reduce = [](EPL_SUM) {
         return nccl.all_reduce(from, to, count, ++calls % 2 ? type : nccl_bf16, how, end, on);
       };
     },
     "calls ncclAllReduce of"},
    {"another collective on one rank", sums,
     [] {
       pack.nccl->all_reduce = [](EPL_SUM) {
         return ++calls % 2 ? nccl.all_reduce(from, to, count, type, how, end, on)
                            : nccl.all_gather(from, to, count, type, end, on);
       };
     },
     "calls ncclAllGather of"},
    {"a rank that makes no call", sums,
     [] {
       pack.nccl->all_reduce = [](EPL_SUM) {
         return ++calls % 2 ? nccl.all_reduce(from, to, count, type, how, end, on) : 0;
       };
     },
     "wait for it for ever"},
    {"calls that are not of one group", sums,
     [] {
       pack.nccl->group_start = [] { return 0; };
       pack.nccl->group_end = [] { return 0; };
     },
     "wait for it for ever"},
    {"the type of a sum", sums,
     [] {
       pack.nccl->all_reduce = [](EPL_SUM) {
         return nccl.all_reduce(from, to, count, type == nccl_f32 ? nccl_i64 : type, how, end, on);
       };
     },
     "that nobody has written"},
    {"the end of another rank", gathers,
     [] {
       pack.nccl->all_gather = [](const void* from, void* to, size_t count, int type, NcclEnd end, StreamHandle on) {
         std::swap(an_end, end);
         if (end == nullptr) return 0;
         return nccl.all_gather(from, to, count, type, end, on);
       };
     },
     "rank 1 of 2 makes no call"},
    {"a part that is short by an element", gathers,
     [] {
       pack.nccl->all_gather = [](const void* from, void* to, size_t count, int type, NcclEnd end, StreamHandle on) {
         return nccl.all_gather(from, to, count - 4, type, end, on);
       };
     },
     "that nobody has written"},
};

using PlantedInCalls = PlantedTraining;
TEST_F(PlantedInCalls, AreFound) {
  std::map<const Training*, Outcome> right;
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.what);
    if (!right.contains(&mistake.in)) {
      right[&mistake.in] = outcome(mistake.in, nullptr);
      EXPECT_EQ(right[&mistake.in].found, "") << "as it is";
    }
    forget();
    const Outcome wrong = outcome(mistake.in, mistake.plant);
    if (std::string_view(mistake.found) == "bits") {
      EXPECT_FALSE(same(wrong, right[&mistake.in]));
    } else {
      EXPECT_NE(wrong.found.find(mistake.found), std::string::npos) << "found: " << wrong.found;
    }
  }
}

}  // namespace
}  // namespace epl::planted
