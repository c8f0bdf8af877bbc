// The meaning of ops against PyTorch in float64 (meaning.txt, made by generate_meaning.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "core/ir/op.h"
#include "core/ir/text.h"

namespace epl::meaning_test {
namespace {

struct MeaningCase {
  std::string op;
  Attributes attributes;
  std::vector<Tensor> inputs, outputs;
};

std::vector<MeaningCase> read_cases() {
  std::ifstream file(std::string(EPL_SOURCE_DIR) + "/tests/ops/meaning.txt");
  std::vector<MeaningCase> cases;
  std::string line;
  while (std::getline(file, line)) {
    const std::string word = line.substr(0, line.find(' '));
    if (word != "op" && word != "in" && word != "out") continue;
    const std::string rest = line.substr(word.size() + 1);
    if (word == "op") {
      MeaningCase c;
      c.op = rest.substr(0, rest.find(' '));
      const std::string attributes = rest.substr(c.op.size());
      TextReader reader(attributes);
      reader.next_line();
      auto parsed = reader.attributes();
      EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
      if (parsed.ok()) c.attributes = *parsed;
      cases.push_back(std::move(c));
      continue;
    }
    std::vector<Tensor>& tensors = word == "in" ? cases.back().inputs : cases.back().outputs;
    if (rest == "-") {
      tensors.emplace_back();
      continue;
    }
    std::string_view view = rest;
    auto value = parse_attribute(view);
    EXPECT_TRUE(value.ok() && std::holds_alternative<Tensor>(*value)) << rest;
    if (value.ok()) tensors.push_back(std::get<Tensor>(*value));
  }
  return cases;
}

TEST(Meaning, IsPyTorchs) {
  const std::vector<MeaningCase> cases = read_cases();
  ASSERT_GT(cases.size(), 70u);
  for (const MeaningCase& c : cases) {
    Attributes attributes = c.attributes;
    const OpDef* op = op_table().find(c.op);
    ASSERT_NE(op, nullptr) << c.op;
    ASSERT_TRUE(complete_attributes(*op, attributes).ok()) << complete_attributes(*op, attributes).to_string();
    SCOPED_TRACE(cat(c.op, attributes_text(attributes)));
    auto results = evaluate_op(*op, attributes, c.inputs);
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    ASSERT_GE(results->size(), c.outputs.size());
    for (size_t o = 0; o < c.outputs.size(); ++o) {
      const Tensor &got = (*results)[o], &expected = c.outputs[o];
      ASSERT_EQ(got.type(), expected.type()) << "output " << o;
      for (int64_t i = 0; i < got.elements(); ++i) {
        ASSERT_NEAR(got.get(i), expected.get(i), 1e-12 * (1 + std::abs(expected.get(i))))
            << "output " << o << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace epl::meaning_test
