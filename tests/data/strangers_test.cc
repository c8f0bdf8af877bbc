// Options that a stranger wrote: whatever any option of any reader is, no file outside the folder of the data is
// opened.
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <fstream>

#include "core/base/file.h"
#include "core/base/inside.h"
#include "core/base/json.h"
#include "core/data/open.h"
#include "tests/data/open_reader.h"

namespace epl::strangers_test {
namespace {

namespace fs = std::filesystem;

// Whether a file was opened since it was asked last.
class Watch {
 public:
  explicit Watch(const std::string& path) : descriptor_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(descriptor_, path.c_str(), IN_OPEN | IN_ACCESS), 0);
  }
  ~Watch() { ::close(descriptor_); }
  bool opened() const {
    char events[4096];
    bool any = false;
    while (::read(descriptor_, events, sizeof events) > 0) any = true;
    return any;
  }

 private:
  int descriptor_;
};

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// A folder with data of every reader, and a secret beside it.
struct World {
  TemporaryFolder folder;
  const std::string data = folder / "data", secret = folder / "secret.npy", inside = data + "/inside.npy";
  std::vector<std::pair<std::string, std::string>> files;  // reader and file

  World() {
    fs::create_directories(data + "/deeper");
    fs::copy_file(given("labels.npy"), secret);
    fs::copy_file(given("labels.npy"), inside);
    fs::copy_file(given("labels.npy"), data + "/deeper/inside.npy");
    fs::create_symlink("../secret.npy", data + "/link.npy");
    fs::create_directory_symlink("..", data + "/up");
    fs::create_symlink("inside.npy", data + "/link_inside.npy");
    fs::copy_file(given("f32.npy"), data + "/x.npy");
    fs::copy_file(given("stored.npz"), data + "/x.npz");
    fs::copy_file(given("nested.parquet"), data + "/x.parquet");
    fs::copy(given("images"), data + "/images", fs::copy_options::recursive);
    write(data + "/x.csv", "a,b,target\n1,2,0\n3,4,1\n");
    write(data + "/x.tsv", "a\tb\ttarget\n1\t2\t0\n3\t4\t1\n");
    write(data + "/x.txt", std::string(200, 'a'));
    const std::string head = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    write(data + "/x.safetensors",
          std::string(1, static_cast<char>(head.size())) + std::string(7, '\0') + head + std::string(8, '\0'));
    for (const char* name : {"csv", "tsv", "npy", "npz", "parquet", "safetensors"})
      files.emplace_back(name, cat(data, "/x.", name));
    files.emplace_back("images", data + "/images");
    files.emplace_back("text", data + "/x.txt");
  }
  std::vector<std::string> ways_out() const {
    return {secret,
            "../secret.npy",
            "./../secret.npy",
            "deeper/../../secret.npy",
            "link.npy",
            "up/secret.npy",
            "up/data/../secret.npy",
            "../../../../../../../.." + secret,
            "//" + secret,
            "..",
            folder.path(),
            "../data/../secret.npy"};
  }
};

// An option with a text, as any kind of JSON that an option may be.
std::vector<std::string> forms(const std::string& option, const std::string& text) {
  const Json name = text;
  return {print_json({{option, name}}), print_json({{option, Json::array({name})}}),
          print_json({{option, Json{{"x", name}}}})};
}

TEST(Strangers, NoOptionOfAnyReaderLeavesTheFolderOfTheData) {
  const World world;
  const Watch secret(world.secret);
  ASSERT_EQ(world.files.size(), reader_table().rows.size()) << "a reader without a file here";
  // What the watch would see.
  ASSERT_TRUE(open_dataset(world.data + "/x.npy", R"({"target": "../secret.npy"})", "", {}, "/").ok());
  ASSERT_TRUE(secret.opened());
  int tried = 0;
  for (const auto& [reader, file] : world.files) {
    const ReaderRow& row = **find_reader(reader, file);
    for (const Option& option : row.options) {
      for (const std::string& name : world.ways_out()) {
        for (const std::string& options : forms(option.name, name)) {
          const auto opened = open_dataset(file, options, "");
          EXPECT_FALSE(secret.opened()) << reader << " " << options;
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 1000);
}

TEST(Strangers, AnOptionThatNamesAFileSaysSo) {
  const World world;
  const Watch inside(world.inside);
  for (const auto& [reader, file] : world.files) {
    const ReaderRow& row = **find_reader(reader, file);
    for (const Option& option : row.options) {
      const bool declared = std::ranges::find(row.files, option.name) != row.files.end();
      for (const std::string name : {"inside.npy", "./inside.npy", "deeper/../inside.npy", "link_inside.npy"}) {
        const auto opened = open_dataset(file, forms(option.name, name)[0], "");
        EXPECT_EQ(inside.opened(), declared) << reader << " " << option.name << " " << name;
        EXPECT_TRUE(opened.ok() || !declared) << opened.status().to_string();
      }
    }
  }
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Cut, with bytes that are others, and of another kind.
std::vector<std::string> damaged(const std::string& whole, const std::vector<std::string>& others) {
  std::vector<std::string> out = others;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{9}, whole.size() / 2, whole.size() - 1})
    out.push_back(whole.substr(0, size));
  for (size_t at = 0; at < whole.size(); at += whole.size() / 60 + 1) {
    out.push_back(whole);
    out.back()[at] ^= '\x5a';
  }
  return out;
}

// What opening a file and reading some samples says.
Status read_some(const std::string& reader, const std::string& file) {
  EPL_ASSIGN(const std::unique_ptr<Reader> opened, open_reader(reader, file, {}, EPL_PACK_FOLDER));
  for (size_t field = 0; field < opened->fields().size(); ++field) {
    std::vector<std::byte> room(static_cast<size_t>(opened->fields()[field].second.bytes()));
    for (int64_t i = 0; i < std::min<int64_t>(opened->samples(), 20); ++i)
      EPL_TRY(opened->read(i, static_cast<int>(field), room.data()));
  }
  return {};
}

// A file of data is the caller's to change: what is wrong with it is no error of the library or the system.
TEST(Strangers, DamagedFilesAndThoseOfAnotherKindAreTheCallersToChange) {
  const World world;
  std::vector<std::string> all;
  for (const auto& [reader, file] : world.files)
    all.push_back(content(reader == "images" ? given("images/cat/b.png") : file));
  for (const auto& [reader, file] : world.files) {
    const std::string path = reader == "images" ? file + "/cat/a.jpg" : file, whole = content(path);
    int refused = 0;
    for (const std::string& text : damaged(whole, all)) {
      write(path, text);
      const Status status = read_some(reader, file);
      refused += !status.ok();
      const Code code = status.code();
      EXPECT_TRUE(status.ok() || code == Code::invalid_argument || code == Code::unsupported)
          << reader << ": " << status.to_string();
    }
    EXPECT_GT(refused, reader == "text" ? 1 : 5) << reader;
    write(path, whole);
  }
}

TEST(Strangers, ARefusalDoesNotTellWhatThereIs) {
  const World world;
  const std::string file = world.data + "/x.npy";
  const auto message = [&](const std::string& name) {
    const auto opened = open_dataset(file, print_json({{"target", name}}), "");
    EXPECT_FALSE(opened.ok()) << name;
    EXPECT_EQ(opened.status().code(), Code::invalid_argument) << opened.status().to_string();
    std::string text = opened.status().message();
    if (const size_t at = text.find(quoted(name)); at != std::string::npos) text.replace(at, quoted(name).size(), "");
    return text;
  };
  const std::string one = message("/etc/passwd");
  EXPECT_NE(one.find("option target of reader npy names"), std::string::npos) << one;
  EXPECT_NE(one.find("name a file in that folder"), std::string::npos) << one;
  for (const char* name : {"/etc", "/nowhere/at/all", "../secret.npy", "../nothing.npy", "up/secret.npy", "link.npy",
                           "up/nothing.npy", "deeper/../../nothing"})
    EXPECT_EQ(message(name), one);
  EXPECT_EQ(message(std::string("inside.npy\0/../x", 16)), one);
}

TEST(Strangers, AHostOpensAFolderOfItsOwn) {
  const World world;
  const std::string file = world.data + "/x.npy";
  const auto reads = [&](const std::string& target, const std::string& root) {
    return open_dataset(file, print_json({{"target", target}}), "", {}, root).ok();
  };
  EXPECT_TRUE(reads("../secret.npy", world.folder.path()));
  EXPECT_TRUE(reads(world.secret, world.folder.path()));
  EXPECT_TRUE(reads("link.npy", world.folder.path()));
  EXPECT_TRUE(reads("inside.npy", world.folder.path()));
  EXPECT_TRUE(reads(world.secret, "/"));
  EXPECT_TRUE(reads("inside.npy", "/"));
  EXPECT_FALSE(reads("../secret.npy", world.data));
  EXPECT_FALSE(reads("inside.npy", world.data + "/deeper"));
  EXPECT_FALSE(reads("inside.npy", world.folder / "nowhere"));
  // A folder whose name begins as that of the data does is another folder.
  fs::create_directory(world.folder / "data_of_others");
  fs::copy_file(world.secret, world.folder / "data_of_others/y.npy");
  EXPECT_FALSE(reads("../data_of_others/y.npy", ""));
}

TEST(Strangers, DataInTheFolderThatTheProcessIsIn) {
  const World world;
  const fs::path before = fs::current_path();
  fs::current_path(world.data);
  EXPECT_TRUE(open_dataset("x.npy", R"({"target": "inside.npy"})", "").ok());
  EXPECT_TRUE(open_dataset("./x.npy", R"({"target": "deeper/inside.npy"})", "").ok());
  EXPECT_FALSE(open_dataset("x.npy", R"({"target": "../secret.npy"})", "").ok());
  EXPECT_FALSE(open_dataset("x.npy", R"({"target": "link.npy"})", "").ok());
  // Through a link to the folder it is the same folder.
  fs::create_directory_symlink(world.data, world.folder / "by_link");
  fs::current_path(world.folder.path());
  EXPECT_TRUE(open_dataset("by_link/x.npy", R"({"target": "inside.npy"})", "").ok());
  EXPECT_FALSE(open_dataset("by_link/x.npy", R"({"target": "../secret.npy"})", "").ok());
  fs::current_path(before);
}

// No message is long, or has control characters, whatever the data and the options say.
void expect_readable(const Status& status, const std::string& what) {
  if (status.ok()) return;
  const std::string& message = status.message();
  EXPECT_LT(message.size(), 3000u) << what << ": " << message.substr(0, 300);
  for (const char c : message) {
    if (static_cast<unsigned char>(c) >= ' ' && c != '\x7f') continue;
    ADD_FAILURE() << what << " has the control character " << static_cast<int>(c) << ": " << message.substr(0, 300);
    break;
  }
}

TEST(Strangers, WhatAMessageRepeatsIsCutAndEscaped) {
  const World world;
  std::string wild;
  for (int i = 0; i < 4000; ++i) wild += static_cast<char>(i * 7 % 256 == '\0' ? 1 : i * 7 % 256);
  // Options of any kind.
  for (const auto& [reader, file] : world.files) {
    const ReaderRow& row = **find_reader(reader, file);
    for (const Option& option : row.options) {
      for (const std::string& options : forms(option.name, to_utf8(wild)))
        expect_readable(open_dataset(file, options, "").status(), cat(reader, " ", option.name));
    }
    expect_readable(open_dataset(file, print_json({{to_utf8(wild), Json(1)}}), "").status(), reader);
  }
  // Names and cells of a table.
  std::string name = wild;
  for (char& c : name) c = c == ',' || c == '\t' || c == '\n' || c == '\r' || c == '"' ? '\x02' : c;
  for (const std::string& table :
       {name + "," + name + "\n1,2\n", name + "1," + name + "2\n1,2\n", "a,b\n" + name + "," + name + "\n1,2\n",
        name + "1," + name + "2\nx,2\n", name + "1," + name + "2\n1,\n", "a," + name + "\n1,2,3\n", name, wild}) {
    for (const char* options : {"{}", R"({"classes": true})", R"({"target": "none"})", R"({"inputs": {"x": ["no"]}})",
                                R"({"missing": "mean"})", R"({"ignore": "c"})", R"({"header": true})"}) {
      for (const char* ending : {"csv", "tsv"}) {
        const std::string path = cat(world.data, "/wild.", ending);
        write(path, table);
        expect_readable(open_dataset(path, options, "").status(), cat(ending, " ", options));
      }
    }
  }
  // Names of tensors and of folders.
  const std::string tensors = print_json(
      Json{{to_utf8(wild), Json{{"dtype", "F32"}, {"shape", Json::array({2})}, {"data_offsets", Json::array({0, 8})}}},
           {to_utf8(wild) + "b",
            Json{{"dtype", "F32"}, {"shape", Json::array({1})}, {"data_offsets", Json::array({8, 12})}}}});
  std::string head(8, '\0');
  for (size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(tensors.size() >> (8 * i) & 255);
  write(world.data + "/wild.safetensors", head + tensors + std::string(12, '\0'));
  for (const char* options : {"{}", R"({"fields": {"x": "none"}})"})
    expect_readable(open_dataset(world.data + "/wild.safetensors", options, "").status(), "safetensors");
  fs::create_directory(world.data + "/images/\x01\x02wild");
  expect_readable(open_dataset(world.data + "/images", R"({"classes": ["a"]})", "").status(), "images");
  // Whatever comes, as any reader.
  for (const ReaderRow& row : reader_table().rows) {
    const std::string path = world.data + "/anything";
    write(path, wild);
    expect_readable(open_dataset(path, print_json({{"reader", row.name}}), "").status(), row.name);
  }
}

}  // namespace
}  // namespace epl::strangers_test
