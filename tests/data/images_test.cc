// Folders of images as Pillow wrote them (tests/data/generate.py), against what Pillow makes of them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/data/open_reader.h"

namespace epl::images_test {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

#define SKIP_WITHOUT_IMAGES() \
  if (!std::string(EPL_IMAGES_MISSING).empty()) GTEST_SKIP() << "pack images: " << EPL_IMAGES_MISSING

Result<std::unique_ptr<Reader>> open_images(const std::string& path,
                                            std::initializer_list<Attributes::Entry> options = {}) {
  return open_reader("", path, options, EPL_PACK_FOLDER);
}

std::vector<float> sample(const Reader& reader, int64_t index) {
  std::vector<float> out(static_cast<size_t>(reader.fields()[0].second.elements()));
  Status status = reader.read(index, 0, out.data());
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

// Pillow's pixels of image `index`: array `name` of images.npz, rows of pixels with their channels.
std::vector<uint8_t> pillow(int field, int64_t index) {
  auto reader = open_reader("", given("images.npz")).value();
  std::vector<uint8_t> out(static_cast<size_t>(reader->fields()[static_cast<size_t>(field)].second.elements()));
  EXPECT_TRUE(reader->read(index, field, out.data()).ok());
  return out;
}

TEST(Images, AFolderForEachClass) {
  SKIP_WITHOUT_IMAGES();
  auto reader = open_images(given("images"), {{"height", int64_t{9}}, {"width", int64_t{7}}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  using Fields = std::vector<std::pair<std::string, TensorType>>;
  EXPECT_EQ((*reader)->fields(), (Fields{{"x", {DType::f32, {3, 9, 7}}}, {"target", {DType::i64, {}}}}));
  ASSERT_EQ((*reader)->samples(), 5);
  EXPECT_EQ((*reader)->classes()[0].names, (std::vector<std::string>{"cat", "dog"}));
  for (int64_t i = 0; i < 5; ++i) {
    int64_t label = -1;
    ASSERT_TRUE((*reader)->read(i, 1, &label).ok());
    EXPECT_EQ(label, i >= 3);
    const std::vector<float> got = sample(**reader, i);
    const std::vector<uint8_t> expected = pillow(0, i);
    for (size_t p = 0; p < 63; ++p) {
      for (size_t c = 0; c < 3; ++c)
        ASSERT_NEAR(got[c * 63 + p] * 255, expected[p * 3 + c], 1.01) << i << " " << p << " " << c;
    }
  }
}

TEST(Images, GreyNormalisedAndLastChannels) {
  SKIP_WITHOUT_IMAGES();
  auto reader = open_images(given("images"), {{"height", int64_t{20}},
                                              {"width", int64_t{24}},
                                              {"channels", int64_t{1}},
                                              {"mean", Doubles{0.5}},
                                              {"std", Doubles{0.25}},
                                              {"layout", std::string("nhwc")}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ((*reader)->fields()[0].second, (TensorType{DType::f32, {20, 24, 1}}));
  for (int64_t i = 0; i < 5; ++i) {
    const std::vector<float> got = sample(**reader, i);
    const std::vector<uint8_t> expected = pillow(1, i);
    for (size_t p = 0; p < got.size(); ++p)
      ASSERT_NEAR((got[p] * 0.25 + 0.5) * 255, expected[p], 1.01) << i << " " << p;
  }
}

TEST(Images, CropKeepsTheMiddle) {
  SKIP_WITHOUT_IMAGES();
  const std::string folder = temporary("flat");
  fs::create_directories(folder);
  fs::copy_file(given("images/cat/b.png"), folder + "/b.png", fs::copy_options::overwrite_existing);  // 17 x 12
  auto whole = open_images(folder, {{"channels", int64_t{1}}});
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  EXPECT_EQ((*whole)->fields().size(), 1u);  // no folders, no target
  EXPECT_EQ((*whole)->fields()[0].second, (TensorType{DType::f32, {1, 12, 17}}));
  auto middle = open_images(
      folder,
      {{"channels", int64_t{1}}, {"height", int64_t{12}}, {"width", int64_t{12}}, {"fit", std::string("crop")}});
  ASSERT_TRUE(middle.ok()) << middle.status().to_string();
  const std::vector<float> all = sample(**whole, 0), part = sample(**middle, 0);
  for (size_t y = 0; y < 12; ++y) {
    for (size_t x = 0; x < 12; ++x) ASSERT_EQ(part[y * 12 + x], all[y * 17 + x + 2]);
  }
}

TEST(Images, WhatIsWrongIsNamedWithTheFile) {
  SKIP_WITHOUT_IMAGES();
  const auto first_error = [](const std::string& folder, std::initializer_list<Attributes::Entry> options = {}) {
    auto reader = open_images(folder, options);
    if (!reader.ok()) return reader.status().message();
    std::vector<float> out(static_cast<size_t>((*reader)->fields()[0].second.elements()));
    for (int64_t i = 0; i < (*reader)->samples(); ++i) {
      if (Status status = (*reader)->read(i, 0, out.data()); !status.ok()) return status.message();
    }
    return std::string();
  };
  EXPECT_TRUE(
      has(first_error(given("images")), "e.jpeg has 40 x 33 pixels, cat/a.jpg has 17 x 12; say a size for all"));
  const std::string folder = temporary("wrong");
  fs::remove_all(folder);
  fs::create_directories(folder + "/a");
  EXPECT_TRUE(has(first_error(folder), "holds no .jpg, .jpeg or .png"));
  for (const char* name : {"cat/a.jpg", "cat/c.PNG", "dog/e.jpeg"}) {
    const std::string bytes = [&] {
      std::ifstream in(given(std::string("images/") + name), std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    }();
    const std::string path = folder + "/a/x.jpg";
    for (size_t size = 0; size < bytes.size(); size += 13) {
      std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
      const std::string message = first_error(folder);
      // The last bytes of a JPEG are the mark of its end, which a decoder may do without.
      if (size + 13 < bytes.size()) {
        EXPECT_TRUE(has(message, "x.jpg")) << name << " " << size << ": " << message;
      }
    }
  }
  std::ofstream(folder + "/a/x.jpg") << "GIF89a";
  EXPECT_TRUE(has(first_error(folder), "x.jpg is neither a JPEG nor a PNG"));
  std::ofstream(folder + "/a/y.webp") << "RIFF";
  EXPECT_TRUE(has(first_error(folder), "y.webp: JPEG and PNG are read"));
  std::ofstream(folder + "/z.jpg") << "x";
  EXPECT_TRUE(has(first_error(folder), "holds images (z.jpg) beside folders (a)"));
  auto without = open_reader("", given("images"), {}, "/nowhere");
  ASSERT_FALSE(without.ok());
  EXPECT_TRUE(has(without.status().message(),
                  "an image in JPEG needs the pack images, which is not here: there is no /nowhere/libepl_images.so"))
      << without.status().message();
  EXPECT_TRUE(has(first_error(given("images"), {{"height", int64_t{4}}}), "give both"));
  EXPECT_TRUE(has(first_error(given("images"), {{"classes", std::string(R"(["cat"])")}}),
                  "folder \"dog\" is none of the classes"));
}

}  // namespace
}  // namespace epl::images_test
