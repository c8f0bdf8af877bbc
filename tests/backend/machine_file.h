// A file that says what a machine does, as a test writes it: whole, changed in a part, and refused.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/base/status.h"
#include "tests/temporary_folder.h"

namespace epl {

// Said: what is read from the file, by `reads`, which names the file in its errors.
template <class Said> class MachineFile : public testing::Test {
 protected:
  using Reads = Result<Said> (*)(const std::string& path);
  MachineFile(const char* whole, const char* name, Reads reads) : whole_(whole), name_(name), reads_(reads) {}

  std::string path() const { return folder / name_; }
  Result<Said> read(const std::string& text) {
    std::ofstream(path(), std::ios::trunc) << text;
    return reads_(path());
  }
  void refuse(const std::string& text, std::string_view words) {
    const auto said = read(text);
    ASSERT_FALSE(said.ok()) << text;
    EXPECT_NE(said.status().message().find(words), std::string::npos) << said.status().message();
    EXPECT_NE(said.status().message().find(name_), std::string::npos) << said.status().message();
  }
  // The whole one with `with` for a part of its text.
  std::string changed(const std::string& before, const std::string& with) {
    std::string text = whole_;
    const size_t at = text.find(before);
    EXPECT_NE(at, std::string::npos) << before;
    return text.replace(at, before.size(), with);
  }

  TemporaryFolder folder;

 private:
  const char* whole_;
  const char* name_;
  Reads reads_;
};

}  // namespace epl
