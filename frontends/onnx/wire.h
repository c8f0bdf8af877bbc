// Fields of the wire format, of the types that the schema gives them. What is read may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontends/onnx/proto.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

// The bytes of a file, and where the message begins that is read.
class Wire {
 protected:
  explicit Wire(std::span<const std::byte> bytes) : base_(reinterpret_cast<const char*>(bytes.data())), bytes_(bytes) {}

  protozero::data_view all() const { return {base_, bytes_.size()}; }

  struct Refused {
    std::string why;
  };

  template <class F> Status guard(F&& f) {
    try {
      f();
    } catch (const protozero::exception& e) {
      return Status(Code::invalid_model,
                    cat("damaged or truncated ONNX file: ", damage_text(e), " in the message at byte ", at_),
                    cat("byte ", at_));
    } catch (const Refused& refused) {
      return Status(Code::invalid_model, cat(refused.why, " in the message at byte ", at_), cat("byte ", at_));
    }
    return {};
  }

  size_t begin(const protozero::data_view& data) {
    at_ = static_cast<size_t>(data.data() - base_);
    return at_;
  }

  // Fields of a type that the schema does not give are an error, so that a hostile file cannot confuse kinds.
  static void want(const pbf_reader& m, pbf_wire_type type) {
    if (m.wire_type() != type) throw Refused{cat("field ", m.tag(), " has the wrong wire type")};
  }
  static std::string_view text(pbf_reader& m) {
    want(m, pbf_wire_type::length_delimited);
    return view(m.get_view());
  }
  static protozero::data_view message(pbf_reader& m) {
    want(m, pbf_wire_type::length_delimited);
    return m.get_view();
  }
  static int64_t number(pbf_reader& m) {
    want(m, pbf_wire_type::varint);
    return m.get_int64();
  }
  static void numbers(pbf_reader& m, std::vector<int64_t>& out) {
    if (m.wire_type() == pbf_wire_type::varint) {
      out.push_back(m.get_int64());
      return;
    }
    want(m, pbf_wire_type::length_delimited);
    auto range = m.get_packed_int64();
    out.insert(out.end(), range.begin(), range.end());
  }

  static std::string_view view(const protozero::data_view& data) { return {data.data(), data.size()}; }

  // Takes the value of one key.
  void metadata(protozero::data_view data, std::string_view wanted, std::string_view& out) {
    const auto [key, value] = entry(data);
    if (key == wanted) out = value;
  }

  std::pair<std::string_view, std::string_view> entry(protozero::data_view data) {
    namespace f = schema::StringStringEntryProto;
    std::pair<std::string_view, std::string_view> out;
    for (pbf_reader m(data); m.next();) {
      switch (m.tag()) {
        case f::key:
          out.first = text(m);
          break;
        case f::value:
          out.second = text(m);
          break;
        default:
          m.skip();
      }
    }
    return out;
  }

 private:
  const char* base_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace epl::onnx
