// What the processes of a job know and nobody else, as the tool holds it: it stands in no core dump and is overwritten
// when it goes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace epl::tools {

class SecretText {
 public:
  SecretText() = default;
  // Takes what stands there, and overwrites it. Ends of lines behind it are no part of it.
  explicit SecretText(std::string&& text);
  std::string_view view() const;
  const char* data() const { return view().data(); }
  size_t size() const { return view().size(); }
  bool empty() const { return size() == 0; }

 private:
  class Room;
  std::shared_ptr<const Room> room_;
};

// 64 digits drawn by chance.
SecretText drawn_secret();

}  // namespace epl::tools
