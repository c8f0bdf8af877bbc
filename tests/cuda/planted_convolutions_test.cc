// Mistakes planted into the calls of cuDNN that a training with convolutions makes, as those of planted_calls_test.cc.
// Where a descriptor is refused the kernels of EPL go on, so that these are found by what the library has said.
#include "tests/cuda/planted_training.h"

namespace epl::planted {
namespace {

// Samples of twelve numbers as images of two channels.
constexpr std::string_view small_convolution = R"(graph cnn(x: f32[8,12] batch 0) {
  w1: f32[4,2,2,2] = param
  b1: f32[4] = param
  w2: f32[4,4,2,2] = param
  w3: f32[12,4] = param
  forward:
  i: f32[8,2,2,3] = reshape(x) {shape=[8,2,2,3]}
  h: f32[8,4,3,4] = conv(i, w1, b1) {pads=[1,1,1,1]}
  a: f32[8,4,3,4] = relu(h)
  g: f32[8,4,1,3] = conv(a, w2) {strides=[2,1]}
  f: f32[8,12] = reshape(g) {shape=[8,12]}
  y: f32[8,4] = matmul(f, w3)
  output y = y
}
)";
constexpr Training convolutions = {"cuda:0", 1, "run", 1, "", small_convolution};

int finalized = 0;
constexpr int32_t a_narrow_type = dnn_bf16;
constexpr float a_one = 1;

struct DnnMistake {
  const char* what;
  void (*plant)();
  const char* found;  // words of the machine or of the session's error; "bits": others than without it
};

#define EPL_SET DnnDescriptor d, int attribute, int type, int64_t count, const void *values

const DnnMistake dnn_mistakes[] = {
    {"strides of another layout",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         const int64_t other[] = {1, 2, 3, 4};
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_tensor_strides ? other : values);
       };
     },
     "no dense tensor"},
    {"paddings on one side alone",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         const int64_t none[] = {0, 0};
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_convolution_pads_behind ? none : values);
       };
     },
     "of y should be"},
    {"a compute type of the operands",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         return dnn.set_attribute(d, attribute, type, count,
                                  attribute == dnn_convolution_type ? &a_narrow_type : values);
       };
     },
     "sums that are not float32"},
    {"an integer of four bytes",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         return dnn.set_attribute(d, attribute, attribute == dnn_tensor_id ? dnn_as_type : type, count, values);
       };
     },
     "TENSOR_UNIQUE_ID has type 3 and is given type 1"},
    {"a tensor that is not finalized",
     [] { pack.dnn->finalize = [](DnnDescriptor d) { return ++finalized == 1 ? 0 : dnn.finalize(d); }; },
     "given a descriptor that is not finalized"},
    {"an attribute that is left out",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         return attribute == dnn_forward_beta ? 0 : dnn.set_attribute(d, attribute, type, count, values);
       };
     },
     "CONVOLUTION_FORWARD_BETA is not set"},
    {"pointers in each other's place",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         const int64_t swapped[] = {2, 1, 3};
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_pack_ids ? swapped : values);
       };
     },
     "bits"},
    {"an identifier that is there twice",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         const int64_t twice[] = {1, 2, 2};
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_pack_ids ? twice : values);
       };
     },
     "is there twice in a pack"},
    {"a workspace that is not aligned",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         if (attribute != dnn_pack_workspace) return dnn.set_attribute(d, attribute, type, count, values);
         const uint64_t off = *static_cast<const uint64_t*>(values) + 64;
         return dnn.set_attribute(d, attribute, type, count, &off);
       };
     },
     "not aligned to 256 bytes"},
    {"what was there before is added to a convolution",
     [] {
       pack.dnn->set_attribute = [](EPL_SET) {
         return dnn.set_attribute(d, attribute, type, count, attribute == dnn_forward_beta ? &a_one : values);
       };
     },
     "bits"},
    {"a convolution on the context's own stream",
     [] { pack.dnn->set_stream = [](DnnHandle handle, StreamHandle) { return dnn.set_stream(handle, nullptr); }; },
     "that nobody has written"},
    {"engines with fewer bits",
     [] {
       pack.dnn->get_attribute = [](DnnDescriptor d, int attribute, int type, int64_t wanted, int64_t* count,
                                    void* to) {
         const DnnCode code = dnn.get_attribute(d, attribute, type, wanted, count, to);
         if (attribute == dnn_engine_notes) *count = 0;
         return code;
       };
     },
     "bits"},
};

using PlantedInConvolutions = PlantedTraining;
TEST_F(PlantedInConvolutions, AreFound) {
  const Outcome right = outcome(convolutions, nullptr);
  ASSERT_EQ(right.found, "") << "as it is";
  ASSERT_EQ(right.losses.size(), 1u);
  for (const DnnMistake& mistake : dnn_mistakes) {
    SCOPED_TRACE(mistake.what);
    finalized = 0;
    const Outcome wrong = outcome(convolutions, mistake.plant);
    if (std::string_view(mistake.found) == "bits") {
      EXPECT_FALSE(same(wrong, right));
    } else {
      EXPECT_NE(wrong.found.find(mistake.found), std::string::npos) << "found: " << wrong.found;
    }
  }
}

// With a cuDNN that does not begin the kernels of EPL go on: with other bits, and nothing is an error.
TEST_F(PlantedInConvolutions, WithoutTheLibraryTheOwnKernelsGoOn) {
  const Outcome with = outcome(convolutions, nullptr),
                without =
                    outcome(convolutions, [] { pack.dnn->create = [](DnnHandle*) { return dnn_not_initialized; }; });
  ASSERT_EQ(with.losses.size(), 1u) << with.found;
  ASSERT_EQ(without.losses.size(), 1u) << without.found;
  EXPECT_NEAR(with.losses[0], without.losses[0], 1e-4);
}

}  // namespace
}  // namespace epl::planted
