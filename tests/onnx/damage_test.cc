// Files that are damaged, contradict themselves or mean harm: each is an error that names the place, and none a crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace epl::onnx::damage_test {
namespace {

namespace fs = std::filesystem;
using testing::attribute;
using testing::import;
using testing::load;
using testing::Names;
using testing::node;
using testing::port;

constexpr int32_t f32 = schema::TensorProto::DataType_FLOAT;

// y = function(x w), with everything a file may have: an initialiser, a function with an attribute, a branch.
std::string valid_model() {
  testing::Parts branch{.nodes = {node("Relu", {"h"}, {"b"})}, .outputs = {port("b", {"n", "3"})}};
  epl::Tensor yes(TensorType{DType::boolean, {}});
  yes.set_int(0, 1);
  testing::Parts parts;
  parts.nodes = {node("MatMul", {"x", "layer.w"}, {"h"}),
                 node("If", {"yes"}, {"r"},
                      {testing::subgraph("then_branch", testing::graph(branch)),
                       testing::subgraph("else_branch", testing::graph(branch))}),
                 node("Scaled", {"r"}, {"y"}, {attribute("alpha", 0.5f)}, "own")};
  parts.initializers = {testing::tensor("layer.w", epl::Tensor::from_floats({2, 3}, {1, 2, 3, 4, 5, 6})),
                        testing::tensor("yes", yes)};
  parts.inputs = {port("x", {"n", "2"})};
  parts.outputs = {port("y", {"n", "3"})};
  auto scaled = testing::function("Scaled", {"a"}, {"c"},
                                  {node("LeakyRelu", {"a"}, {"c"}, {testing::reference("alpha", "alpha")})}, {"alpha"});
  return testing::model(parts, {scaled});
}

// The error must be there, and say `what` and name `where` somewhere.
template <class T>
void expect_refused(const Result<T>& result, const std::string& what, const std::string& where = "") {
  if (result.ok()) ADD_FAILURE() << "accepted; expected: " << what << " " << where;
  if (result.ok()) return;
  const std::string text = result.status().to_string();
  EXPECT_NE(text.find(what), std::string::npos) << text;
  EXPECT_NE(text.find(where), std::string::npos) << text;
  EXPECT_NE(result.status().code(), Code::internal) << text;
}

// A model of one node, x[n,2] -> y.
std::string of(const std::vector<std::string>& nodes, const std::vector<std::string>& initializers = {}) {
  return testing::model({.nodes = nodes,
                         .initializers = initializers,
                         .inputs = {port("x", {"n", "2"})},
                         .outputs = {port("y", {"n", "2"})}});
}

std::string ints(const std::string& name, const Ints& values) {
  return testing::tensor(name, epl::Tensor::from_ints(values));
}

TEST(Hostile, TheModelThatIsDamagedBelowIsSound) {
  auto graph = import(valid_model());
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->node_count(), 3);
}

TEST(Hostile, TruncatedAtEveryByte) {
  const std::string bytes = valid_model();
  const size_t graph_at = bytes.rfind("\x0a\x01g") - 3;  // inside the graph's message from here on
  for (size_t length = 0; length < bytes.size(); ++length) {
    auto model = load(bytes.substr(0, length));
    ASSERT_FALSE(model.ok()) << "cut at " << length;
    EXPECT_FALSE(model.status().message().empty());
    EXPECT_NE(model.status().code(), Code::internal) << model.status().to_string();
    if (length > graph_at) {
      EXPECT_TRUE(model.status().where().starts_with("byte ")) << length << ": " << model.status().to_string();
    }
  }
}

TEST(Hostile, EveryByteReplaced) {
  const std::string bytes = valid_model();
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int value : {0x00, 0x01, 0x7f, 0x80, 0xff, bytes[at] ^ 0x08, bytes[at] ^ 0x02}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(value);
      auto graph = import(damaged);
      if (graph.ok()) continue;
      ++refused;
      EXPECT_NE(graph.status().code(), Code::internal)
          << "byte " << at << " as " << value << ": " << graph.status().to_string();
      for (const char* word : {"pbf", "exception"})  // the words of what reads the bytes
        EXPECT_EQ(graph.status().message().find(word), std::string::npos) << graph.status().to_string();
      EXPECT_FALSE(graph.status().message().empty());
    }
  }
  EXPECT_GT(refused, static_cast<int>(bytes.size()));
}

TEST(Hostile, ValuesDefinedNeverTwiceOrInACircle) {
  expect_refused(load(of({node("Relu", {"z"}, {"y"})})), "\"z\"", "node_y");
  expect_refused(load(of({node("Add", {"x", "b"}, {"a"}), node("Relu", {"a"}, {"b"}), node("Relu", {"b"}, {"y"})})),
                 "cycle", "node_a");
  expect_refused(load(of({node("Relu", {"x"}, {"y"}), node("Tanh", {"x"}, {"y"})})), "second time", "node_y");
  expect_refused(load(of({node("Relu", {"x"}, {"x"}), node("Relu", {"x"}, {"y"})})), "second time", "node_x");
  expect_refused(load(of({node("Relu", {"x"}, {"y"})}, {ints("k", {1}), ints("k", {2})})), "\"k\"");
  expect_refused(import(of({node("Relu", {"x"}, {"q"})})), "\"y\"");
}

TEST(Hostile, ImpossibleTensors) {
  auto with = [](const std::string& tensor) { return of({node("Relu", {"x"}, {"y"})}, {tensor}); };
  const Ints overflowing = {int64_t{1} << 40, int64_t{1} << 40};
  expect_refused(load(with(testing::raw_tensor("w", f32, overflowing, ""))), "impossible dimensions", "\"w\"");
  expect_refused(load(with(testing::raw_tensor("w", f32, {-2, 3}, ""))), "impossible dimensions", "\"w\"");
  expect_refused(import(with(testing::raw_tensor("w", f32, {int64_t{1} << 40}, "abcd"))), "4 bytes", "\"w\"");
  expect_refused(import(with(testing::raw_tensor("w", f32, {2}, "abcd"))), "4 bytes", "\"w\"");
  expect_refused(load(with(testing::raw_tensor("w", 8, {1}, ""))), "string", "\"w\"");
  expect_refused(load(with(testing::raw_tensor("w", 99, {1}, ""))), "99", "\"w\"");
}

// A tensor of one number in a field of its own, not packed unless `packed`.
template <class T> std::string typed_tensor(int32_t type, uint32_t field, T value, bool packed) {
  std::string out;
  protozero::pbf_writer w(out);
  w.add_int64(schema::TensorProto::dims, 1);
  w.add_int32(schema::TensorProto::data_type, type);
  w.add_string(schema::TensorProto::name, "w");
  if constexpr (std::is_same_v<T, float>) {
    packed ? w.add_packed_float(field, &value, &value + 1) : w.add_float(field, value);
  } else if constexpr (std::is_same_v<T, double>) {
    packed ? w.add_packed_double(field, &value, &value + 1) : w.add_double(field, value);
  } else {
    packed ? w.add_packed_int64(field, &value, &value + 1) : w.add_int64(field, value);
  }
  return out;
}

TEST(Hostile, NumbersOfAnotherKind) {
  namespace t = schema::TensorProto;
  auto with = [](const std::string& tensor) {
    return of({node("Cast", {"w"}, {"v"}, {attribute("to", int64_t{f32})}), node("Add", {"x", "v"}, {"y"})}, {tensor});
  };
  for (bool packed : {false, true}) {
    expect_refused(import(with(typed_tensor(t::DataType_INT8, t::float_data, -7e19f, packed))), "real numbers",
                   "\"w\"");
    expect_refused(import(with(typed_tensor(t::DataType_INT64, t::double_data, 1e300, packed))), "real numbers",
                   "\"w\"");
    expect_refused(import(with(typed_tensor(t::DataType_FLOAT, t::int64_data, int64_t{1}, packed))), "integers",
                   "\"w\"");
  }
  const std::string packed = typed_tensor(t::DataType_INT64, t::int64_data, int64_t{1}, true);
  expect_refused(import(with(packed + typed_tensor(t::DataType_INT64, t::int64_data, int64_t{2}, false))),
                 "packed and not");
  expect_refused(import(with(typed_tensor(t::DataType_FLOAT, t::float_data, 1.0, false))), "wire type");
  expect_refused(import(with(typed_tensor(t::DataType_INT64, t::int64_data, 1.0f, false))), "wire type");
}

TEST(Tensors, NumbersThatAreNotPackedKeepEveryBit) {
  namespace t = schema::TensorProto;
  const int64_t large = (int64_t{1} << 60) + 1;  // no double has it
  for (bool packed : {false, true}) {
    auto graph =
        import(of({node("Add", {"w", "w"}, {"y"})}, {typed_tensor(t::DataType_INT64, t::int64_data, large, packed)}));
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const epl::ValueInfo& y = graph->value(graph->outputs[0].value);  // constants are folded
    ASSERT_EQ(y.kind, ValueKind::constant);
    EXPECT_EQ(y.data.get_int(0), 2 * large) << packed;
  }
}

TEST(Hostile, ImpossibleShapes) {
  const int64_t huge = int64_t{1} << 40;
  auto relu = of({node("Relu", {"x"}, {"y"})});
  expect_refused(import(relu, {.symbols = {{"n", int64_t{1} << 62}}}), "x");
  expect_refused(import(relu, {.symbols = {{"n", -4}}}), "x");
  expect_refused(import(of({node("Expand", {"x", "s"}, {"y"})}, {ints("s", {huge, huge, 2, 2})})), "", "node_y");
  expect_refused(import(of({node("Reshape", {"x", "s"}, {"y"})}, {ints("s", {-7, 2})})), "", "node_y");
  expect_refused(import(of({node("Reshape", {"x", "s"}, {"y"})}, {ints("s", {huge, huge})})), "", "node_y");
  expect_refused(import(of({node("Tile", {"x", "s"}, {"y"})}, {ints("s", {huge, huge})})), "", "node_y");
  expect_refused(import(of({node("ConstantOfShape", {"s"}, {"y"})}, {ints("s", {huge, huge})})), "", "node_y");
  expect_refused(import(of({node("Pad", {"x", "s"}, {"y"})}, {ints("s", {0, 0, huge, INT64_MAX})})), "", "node_y");
}

TEST(Hostile, AttributesOutOfRange) {
  const int64_t far = INT64_MAX;
  for (int64_t axis : {far, int64_t{17}, int64_t{-17}, int64_t{INT64_MIN}}) {
    for (const char* op :
         {"Softmax", "LogSoftmax", "Flatten", "ArgMax", "LayerNormalization", "Hardmax", "LpNormalization"}) {
      SCOPED_TRACE(cat(op, " along ", axis));
      testing::Names inputs = {"x"};
      if (std::string(op) == "LayerNormalization") inputs.push_back("x");
      expect_refused(import(of({node(op, inputs, {"y"}, {attribute("axis", axis)})})), "", "node_y");
    }
    for (const char* op : {"Concat", "Gather", "GatherElements"}) {
      SCOPED_TRACE(cat(op, " along ", axis));
      expect_refused(
          import(of({node(op, {"x", std::string(op) == "Concat" ? "x" : "k"}, {"y"}, {attribute("axis", axis)})},
                    {ints("k", {0})})),
          "", "node_y");
    }
    SCOPED_TRACE(cat("axis ", axis));
    expect_refused(import(of({node("Split", {"x"}, {"y"}, {attribute("axis", axis)})})), "", "node_y");
    expect_refused(import(of({node("Transpose", {"x"}, {"y"}, {attribute("perm", Ints{0, axis})})})), "", "node_y");
    expect_refused(import(of({node("Unsqueeze", {"x", "k"}, {"y"})}, {ints("k", {axis})})), "", "node_y");
    expect_refused(import(of({node("Squeeze", {"x", "k"}, {"y"})}, {ints("k", {axis})})), "", "node_y");
    expect_refused(import(of({node("ReduceSum", {"x", "k"}, {"y"})}, {ints("k", {axis})})), "", "node_y");
    expect_refused(import(of({node("Slice", {"x", "k", "k", "a"}, {"y"})}, {ints("k", {0}), ints("a", {axis})})), "",
                   "node_y");
  }
  expect_refused(import(of({node("Transpose", {"x"}, {"y"}, {attribute("perm", Ints{0, 0})})})), "", "node_y");
  expect_refused(import(of({node("Cast", {"x"}, {"y"}, {attribute("to", int64_t{77})})})), "77", "node_y");
}

TEST(Hostile, OperandsThatDoNotFit) {
  expect_refused(import(of({node("Add", {"x", "k"}, {"y"})}, {ints("k", {1, 2})})), "", "node_y");  // f32 and i64
  expect_refused(import(of({node("Add", {"x"}, {"y"})})), "takes 2", "node_y");
  expect_refused(import(of({node("Relu", {}, {"y"})})), "takes 1", "node_y");
  expect_refused(import(of({node("MatMul", {"x", "x"}, {"y"}, {})}), {.symbols = {{"n", 3}}}), "", "node_y");
  expect_refused(import(of({node("Reshape", {"x", "x"}, {"y"})})), "takes there i64", "node_y");
  expect_refused(
      import(of({node("Cast", {"x"}, {"k"}, {attribute("to", int64_t{7})}), node("Reshape", {"x", "k"}, {"y"})})),
      "must be known", "node_y");
  expect_refused(import(of({node("Conv", {"x", "x"}, {"y"})})), "", "node_y");
  expect_refused(import(of({node("NoSuchOperator", {"x"}, {"y"})})), "NoSuchOperator", "node_y");
  expect_refused(import(of({node("Relu", {"x"}, {"y"}, {}, "elsewhere")})), "elsewhere.Relu", "node_y");
}

TEST(Hostile, HeadersThatAreNotRead) {
  const testing::Parts parts{
      .nodes = {node("Relu", {"x"}, {"y"})}, .inputs = {port("x", {"n"})}, .outputs = {port("y", {"n"})}};
  for (int64_t opset : {0, 6, 29, 1000000})
    expect_refused(load(testing::model(parts, {}, {.opset = opset})), cat("opset ", opset));
  expect_refused(load(testing::model(parts, {}, {.opset = -1})), "opset");
  expect_refused(load(testing::model(parts, {}, {.ir = 99})), "IR version 99");
  expect_refused(load(""), "no graph");
  expect_refused(load("this is not a model at all"), "");
  EXPECT_FALSE(load_model("/nonexistent/model.onnx").ok());
  EXPECT_FALSE(load_model(TemporaryFolder().path()).ok());
}

// y = x + the sum of what `nodes` make of a few sizes; z is what of it is used.
std::string folding(std::vector<std::string> nodes, const std::string& z) {
  nodes.push_back(node("ReduceSum", {z}, {"t"}, {attribute("keepdims", int64_t{0})}));
  nodes.push_back(node("Cast", {"t"}, {"s"}, {attribute("to", int64_t{f32})}));
  nodes.push_back(node("Add", {"x", "s"}, {"y"}));
  auto number = [](const std::string& name, int64_t value) {
    return testing::tensor(name, epl::Tensor::from_ints({value}).reshaped({}));
  };
  return of(nodes, {ints("big", {4, 1 << 18}), ints("square", {512, 512}), number("zero", 0), number("far", 1 << 23),
                    number("one", 1)});
}

TEST(Hostile, ConstantsThatAreComputedHaveATotal) {
  auto many = [](const std::string& op, const Names& inputs) {
    std::vector<std::string> nodes;
    for (int k = 0; k < 100; ++k) nodes.push_back(node(op, inputs, {cat("c", k)}));
    return nodes;
  };
  auto sum = [](std::vector<std::string> nodes) {
    Names all;
    for (size_t k = 0; k < nodes.size(); ++k) all.push_back(cat("c", k));
    nodes.push_back(node("Sum", all, {"z"}));
    return nodes;
  };
  // What nothing needs is not computed: 100 times 64 MiB, and 4 MiB.
  EXPECT_TRUE(import(folding(many("Range", {"zero", "far", "one"}), "zero")).ok());
  EXPECT_TRUE(import(folding(many("ConstantOfShape", {"big"}), "zero")).ok());
  // What is needed all at once is refused, or left to the run.
  expect_refused(import(folding(sum(many("Range", {"zero", "far", "one"})), "z")), "MiB", "node_c");
  auto left = import(folding(sum(many("ConstantOfShape", {"big"})), "z"));
  ASSERT_TRUE(left.ok()) << left.status().to_string();
  int64_t held = 0;
  for (Value v : left->leaves(ValueKind::constant)) held += left->value(v).data.bytes();
  EXPECT_LT(held, int64_t{400} << 20);
  // So is what takes too much work.
  std::vector<std::string> products = {node("ConstantOfShape", {"square"}, {"c0"})};
  for (int k = 0; k < 30; ++k) products.push_back(node("MatMul", {cat("c", k), cat("c", k)}, {cat("c", k + 1)}));
  auto product = import(folding(products, "c30"));
  ASSERT_TRUE(product.ok()) << product.status().to_string();
  EXPECT_NE(print_graph(*product).find("matmul"), std::string::npos);
}

TEST(Hostile, TensorsOfManyDimensions) {
  EXPECT_TRUE(
      import(of({node("Reshape", {"x", "k"}, {"y"})}, {ints("k", {2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})}))
          .ok());
  expect_refused(import(of({node("Reshape", {"x", "k"}, {"y"})},
                           {ints("k", {2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})})),
                 "17 dimensions", "node_y");
  const std::vector<std::string> ones(17, "1");
  expect_refused(
      load(testing::model(
          {.nodes = {node("Relu", {"x"}, {"y"})}, .inputs = {port("x", ones)}, .outputs = {port("y", {"n"})}})),
      "17 dimensions", "x");
  expect_refused(
      load(testing::model(
          {.nodes = {node("Relu", {"x"}, {"y"})}, .inputs = {port("x", {"1"})}, .outputs = {port("y", ones)}})),
      "17 dimensions", "y");
}

// Each was quadratic once: minutes, at these sizes.
TEST(Hostile, ManyOfOneThing) {
  EXPECT_TRUE(import(of({node("Sum", Names(5'000, "x"), {"y"})})).ok());
  Names outputs = {"y"};
  for (int k = 1; k < 10'000; ++k) outputs.push_back(cat("o", k));
  EXPECT_TRUE(import(of({node("Split", {"x"}, outputs, {attribute("num_outputs", int64_t{10'000})})}),
                     {.symbols = {{"n", 10'000}}})
                  .ok());
  std::vector<std::string> unknown;
  for (int k = 0; k < 10'000; ++k) unknown.push_back(node("Frobnicate", {"x"}, {cat("u", k)}, {}, "acme"));
  unknown.push_back(node("Relu", {"x"}, {"y"}));
  expect_refused(import(of(unknown)), "acme.Frobnicate (10000 nodes: node_u0, node_u1, node_u2, ...)");
  std::vector<std::string> chain;
  for (int k = 0; k < 5'000; ++k)
    chain.push_back(testing::function(cat("F", k), {"a"}, {"b"}, {node(cat("F", k + 1), {"a"}, {"b"}, {}, "own")}));
  chain.push_back(testing::function("F5000", {"a"}, {"b"}, {node("Relu", {"a"}, {"b"})}));
  const testing::Parts call{
      .nodes = {node("F0", {"x"}, {"y"}, {}, "own")}, .inputs = {port("x", {"n"})}, .outputs = {port("y", {"n"})}};
  expect_refused(load(testing::model(call, chain)), "nest more than 64 deep", "node_y");
}

TEST(Hostile, NestingAndCallsHaveAnEnd) {
  std::string inner = testing::graph({.nodes = {node("Relu", {"x"}, {"b"})}, .outputs = {port("b", {"n"})}});
  for (int depth = 0; depth < 200; ++depth) {
    inner = testing::graph({.nodes = {node("If", {"x"}, {"b"}, {testing::subgraph("then_branch", inner)})},
                            .outputs = {port("b", {"n"})}});
  }
  expect_refused(load(of({node("If", {"x"}, {"y"}, {testing::subgraph("then_branch", inner)})})), "nested", "byte");
  const testing::Parts call{
      .nodes = {node("F0", {"x"}, {"y"}, {}, "own")}, .inputs = {port("x", {"n"})}, .outputs = {port("y", {"n"})}};
  expect_refused(
      import(testing::model(call, {testing::function("F0", {"a"}, {"b"}, {node("F0", {"a"}, {"b"}, {}, "own")})})),
      "F0", "node_y");
  // Forty functions that each call the next one twice: 2^40 calls.
  std::vector<std::string> bomb;
  for (int k = 0; k < 40; ++k) {
    std::string next = cat("F", k + 1);
    bomb.push_back(testing::function(cat("F", k), {"a"}, {"c"},
                                     {node(next, {"a"}, {"b"}, {}, "own"), node(next, {"b"}, {"c"}, {}, "own")}));
  }
  bomb.push_back(testing::function("F40", {"a"}, {"c"}, {node("Relu", {"a"}, {"c"})}));
  expect_refused(import(testing::model(call, bomb)), "nodes");
}

class ExternalData : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_ / "model"); }

  Result<epl::Graph> import_with(const std::string& tensor) {
    std::ofstream(folder_ / "model" / "m.onnx", std::ios::binary) << of({node("MatMul", {"x", "w"}, {"y"})}, {tensor});
    EPL_ASSIGN(auto model, load_model((folder_ / "model" / "m.onnx").string()));
    return model->bind({.symbols = {{"n", 2}}});
  }
  Result<epl::Graph> at(const std::string& location,
                        const std::vector<std::pair<std::string, std::string>>& more = {}) {
    return import_with(testing::external_tensor("w", f32, {2, 2}, location, more));
  }
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ExternalData, StaysInTheFolderOfTheModel) {
  const std::string numbers(16, '\0');
  std::ofstream(folder_ / "outside.bin") << numbers;
  std::ofstream(folder_ / "model" / "w.bin") << numbers;
  fs::create_directories(folder_ / "model" / "sub");
  fs::create_symlink(folder_ / "outside.bin", folder_ / "model" / "link.bin");
  fs::create_directory_symlink(folder_, folder_ / "model" / "up");
  EXPECT_TRUE(at("w.bin").ok()) << at("w.bin").status().to_string();
  EXPECT_TRUE(at("./sub/.././w.bin").ok() == false);
  expect_refused(at("../outside.bin"), "leave the model's folder", "\"w\"");
  expect_refused(at("sub/../../outside.bin"), "leave the model's folder", "\"w\"");
  expect_refused(at((folder_ / "outside.bin").string()), "leave the model's folder", "\"w\"");
  expect_refused(at(""), "leave the model's folder", "\"w\"");
  expect_refused(at("link.bin"), "leads out", "\"w\"");
  expect_refused(at("up/outside.bin"), "leads out", "\"w\"");
  expect_refused(at("sub"), "not a plain file", "\"w\"");
  expect_refused(at("missing.bin"), "cannot be found", "\"w\"");
}

// A cache of downloads keeps the files of a model in one folder, and in another one links to them. What lies in the
// folder of the model's own file is beside the model, and nothing else is.
TEST_F(ExternalData, MayLieBesideTheFileThatTheModelIsALinkTo) {
  const std::string numbers(16, '\0');
  const fs::path cache = folder_ / "cache", snapshot = cache / "snapshots" / "abc" / "onnx", blobs = cache / "blobs";
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  std::ofstream(blobs / "bbb") << numbers;
  std::ofstream(cache / "secret") << numbers;
  const auto of_cache = [&](const std::string& location, const fs::path& target) {
    std::ofstream(blobs / "aaa", std::ios::binary)
        << of({node("MatMul", {"x", "w"}, {"y"})}, {testing::external_tensor("w", f32, {2, 2}, location)});
    for (const char* name : {"m.onnx", "w.bin"}) fs::remove(snapshot / name);
    fs::create_symlink("../../../blobs/aaa", snapshot / "m.onnx");
    if (!target.empty()) fs::create_symlink(target, snapshot / "w.bin");
    auto model = load_model((snapshot / "m.onnx").string());
    return model.ok() ? (*model)->bind({.symbols = {{"n", 2}}}).status() : model.status();
  };
  EXPECT_TRUE(of_cache("w.bin", "../../../blobs/bbb").ok()) << of_cache("w.bin", "../../../blobs/bbb").to_string();
  EXPECT_TRUE(of_cache("bbb", "").ok()) << "beside the file itself";
  for (const fs::path& out : {fs::path("../../../secret"), cache / "secret"}) {
    const std::string said = of_cache("w.bin", out).to_string();
    EXPECT_NE(said.find("leads out of the model's folder, to "), std::string::npos) << said;
    EXPECT_NE(said.find("cp -L"), std::string::npos) << said;
  }
  EXPECT_FALSE(of_cache("../secret", "").ok());
}

TEST_F(ExternalData, IsAsLongAsTheTensor) {
  std::ofstream(folder_ / "model" / "w.bin") << std::string(20, '\0');
  EXPECT_TRUE(at("w.bin", {{"offset", "4"}, {"length", "16"}}).ok());
  expect_refused(at("w.bin", {{"offset", "8"}}), "need more", "\"w\"");
  expect_refused(at("w.bin", {{"offset", "9223372036854775807"}}), "need more", "\"w\"");
  expect_refused(at("w.bin", {{"length", "12"}}), "12 bytes", "\"w\"");
  expect_refused(at("w.bin", {{"offset", "-4"}}), "not a size", "byte");
  expect_refused(at("w.bin", {{"offset", "4x"}}), "not a size", "byte");
}

// A host gives the bytes of the model and of what lies beside it: the same checks, and its own errors.
TEST_F(ExternalData, ComesFromWhereTheModelDoes) {
  std::string numbers(16, '\0');
  std::vector<std::string> asked;
  Status answer;
  const auto load = [&](const std::string& location) -> Result<epl::Graph> {
    const std::string bytes =
        of({node("MatMul", {"x", "w"}, {"y"})}, {testing::external_tensor("w", f32, {2, 2}, location)});
    asked.clear();
    ModelSource source;
    source.file = FileReader::of_function("store", bytes.size(), [bytes](uint64_t offset, void* target, size_t count) {
      bytes.copy(static_cast<char*>(target), count, offset);
      return Status();
    });
    source.beside = [&](const std::string& name) -> Result<std::shared_ptr<const FileReader>> {
      asked.push_back(name);
      EPL_TRY(answer);
      return FileReader::of_bytes("beside", std::as_bytes(std::span(numbers)), nullptr);
    };
    EPL_ASSIGN(auto model, load_model(source));
    return model->bind({.symbols = {{"n", 2}}});
  };
  EXPECT_TRUE(load("sub/w.bin").ok()) << load("sub/w.bin").status().to_string();
  EXPECT_EQ(asked, std::vector<std::string>{"sub/w.bin"});  // once
  expect_refused(load("../w.bin"), "leave the model's folder", "\"w\"");
  EXPECT_TRUE(asked.empty());
  numbers.resize(12);
  expect_refused(load("w.bin"), "beside has 12 bytes", "\"w\"");
  answer = Status(Code::peer_failed, "the bucket is gone");
  const Status failed = load("w.bin").status();
  EXPECT_EQ(failed.code(), Code::peer_failed);
  EXPECT_EQ(failed.message(), "the bucket is gone");
}

TEST_F(ExternalData, IsNotLookedForWhereAModelCameFromMemory) {
  const std::string bytes =
      of({node("MatMul", {"x", "w"}, {"y"})}, {testing::external_tensor("w", f32, {2, 2}, "w.bin")});
  expect_refused(testing::import(bytes, {.symbols = {{"n", 2}}}), "from memory", "\"w\"");
}

// What is never read is never waited for: 3 GiB of weights that exist only as a length.
TEST_F(ExternalData, ThreeGibibytesAreInspectedAndBoundAtOnce) {
  const int64_t side = 28378;  // 28378^2 floats are a little over 3 GiB
  std::ofstream(folder_ / "model" / "w.bin").close();
  ASSERT_EQ(truncate((folder_ / "model" / "w.bin").c_str(), side * side * 4), 0);
  testing::Parts parts{.nodes = {node("MatMul", {"x", "layer.w"}, {"y"})},
                       .initializers = {testing::external_tensor("layer.w", f32, {side, side}, "w.bin")},
                       .inputs = {port("x", {"n", std::to_string(side)})},
                       .outputs = {port("y", {"n", std::to_string(side)})}};
  std::ofstream(folder_ / "model" / "m.onnx", std::ios::binary) << testing::model(parts);
  auto begin = std::chrono::steady_clock::now();
  auto model = load_model((folder_ / "model" / "m.onnx").string());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ((*model)->initializers().size(), 1u);
  EXPECT_TRUE((*model)->findings().empty());
  auto graph = (*model)->bind({.symbols = {{"n", 4}}});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->leaves(ValueKind::parameter).size(), 1u);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5.0);
}

}  // namespace
}  // namespace epl::onnx::damage_test
