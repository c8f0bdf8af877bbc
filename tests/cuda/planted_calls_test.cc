// Mistakes planted into the calls that a training makes, a row each: a function of the pack's tables is replaced by one
// that is wrong, and the machine for tests, the session or the CPU's bits must find it. Beside each kind of training
// stands the one without a mistake.
#include "tests/cuda/planted_training.h"

namespace epl::planted {
namespace {

constexpr Training alone = {"cuda:0", 1, "exact", 1}, replayed = {"cuda:0", 1, "exact", 4},
                   two = {"cuda:0,1", 2, "exact", 2}, products = {"cuda:0", 1, "data", 1},
                   sums = {"cuda:0,1", 2, "run", 2}, gathers = {"cuda:0,1", 2, "exact", 2, R"("zero.level": "v2")"},
                   convolutions = {"cuda:0", 1, "run", 1, "", small_convolution};

// What wrong functions remember of a training.
int calls = 0;
EventHandle an_event = nullptr;
ExecutableHandle a_graph = nullptr;
Module a_module = nullptr;
Address an_address = 0;
NcclEnd an_end = nullptr;
std::vector<char> pageable;
void forget() {
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

#define EPL_SET DnnDescriptor d, int attribute, int type, int64_t count, const void *values

constexpr int32_t a_narrow_type = dnn_bf16;
constexpr float a_one = 1;

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
    {"two operands in each other's place", alone,
     [] {
       pack.driver->launch = [](EPL_LAUNCH) {
         if (a[1] != nullptr) std::swap(a[0], a[1]);
         return driver.launch(f, gx, gy, gz, bx, by, bz, shared, on, a, extra);
       };
     },
     "cuda"},
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
    // Convolutions of cuDNN. Where a descriptor is refused the own kernels go on, so these are found by what is said.
    {"strides of another layout", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         const int64_t other[] = {1, 2, 3, 4};
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_tensor_strides ? other : values);
       };
     },
     "no dense tensor"},
    {"paddings on one side alone", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         const int64_t none[] = {0, 0};
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_convolution_pads_behind ? none : values);
       };
     },
     "of y should be"},
    {"a compute type of the operands", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         return dnn.set_attribute(d, attribute, type, count,
                                  attribute == dnn_convolution_type ? &a_narrow_type : values);
       };
     },
     "sums that are not float32"},
    {"an integer of four bytes", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         return dnn.set_attribute(d, attribute, attribute == dnn_tensor_id ? dnn_as_type : type, count, values);
       };
     },
     "TENSOR_UNIQUE_ID has type 3 and is given type 1"},
    {"a tensor that is not finalized", convolutions,
     [] { pack.dnn->finalize = [](DnnDescriptor d) { return ++calls == 1 ? 0 : dnn.finalize(d); }; },
     "given a descriptor that is not finalized"},
    {"an attribute that is left out", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         return attribute == dnn_forward_beta ? 0 : dnn.set_attribute(d, attribute, type, count, values);
       };
     },
     "CONVOLUTION_FORWARD_BETA is not set"},
    {"pointers in each other's place", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         const int64_t swapped[] = {2, 1, 3};
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_pack_ids ? swapped : values);
       };
     },
     "cuda"},
    {"an identifier that is there twice", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         const int64_t twice[] = {1, 2, 2};
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_pack_ids ? twice : values);
       };
     },
     "is there twice in a pack"},
    {"a workspace that is not aligned", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         if (attribute != dnn_pack_workspace) return dnn.set_attribute(d, attribute, type, count, values);
         const uint64_t off = *static_cast<const uint64_t*>(values) + 64;
         return dnn.set_attribute(d, attribute, type, count, &off);
       };
     },
     "not aligned to 256 bytes"},
    {"what was there before is added to a convolution", convolutions,
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_forward_beta ? &a_one : values);
       };
     },
     "that nobody has written"},
    {"a convolution on the context's own stream", convolutions,
     [] { pack.dnn->set_stream = [](DnnHandle handle, StreamHandle) { return dnn.set_stream(handle, nullptr); }; },
     "that nobody has written"},
    {"engines with fewer bits", convolutions,
     [] {
       pack.dnn->get_attribute = [](DnnDescriptor d, int attribute, int type, int64_t wanted, int64_t* count,
                                    void* to) {
         const DnnCode code = dnn.get_attribute(d, attribute, type, wanted, count, to);
         if (attribute == dnn_engine_notes) *count = 0;
         return code;
       };
     },
     "bits"},
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
     "NCCL"},
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

// Without cuDNN, or with one that does not begin, the own kernels go on: with other bits, and nothing is an error.
TEST_F(PlantedInCalls, WithoutCudnnTheOwnKernelsGoOn) {
  const Outcome with = outcome(convolutions, nullptr),
                without =
                    outcome(convolutions, [] { pack.dnn->create = [](DnnHandle*) { return dnn_not_initialized; }; });
  ASSERT_EQ(with.losses.size(), 1u) << with.found;
  ASSERT_EQ(without.losses.size(), 1u) << without.found;
  EXPECT_NEAR(with.losses[0], without.losses[0], 1e-4);
}

}  // namespace
}  // namespace epl::planted
