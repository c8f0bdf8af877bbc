// Writes a model back with other values for some initialisers, and for inference with the edits of inference.h. Every
// other byte of its messages is copied. Only the messages around a change get new lengths.
#include <algorithm>
#include <cstring>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <set>

#include "core/base/file.h"
#include "core/base/shown.h"
#include "core/base/tensor_file.h"
#include "frontends/onnx/annotations.h"
#include "frontends/onnx/fields.h"
#include "frontends/onnx/inference.h"
#include "frontends/onnx/message_parts.h"
#include "frontends/onnx/model.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

using Replaced = std::map<std::string, epl::Tensor>;

// A file of tensor data beside the model, when one is needed.
struct Beside {
  std::unique_ptr<FileWriter> file;
  std::string location;
  int64_t offset = 0;
};

// New values by the byte of the file at which a tensor's message begins: initialisers, and what nodes hold.
using ReplacedAt = std::map<size_t, epl::Tensor>;

class Rewriting {
 public:
  // The messages below are views of `bytes`.
  Rewriting(const ModelBytes& bytes, const ReplacedAt& replaced, const DequantizedEdits& dequantized,
            const InferenceEdits* edits, const DeviceAnnotations* annotations, Beside* beside)
      : bytes_(bytes),
        replaced_(replaced),
        dequantized_(dequantized),
        edits_(edits),
        annotations_(annotations),
        beside_(beside) {}

  Result<MessageParts> model(std::string_view message) {
    MessageParts out;
    const auto change = [&](uint32_t tag, std::string_view view) {
      if (annotations_ != nullptr && is_replaced_annotation(tag, view)) return Result<Change>(Change::gone);
      if (tag == schema::ModelProto::graph) return graph(view, true);
      if (tag == schema::ModelProto::functions && (edits_ != nullptr || replaces_in(view))) return function(view);
      return Result<Change>(Change::none);
    };
    EPL_TRY(fields(message, out, change, annotations_ != nullptr ? uint32_t{schema::ModelProto::ir_version} : 0));
    if (annotations_ != nullptr) out.add(model_annotations(*annotations_, says_all(), message));
    return out;
  }

 private:
  // What happens to a field: it stays, it is removed, or `made_` holds its new message.
  enum class Change : uint8_t { none, gone, made };

  // Appends a message field by field; f(tag, view) says what becomes of one that holds bytes, and a number of tag
  // `dropped` is left out.
  template <class F> Status fields(std::string_view message, MessageParts& out, F&& f, uint32_t dropped = 0) {
    FieldCopier fields(message);
    while (fields.next()) {
      const uint32_t tag = fields.tag();
      if (fields.reader().wire_type() != protozero::pbf_wire_type::length_delimited) {
        fields.reader().skip();
        const std::string_view field = fields.raw();
        if (tag != dropped) out.copy(field);
        continue;
      }
      const std::string_view view = fields.message();
      const std::string_view field = fields.raw();
      EPL_ASSIGN(Change change, f(tag, view));
      if (change == Change::none) out.copy(field);
      if (change == Change::made) out.add_message(tag, std::move(made_));
      for (const std::string& more : after_) {
        MessageParts message;
        message.add(more);
        out.add_message(tag, std::move(message));
      }
      after_.clear();
    }
    return {};
  }

  Result<Change> made(MessageParts message) {
    made_ = std::move(message);
    return Change::made;
  }

  size_t offset(std::string_view view) const {
    return static_cast<size_t>(reinterpret_cast<const std::byte*>(view.data()) - bytes_.bytes().data());
  }
  bool replaces_in(std::string_view view) const {
    auto it = replaced_.lower_bound(offset(view));
    return it != replaced_.end() && it->first < offset(view) + view.size();
  }

  // `top`: the graph itself, whose inputs and outputs are edited as well.
  Result<Change> graph(std::string_view message, bool top) {
    MessageParts out;
    EPL_TRY(fields(message, out, [&](uint32_t tag, std::string_view view) {
      if (tag == schema::GraphProto::node) return node(view, top);
      if (top && (cut(tag, view) || stored_dense(tag, view))) return Result<Change>(Change::gone);
      return tag == schema::GraphProto::initializer ? tensor(view) : Result<Change>(Change::none);
    }));
    for (const auto& [name, value] : dequantized_.added) {
      if (!top || (edits_ != nullptr && edits_->cuts_initializer(name))) continue;
      MessageParts tensor;
      std::string text;
      protozero::pbf_writer writer(text);
      for (int64_t dim : value.shape()) writer.add_int64(schema::TensorProto::dims, dim);
      writer.add_int32(schema::TensorProto::data_type, data_type_of(value.dtype()));
      writer.add_string(schema::TensorProto::name, name.data(), name.size());
      tensor.add(text);
      EPL_TRY(add_data(tensor, value));
      out.add_message(schema::GraphProto::initializer, std::move(tensor));
    }
    return made(std::move(out));
  }

  Result<Change> function(std::string_view message) {
    MessageParts out;
    EPL_TRY(fields(message, out, [&](uint32_t tag, std::string_view view) {
      return tag == schema::FunctionProto::node ? node(view, false) : Result<Change>(Change::none);
    }));
    return made(std::move(out));
  }

  // Whether a field is a sparse initialiser that has new numbers.
  bool stored_dense(uint32_t tag, std::string_view message) const {
    if (tag != schema::GraphProto::sparse_initializer) return false;
    const std::string_view values = text_of(message, schema::SparseTensorProto::values);
    return dequantized_.added.contains(text_of(values, schema::TensorProto::name));
  }

  // Whether the edits cut a field of the graph.
  bool cut(uint32_t tag, std::string_view message) const {
    namespace f = schema::GraphProto;
    if (tag != f::input && tag != f::output && tag != f::value_info && tag != f::initializer) return false;
    if (edits_ == nullptr && dequantized_.leaves.empty()) return false;
    const uint32_t name_tag =
        tag == f::initializer ? uint32_t{schema::TensorProto::name} : uint32_t{schema::ValueInfoProto::name};
    const std::string_view name = text_of(message, name_tag);
    if ((tag == f::input || tag == f::initializer) && dequantized_.leaves.contains(name)) return true;
    if (edits_ == nullptr) return false;
    if (tag == f::input) return edits_->cuts_input(name);
    if (tag == f::output) return edits_->cuts_output(name);
    if (tag == f::value_info) return edits_->cuts_value_info(name);
    return edits_->cuts_initializer(name);
  }

  static std::string_view text_of(std::string_view message, uint32_t tag) {
    std::string_view text;
    for (FieldCopier fields(message); fields.next();) {
      fields.tag() == tag ? static_cast<void>(text = fields.message()) : fields.reader().skip();
    }
    return text;
  }

  // The devices of a node of the graph itself.
  std::string devices_of(std::string_view message) {
    if (annotations_ == nullptr) return {};
    namespace f = schema::NodeProto;
    std::vector<std::string_view> inputs, outputs;
    for (FieldCopier fields(message); fields.next();) {
      const uint32_t tag = fields.tag();
      if (tag == f::input || tag == f::output) {
        (tag == f::input ? inputs : outputs).push_back(fields.message());
      } else {
        fields.reader().skip();
      }
    }
    std::string_view name = text_of(message, f::name);
    if (name.empty() && !outputs.empty()) name = outputs.front();
    inputs.insert(inputs.end(), outputs.begin(), outputs.end());
    return node_annotation(*annotations_, name, inputs, said_);
  }

  // A weight in shards that only a function or an inner graph reads has no node that could say so.
  bool says_all() const {
    return annotations_->complete && std::ranges::all_of(annotations_->weights, [&](const auto& weight) {
             const auto is_cut = [](const auto& one) { return one.second.ranks.size() > 1; };
             return said_.contains(weight.first) || std::ranges::none_of(weight.second, is_cut);
           });
  }

  // `top`: of the graph itself.
  Result<Change> node(std::string_view message, bool top) {
    namespace f = schema::NodeProto;
    static const NodeEdit none;
    if (dequantized_.nodes.contains(offset(message))) return Change::gone;
    const NodeEdit* found = edits_ != nullptr ? edits_->node(offset(message)) : nullptr;
    const std::string devices = top ? devices_of(message) : std::string();
    const bool annotates = top && annotations_ != nullptr;
    if (found == nullptr && !annotates && !replaces_in(message)) return Change::none;
    const NodeEdit& edit = found != nullptr ? *found : none;
    if (edit.goes) return Change::gone;
    size_t inputs = 0, outputs = 0;
    MessageParts out;
    EPL_TRY(fields(message, out, [&](uint32_t tag, std::string_view view) {
      if (tag == f::attribute) return attribute(view, edit);
      if (annotates && is_own_devices(tag, view)) return Result<Change>(Change::gone);
      const bool cut = (tag == f::input && inputs++ >= edit.inputs) || (tag == f::output && outputs++ >= edit.outputs);
      return Result<Change>(cut ? Change::gone : Change::none);
    }));
    out.add(devices);
    for (const auto& [value, name] : edit.copies) {
      protozero::pbf_writer writer(after_.emplace_back());
      writer.add_string(f::input, value.data(), value.size());
      writer.add_string(f::output, name.data(), name.size());
      writer.add_string(f::op_type, "Identity");
    }
    return made(std::move(out));
  }

  Result<Change> attribute(std::string_view message, const NodeEdit& edit) {
    namespace f = schema::AttributeProto;
    const bool mode = edit.inference_mode && text_of(message, f::name) == training_mode;
    if (!edit.inside && !mode && !replaces_in(message)) return Change::none;
    MessageParts out;
    if (mode) {
      std::string text;
      protozero::pbf_writer writer(text);
      writer.add_string(f::name, training_mode.data(), training_mode.size());
      writer.add_int64(f::i, 0);
      writer.add_enum(f::type, f::AttributeType_INT);
      out.add(text);
      return made(std::move(out));
    }
    EPL_TRY(fields(message, out, [&](uint32_t tag, std::string_view view) {
      if (tag == f::g) return graph(view, false);
      return tag == f::t ? tensor(view) : Result<Change>(Change::none);
    }));
    return made(std::move(out));
  }

  Result<Change> tensor(std::string_view message) {
    auto it = replaced_.find(offset(message));
    if (it == replaced_.end()) return Change::none;
    EPL_ASSIGN(MessageParts out, with_data(message, it->second));
    return made(std::move(out));
  }

  // The tensor's other fields, then the new data.
  Result<MessageParts> with_data(std::string_view message, const epl::Tensor& value) {
    namespace f = schema::TensorProto;
    MessageParts out;
    FieldCopier fields(message);
    while (fields.next()) {
      uint32_t tag = fields.reader().tag();
      fields.reader().skip();
      std::string_view field = fields.raw();
      bool data = tag == f::raw_data || tag == f::float_data || tag == f::int32_data || tag == f::int64_data ||
                  tag == f::double_data || tag == f::uint64_data || tag == f::external_data || tag == f::data_location;
      if (!data) out.copy(field);
    }
    EPL_TRY(add_data(out, value));
    return out;
  }

  // A tensor's numbers: in its message, or in the file beside the model with their place in the message.
  Status add_data(MessageParts& out, const epl::Tensor& value) {
    namespace f = schema::TensorProto;
    if (!beside_) {
      MessageParts raw;
      raw.add(value);
      out.add_message(f::raw_data, std::move(raw));
      return {};
    }
    std::string text;
    protozero::pbf_writer writer(text);
    constexpr int64_t page = 4096;  // so that a reader can map each tensor
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
    EPL_TRY(write_tensor(*beside_->file, value));
    beside_->offset += value.bytes();
    out.add(text);
    return {};
  }

  const ModelBytes& bytes_;
  const ReplacedAt& replaced_;
  const DequantizedEdits& dequantized_;
  const InferenceEdits* edits_;  // none: the file stays one for training
  const DeviceAnnotations* annotations_;
  std::set<std::string_view> said_;  // weights whose shards are annotated
  Beside* beside_;
  MessageParts made_;
  std::vector<std::string> after_;  // further messages under the tag of the one that is made
};

// Calls f with the tensors of nodes, those of graphs within them included.
template <class F> void for_each_tensor(const std::vector<Node>& nodes, F& f) {
  for (const Node& node : nodes) {
    for (const Attribute& a : node.attributes) {
      if (a.t) f(*a.t);
      if (!a.g) continue;
      for (const Tensor& tensor : a.g->initializers) f(tensor);
      for_each_tensor(a.g->nodes, f);
    }
  }
}

std::vector<const Tensor*> external_tensors(const File& file) {
  std::vector<const Tensor*> found;
  auto note = [&](const Tensor& tensor) {
    if (tensor.external) found.push_back(&tensor);
  };
  for (const Tensor& tensor : file.graph.initializers) note(tensor);
  for_each_tensor(file.graph.nodes, note);
  for (const Function& function : file.functions) for_each_tensor(function.nodes, note);
  return found;
}

}  // namespace

// What a model is written again with.
struct OnnxModel::Rewrite {
  ReplacedAt values;
  std::map<std::string_view, epl::Tensor> dequantized;
  DequantizedEdits real_numbers;
  std::optional<InferenceEdits> edits;
  std::map<std::string_view, epl::Tensor> sparse;  // stored dense from now on
  const DeviceAnnotations* annotations = nullptr;
  bool external = false;  // the original has data beside it
  size_t bytes = 0;       // at most, where all is in one file

  Result<MessageParts> run(const ModelBytes& from, Beside* beside) const {
    const std::string_view message(reinterpret_cast<const char*>(from.bytes().data()), from.bytes().size());
    try {
      return Rewriting(from, values, real_numbers, edits ? &*edits : nullptr, annotations, beside).model(message);
    } catch (const protozero::exception& e) {
      return Status(Code::invalid_model, cat("the model cannot be written again: ", damage_text(e)));
    }
  }
};

Result<OnnxModel::Rewrite> OnnxModel::rewrite(const Replaced& replaced, const ModelSaveOptions& options) const {
  Rewrite out;
  out.bytes = bytes_->bytes().size();
  out.annotations = options.annotations;
  for (const auto& [name, value] : replaced) {
    out.bytes += static_cast<size_t>(value.bytes());
    if (const TensorType* real = quantized_.find(name)) {
      if (*real != value.type())
        return invalid("weight ", name, " is ", real->text(), ", its new value ", value.type().text());
      out.dequantized.emplace(name, value);
      continue;
    }
    const Tensor* tensor = initializer(name);
    if (!tensor) return error(Code::not_found, "the model has no initialiser ", shown(name, 200));
    EPL_ASSIGN(TensorType type, tensor_type(*tensor));
    if (type != value.type())
      return invalid("initialiser ", name, " is ", type.text(), ", its new value ", value.type().text());
    if (tensor->dense) {
      out.sparse.emplace(tensor->name, value);
    } else {
      out.values.emplace(tensor->at, value);
    }
  }
  // Data that lies beside the original goes along as well.
  for (const Tensor* tensor : external_tensors(file_)) {
    out.external = true;
    if (out.values.contains(tensor->at)) continue;
    EPL_ASSIGN(epl::Tensor value, tensor_value(*tensor, bytes_));
    out.bytes += static_cast<size_t>(value.bytes());
    out.values.emplace(tensor->at, std::move(value));
  }
  if (options.for_inference) {
    EPL_ASSIGN(out.edits, InferenceEdits::of(file_, options.loss_output));
  }
  out.real_numbers = quantized_.edits(out.dequantized);
  out.real_numbers.added.insert(out.sparse.begin(), out.sparse.end());
  return out;
}

Status OnnxModel::save(const std::string& path, const Replaced& replaced, const ModelSaveOptions& options) const {
  EPL_ASSIGN(const Rewrite how, rewrite(replaced, options));
  MessageParts made;
  FileHook hook = options.hook;
  if (how.external || how.bytes >= size_t{max_message}) {
    size_t slash = path.rfind('/');
    Beside beside;
    beside.location = cat(slash == std::string::npos ? path : path.substr(slash + 1), ".data");
    std::string data_path = cat(path, ".data"), temporary = cat(data_path, ".part");
    EPL_ASSIGN(beside.file, FileWriter::create(temporary, options.hook));
    auto rewritten = how.run(*bytes_, &beside);
    Status status = rewritten.status();
    if (status.ok()) status = beside.file->finish();
    if (status.ok()) status = rename_durably(temporary, data_path, options.hook);
    if (!status.ok()) {
      (void)remove_file(temporary);
      return status;
    }
    made = *std::move(rewritten);
    hook = nullptr;  // the new data has its name: the file that says where in it tensors are follows
  } else {
    EPL_ASSIGN(made, how.run(*bytes_, nullptr));
  }
  return write_file_atomically(path, [&](FileWriter& file) { return made.write(file, *bytes_); }, hook);
}

Status OnnxModel::write(ByteWriter& out, const Replaced& replaced, const ModelSaveOptions& options) const {
  EPL_ASSIGN(const Rewrite how, rewrite(replaced, options));
  EPL_ASSIGN(const MessageParts made, how.run(*bytes_, nullptr));
  if (made.size() >= size_t{max_message})
    return unsupported("the model has ", made.size(), " bytes, and an ONNX file of its own has less than ", max_message,
                       "; export it to a path, where its weights go into a file beside it");
  return made.write(out, *bytes_);
}

}  // namespace epl::onnx
