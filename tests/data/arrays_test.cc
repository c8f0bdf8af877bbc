// NumPy's files as NumPy wrote them (tests/data/generate.py), and hostile ones.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "core/formats/npy.h"
#include "core/formats/safetensors.h"
#include "core/formats/zip.h"
#include "tests/data/open_reader.h"

namespace epl::arrays_test {
namespace {

// Elements of field `field` of every sample, in order, as doubles.
std::vector<double> all_of(const Reader& reader, int field) {
  const TensorType& type = reader.fields()[static_cast<size_t>(field)].second;
  std::vector<double> out;
  Tensor sample(type);
  for (int64_t i = 0; i < reader.samples(); ++i) {
    EXPECT_TRUE(reader.read(i, field, sample.data()).ok());
    for (int64_t e = 0; e < type.elements(); ++e) out.push_back(sample.get(e));
  }
  return out;
}

template <class F> std::vector<double> numbers(int64_t count, F&& f) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<double>(f(i)));
  return out;
}

std::string message_of(const std::string& name, std::initializer_list<Attributes::Entry> options = {}) {
  auto reader = open_reader("", given(name), options);
  return reader.ok() ? "" : reader.status().message();
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Npy, ArraysOfAllTypesAndOrders) {
  for (const auto& [name, type, f] : std::vector<std::tuple<std::string, TensorType, double (*)(int64_t)>>{
           {"f32.npy", {DType::f32, {3, 2}}, [](int64_t i) { return static_cast<double>(i) / 4; }},
           {"fortran_f64.npy", {DType::f64, {3, 2}}, [](int64_t i) { return static_cast<double>(i) / 4; }},
           {"big_endian_i16.npy", {DType::i16, {3, 2}}, [](int64_t i) { return static_cast<double>(i - 12); }},
           {"bool.npy", {DType::boolean, {3, 2}}, [](int64_t i) { return static_cast<double>(i % 3 == 0); }}}) {
    auto reader = open_reader("", given(name));
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_EQ((*reader)->samples(), 4);
    EXPECT_EQ((*reader)->fields()[0], (std::pair<std::string, TensorType>{"x", type})) << name;
    EXPECT_EQ(all_of(**reader, 0), numbers(24, f)) << name;
  }
  auto second = open_reader("", given("version_2.npy"), {{"input", std::string("ids")}});
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ((*second)->fields()[0], (std::pair<std::string, TensorType>{"ids", {DType::i64, {}}}));
}

TEST(Npy, TheTargetIsAColumnOrAnotherFile) {
  auto column = open_reader("", given("table.npy"), {{"target_column", std::string("-1")}});
  ASSERT_TRUE(column.ok()) << column.status().to_string();
  EXPECT_EQ(all_of(**column, 0), (std::vector<double>{0, 1, 3, 4, 6, 7, 9, 10}));
  EXPECT_EQ(all_of(**column, 1), (std::vector<double>{2, 5, 8, 11}));
  column = open_reader("", given("table.npy"), {{"target_column", std::string("0")}});
  EXPECT_EQ(all_of(**column, 0), (std::vector<double>{1, 2, 4, 5, 7, 8, 10, 11}));
  auto file = open_reader("", given("f32.npy"), {{"target", std::string("labels.npy")}});
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ((*file)->fields()[1], (std::pair<std::string, TensorType>{"target", {DType::u8, {}}}));
  EXPECT_EQ(all_of(**file, 1), (std::vector<double>{2, 0, 1, 2}));
  EXPECT_TRUE(has(message_of("table.npy", {{"target_column", std::string("3")}}), "the array is f64[4,3]"));
  EXPECT_TRUE(has(message_of("f32.npy", {{"target_column", std::string("0")}}), "two dimensions"));
  EXPECT_TRUE(has(message_of("table.npy", {{"target", std::string("nowhere.npy")}}), "cannot open"));
}

TEST(Npy, TypesThatAreNotReadSayWhatToDo) {
  EXPECT_TRUE(has(message_of("texts.npy"), "is texts; save their numbers"));
  EXPECT_TRUE(has(message_of("objects.npy"), "is Python objects"));
  EXPECT_TRUE(has(message_of("records.npy"), "records of several fields"));
}

std::string npy(const std::string& header, const std::string& data,
                const std::string& version = std::string("\1\0", 2)) {
  std::string out = "\x93NUMPY" + version;
  out += static_cast<char>(header.size() & 255);
  out += static_cast<char>(header.size() >> 8);
  return out + header + data;
}

Result<NpyHeader> parse(const std::string& file) {
  return read_npy_header("test", file.size(), [&](uint64_t offset, void* to, size_t bytes) {
    EXPECT_LE(offset + bytes, file.size());
    std::memcpy(to, file.data() + offset, bytes);
    return Status();
  });
}

TEST(Npy, HostileHeadersAreRefused) {
  const std::string eight(8, '\0');
  ASSERT_TRUE(parse(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }  \n", eight)).ok());
  ASSERT_TRUE(parse(npy("{\"shape\":(1,2L),\"fortran_order\":True,\"descr\":\"|u1\"}", std::string(2, '\0'))).ok());
  for (const auto& [header, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "not a dictionary"},
           {"__import__('os')", "not a dictionary"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } or x", "behind its header"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "does not end"},
           {"{'descr': '<f4', 'fortran_order': False}", "lacks descr, fortran_order or shape"},
           {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "unexpectedly"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "unexpectedly"},
           {"{'descr': '<f4', 'fortran_order': None, 'shape': (2,)}", "neither True nor False"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "not a size"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.5,)}", "does not end"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (f(),)}", "not a size"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "not a tuple"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "impossible sizes"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 4)}", "impossible sizes"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "not a size"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
            "f32[3] takes 12 bytes, there are 8; is it truncated?"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "takes 4 bytes, there are 8"},
           {"{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", "element type"},
           {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "complex"},
       }) {
    auto read = parse(npy(header, eight));
    ASSERT_FALSE(read.ok()) << header;
    EXPECT_TRUE(has(read.status().message(), message)) << header << ": " << read.status().message();
  }
  EXPECT_TRUE(has(parse(npy("{}", "", std::string("\4\0", 2))).status().message(), "version 4.0"));
  const std::string whole = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", eight);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(parse(whole.substr(0, size)).ok()) << size;
}

TEST(Npz, StoredAndCompressed) {
  for (const char* name : {"stored.npz", "compressed.npz"}) {
    auto reader = open_reader("", given(name));
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    using Fields = std::vector<std::pair<std::string, TensorType>>;
    EXPECT_EQ((*reader)->fields(),
              (Fields{{"images", {DType::u8, {3, 2}}}, {"target", {DType::i64, {}}}, {"half", {DType::f16, {}}}}));
    EXPECT_EQ(all_of(**reader, 0), numbers(24, [](int64_t i) { return i * 10; }));
    EXPECT_EQ(all_of(**reader, 1), (std::vector<double>{3, 1, 0, 2}));
    EXPECT_EQ(all_of(**reader, 2), (std::vector<double>{0, 0.75, 1.5, 2.25}));
    auto chosen = open_reader("", given(name), {{"fields", std::string(R"({"x": "images", "target": "target"})")}});
    ASSERT_TRUE(chosen.ok()) << chosen.status().to_string();
    EXPECT_EQ((*chosen)->fields()[0].first, "x");
    EXPECT_EQ((*chosen)->fields().size(), 2u);
    EXPECT_TRUE(has(message_of(name, {{"fields", std::string(R"({"x": "image"})")}}),
                    "no array \"image\"; did you mean images? There are: images, target, half."));
  }
}

std::string content(const std::string& name) {
  std::ifstream in(given(name), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string refusal(const std::string& bytes) {
  const std::string path = temporary("hostile.npz");
  std::ofstream(path, std::ios::binary) << bytes;
  auto reader = open_reader("npz", path);
  return reader.ok() ? "" : reader.status().message();
}

TEST(Npz, DamagedArchivesAreRefused) {
  const std::string whole = content("compressed.npz");
  ASSERT_EQ(refusal(whole), "");
  for (size_t size = 0; size < whole.size(); size += 7) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
  EXPECT_TRUE(has(refusal(whole.substr(0, whole.size() - 1)), "truncated"));
  const size_t entry = whole.find("PK\x01\x02");
  const auto changed = [&](size_t at, std::string_view bytes) {
    std::string out = whole;
    return out.replace(at, bytes.size(), bytes);
  };
  EXPECT_TRUE(has(refusal(changed(entry + 8, "\x01")), "encrypted"));
  EXPECT_TRUE(has(refusal(changed(entry + 10, "\x0c")), "packed by method 12"));
  EXPECT_TRUE(has(refusal(changed(entry + 16, std::string(4, '\7'))), "checksum"));
  EXPECT_TRUE(has(refusal(changed(entry + 24, "\xff\xff\xff\x7f")), "cannot hold"));
  EXPECT_TRUE(has(refusal(changed(entry + 20, "\xff\xff\xff\x7f")), "ends outside"));
  EXPECT_TRUE(has(refusal(changed(entry + 42, "\xff\xff\xff\x7f")), "outside the file"));
  // Any one byte changed is an error or another sample, never anything worse.
  for (size_t at = 0; at < whole.size(); ++at) refusal(changed(at, "\xff"));
}

TEST(Safetensors, AHeaderOfManyTensorsIsReadAtOnce) {
  // Quadratic, this took half a minute.
  std::string header = "{";
  for (int i = 0; i < 100000; ++i)
    header += cat(i ? "," : "", "\"t", i, "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[", i, ",", i + 1, "]}");
  header += "}";
  const uint64_t length = header.size();
  const std::string path = temporary("many.safetensors");
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), 8) << header
                                        << std::string(100000, 'x');
  auto reader = open_reader("", path);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ((*reader)->fields().size(), 100000u);
}

TEST(Csv, AsPandasWritesIt) {
  EXPECT_TRUE(has(message_of("pandas_index.csv"), "column 1 has no name"));
  auto reader = open_reader("", given("pandas_index.csv"), {{"ignore", std::string("\"\"")}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(all_of(**reader, 0), (std::vector<double>{1.5, 2.5, 3.5}));
  EXPECT_EQ(all_of(**reader, 1), (std::vector<double>{1, 0, 1}));
  reader = open_reader("", given("pandas.tsv"));
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(all_of(**reader, 0), (std::vector<double>{1.5, 2.5, 3.5}));
}

}  // namespace
}  // namespace epl::arrays_test
