// The safetensors reader takes right files whole and hostile ones not at all.
#include "core/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/data/open_reader.h"

namespace epl::safetensors_test {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

Result<std::shared_ptr<const Safetensors>> parse(const std::string& file) {
  auto owner = std::make_shared<std::string>(file);
  return Safetensors::parse(std::as_bytes(std::span(owner->data(), owner->size())), owner, "test");
}

TEST(Safetensors, RoundTrip) {
  NamedTensors written = {{"b", Tensor::from_floats({2, 3}, {1, 2, 3, 4, 5, 6})},
                          {"a", Tensor::from_ints({7, 8})},
                          {"empty", Tensor(TensorType{DType::f16, {0, 4}})},
                          {"scalar", Tensor::scalar(DType::f64, 0.5)}};
  const std::string path = temporary("round.safetensors");
  ASSERT_TRUE(save_safetensors(path, written, {{"who", "a test \"quoted\""}}).ok());
  auto read = Safetensors::open(path);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->metadata().at("who"), "a test \"quoted\"");
  ASSERT_EQ((*read)->entries().size(), written.size());
  for (const auto& [name, value] : written) {
    const SafetensorsEntry* entry = (*read)->find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_TRUE(identical((*read)->tensor(*entry), value)) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST(Safetensors, UnalignedDataIsReadRight) {
  const std::string data("\0\0\x80\x3f\0\0\0\x40", 8);
  auto read = parse(file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )", data));  // an odd header
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  Tensor x = (*read)->tensor((*read)->entries()[0]);
  EXPECT_EQ(x.get(0), 1);
  EXPECT_EQ(x.get(1), 2);
}

struct Hostile {
  const char* name;
  std::string header, data, message;
};

TEST(Safetensors, HostileFilesAreRefusedWithThePosition) {
  const std::string eight(8, '\0');
  const std::vector<Hostile> files = {
      {"not an object", "[1]", "", "not a JSON object"},
      {"cut JSON", "{\"x\":", "", "not a JSON object"},
      {"deep", std::string(100000, '['), "", "not a JSON object"},
      {"no offsets", R"({"x":{"dtype":"F32","shape":[2]}})", eight, "needs dtype, shape and data_offsets"},
      {"more fields", R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"y":1}})", eight, "nothing else"},
      {"dtype", R"({"x":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", eight, "F33"},
      {"dtype type", R"({"x":{"dtype":3,"shape":[2],"data_offsets":[0,8]}})", eight, "wrong type"},
      {"negative", R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight, "integer"},
      {"fraction", R"({"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", eight, "integer"},
      {"huge", R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", eight,
       "impossible sizes"},
      {"2^63", R"({"x":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", eight,
       "impossible sizes"},
      {"dimensions", R"({"x":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", eight,
       "has 17 dimensions; tensors have up to 16"},
      {"size", R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight, "needs 12"},
      {"turned", R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight, "8 to 0"},
      {"outside", R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234", "truncated"},
      {"hole", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight, "begins at byte 4"},
      {"overlap",
       R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       eight, "overlap"},
      {"rest", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", eight, "belong to none"},
      {"twice",
       R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       eight, "comes twice"},
      {"metadata", R"({"__metadata__":{"a":1}})", "", "not text"},
  };
  for (const Hostile& file : files) {
    auto read = parse(file_of(file.header, file.data));
    ASSERT_FALSE(read.ok()) << file.name;
    EXPECT_EQ(read.status().code(), Code::data_loss) << file.name;
    EXPECT_NE(read.status().message().find(file.message), std::string::npos)
        << file.name << ": " << read.status().message();
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x'));
  ASSERT_TRUE(parse(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(parse(whole.substr(0, size)).ok()) << size;
  std::string huge = whole;
  std::memset(huge.data(), 0xff, 8);
  EXPECT_FALSE(parse(huge).ok());
}

TEST(Safetensors, TwoTensorsOfOneNameAreNotWritten) {
  const Tensor x = Tensor::from_ints({1});
  Status status = save_safetensors(temporary("twice.safetensors"), {{"x", x}, {"x", x}});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(temporary("twice.safetensors")));
}

TEST(Safetensors, WhatIsNoFileIsNamed) {
  EXPECT_EQ(Safetensors::open("/nowhere/at/all.safetensors").status().code(), Code::not_found);
  EXPECT_NE(Safetensors::open("/").status().message().find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace epl::safetensors_test
