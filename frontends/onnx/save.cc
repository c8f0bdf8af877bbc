// A model written again with other values for some initialisers, and for inference with the edits of inference.h; every other
// byte of its messages is copied as it is. Only the messages on the way to what changes get new lengths.
#include <algorithm>
#include <cstring>
#include <optional>

#include <protozero/pbf_writer.hpp>

#include "core/base/file.h"
#include "frontends/onnx/fields.h"
#include "frontends/onnx/inference.h"
#include "frontends/onnx/model.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

constexpr size_t largest_message = size_t{2} << 30;   // protobuf's limit: beyond it data goes to a file of its own

using Replaced = std::map<std::string, epl::Tensor>;

// A file of tensor data beside the model, when one is needed.
struct Beside {
  std::unique_ptr<FileWriter> file;
  std::string location;
  int64_t offset = 0;
};

class Rewriting {
 public:
  Rewriting(const Replaced& replaced, const InferenceEdits* edits, Beside* beside) : replaced_(replaced), edits_(edits), beside_(beside) {}

  Result<std::string> model(std::string_view message) {
    std::string out;
    FieldCopier fields(message);
    while (fields.next()) {
      const bool function = edits_ != nullptr && fields.tag() == schema::ModelProto::functions;
      if (fields.tag() != schema::ModelProto::graph && !function) {
        fields.reader().skip();
        out += fields.raw();
        continue;
      }
      const std::string_view view = fields.message();
      const std::string_view field = fields.raw();
      if (function) {
        edits_->function(view, field, out);
        continue;
      }
      EPL_ASSIGN(std::string graph, this->graph(view));
      append_message(out, schema::ModelProto::graph, graph);
    }
    return out;
  }

 private:
  // A field of the graph that the edits for inference change or cut, appended to `out` where it stays; false for every other field.
  bool edit(uint32_t tag, std::string_view message, std::string_view field, std::string& out) const {
    namespace f = schema::GraphProto;
    if (edits_ == nullptr) return false;
    if (tag == f::node) {
      edits_->node(message, field, out);
      return true;
    }
    if (tag != f::input && tag != f::output && tag != f::value_info && tag != f::initializer) return false;
    const uint32_t name_tag = tag == f::initializer ? uint32_t{schema::TensorProto::name} : uint32_t{schema::ValueInfoProto::name};
    std::string_view name;
    for (FieldCopier fields(message); fields.next();) {
      fields.tag() == name_tag ? static_cast<void>(name = fields.message()) : fields.reader().skip();
    }
    if (tag == f::input) return edits_->cuts_input(name);
    if (tag == f::output) return edits_->cuts_output(name);
    if (tag == f::value_info) return edits_->cuts_value_info(name);
    return edits_->cuts_initializer(name);
  }

  Result<std::string> graph(std::string_view message) {
    std::string out;
    FieldCopier fields(message);
    while (fields.next()) {
      const uint32_t tag = fields.tag();
      if (fields.reader().wire_type() != protozero::pbf_wire_type::length_delimited) {
        fields.reader().skip();
        out += fields.raw();
        continue;
      }
      const std::string_view view = fields.message();
      const std::string_view field = fields.raw();
      if (edit(tag, view, field, out)) continue;
      if (tag != schema::GraphProto::initializer) {
        out += field;
        continue;
      }
      EPL_ASSIGN(Tensor tensor, read_tensor(std::as_bytes(std::span(view.data(), view.size()))));
      auto value = replaced_.find(std::string(tensor.name));
      if (value == replaced_.end()) {
        out += field;
        continue;
      }
      EPL_ASSIGN(TensorType type, tensor_type(tensor));
      if (type != value->second.type()) {
        return invalid("initialiser ", tensor.name, " is ", type.text(), ", its new value ", value->second.type().text());
      }
      EPL_ASSIGN(std::string made, this->tensor(view, value->second));
      append_message(out, schema::GraphProto::initializer, made);
    }
    return out;
  }

  // The tensor's other fields, then the new data.
  Result<std::string> tensor(std::string_view message, const epl::Tensor& value) {
    namespace f = schema::TensorProto;
    std::string out;
    FieldCopier fields(message);
    while (fields.next()) {
      uint32_t tag = fields.reader().tag();
      fields.reader().skip();
      std::string_view field = fields.raw();
      bool data = tag == f::raw_data || tag == f::float_data || tag == f::int32_data || tag == f::int64_data || tag == f::double_data ||
                  tag == f::uint64_data || tag == f::external_data || tag == f::data_location;
      if (!data) out += field;
    }
    protozero::pbf_writer writer(out);
    if (!beside_) {
      writer.add_bytes(f::raw_data, static_cast<const char*>(value.data()), static_cast<size_t>(value.bytes()));
      return out;
    }
    constexpr int64_t page = 4096;   // so that a reader can map each tensor
    static const std::vector<char> zeros(page, 0);
    int64_t padding = (page - beside_->offset % page) % page;
    EPL_TRY(beside_->file->write(zeros.data(), static_cast<size_t>(padding)));
    beside_->offset += padding;
    auto entry = [&](const char* key, const std::string& text) {
      protozero::pbf_writer external(writer, f::external_data);
      external.add_string(schema::StringStringEntryProto::key, key);
      external.add_string(schema::StringStringEntryProto::value, text);
    };
    entry("location", beside_->location);
    entry("offset", cat(beside_->offset));
    entry("length", cat(value.bytes()));
    writer.add_enum(f::data_location, 1);
    EPL_TRY(beside_->file->write(value.data(), static_cast<size_t>(value.bytes())));
    beside_->offset += value.bytes();
    return out;
  }

  const Replaced& replaced_;
  const InferenceEdits* edits_;   // none: the file stays one for training
  Beside* beside_;
};

bool contains_external(const File& file) {
  return std::ranges::any_of(file.graph.initializers, [](const Tensor& t) { return t.external; });
}

}  // namespace

Status OnnxModel::save(const std::string& path, const Replaced& replaced, const ModelSaveOptions& options) const {
  Replaced values = replaced;
  for (const auto& [name, value] : values) {
    if (!initializer(name)) return error(Code::not_found, "the model has no initialiser \"", name, "\"");
  }
  size_t bytes = bytes_.size();
  for (const auto& [name, value] : values) bytes += static_cast<size_t>(value.bytes());
  bool external = contains_external(file_);
  // What lay beside the original must lie beside the copy as well: all of it, in one new file.
  if (external) {
    for (const Tensor& tensor : file_.graph.initializers) {
      if (!tensor.external || values.contains(std::string(tensor.name))) continue;
      EPL_ASSIGN(epl::Tensor value, tensor_value(tensor, owner_, directory_));
      values.emplace(std::string(tensor.name), std::move(value));
    }
  }
  std::string_view message(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  std::optional<InferenceEdits> edits;
  if (options.for_inference) {
    EPL_ASSIGN(edits, InferenceEdits::of(file_, message.data(), options.loss_output));
  }
  auto rewrite = [&](Beside* beside) -> Result<std::string> {
    try {
      return Rewriting(values, edits ? &*edits : nullptr, beside).model(message);
    } catch (const protozero::exception& e) {
      return Status(Code::invalid_model, cat("the model cannot be written again: ", e.what()));
    }
  };
  std::string text;
  if (external || bytes >= largest_message) {
    size_t slash = path.rfind('/');
    Beside beside;
    beside.location = cat(slash == std::string::npos ? path : path.substr(slash + 1), ".data");
    std::string data_path = cat(path, ".data"), temporary = cat(data_path, ".part");
    EPL_ASSIGN(beside.file, FileWriter::create(temporary));
    auto made = rewrite(&beside);
    if (!made.ok()) {
      (void)remove_file(temporary);
      return made.status();
    }
    text = *std::move(made);
    EPL_TRY(beside.file->finish());
    EPL_TRY(rename_durably(temporary, data_path));
  } else {
    EPL_ASSIGN(text, rewrite(nullptr));
  }
  return write_file_atomically(path, [&](FileWriter& file) { return file.write(text.data(), text.size()); });
}

}  // namespace epl::onnx
