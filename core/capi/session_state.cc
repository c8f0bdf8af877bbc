// What a session keeps, by name, and how it gets out: tensors, checkpoints, exported models.
#include <algorithm>

#include "core/base/check.h"
#include "core/base/json.h"
#include "core/base/shown.h"
#include "core/capi/dataset.h"
#include "core/capi/session.h"
#include "core/capi/streams.h"
#include "core/runtime/export.h"
#include "core/runtime/session_checkpoint.h"

namespace epl::capi {
// The data is looked at once: its samples do not change, or nothing holds.
TrainingData training_data(const epl_dataset* dataset) {
  if (dataset == nullptr) return {};
  if (!dataset->facts) dataset->facts = describe_data(*dataset->opened.dataset);
  return {dataset->opened.dataset.get(), *dataset->facts};
}

namespace {

// Writes by f(writer) where there is a function to write by, and calls f(null) where other processes write.
template <class F> Status write_or_help(epl_write_fn write, void* userdata, const Stop& stop, F&& f) {
  if (write == nullptr) return f(nullptr);
  HostWriter writer(write, userdata, stop);
  return f(&writer);
}

// Reads what may be in this process alone, or in shards with all: then they call together.
template <class F> Status read_state(const epl_session& session, const char* call, bool full, F&& f) {
  if (full || !session.session->world().over_processes()) return f();
  const CallScope calling(session.session->world().call(), call);
  return session.session->world().make_call(f);
}
bool has_all_weights(const Session& session) {
  const std::vector<std::string> names = state_names(session.plan(), StateKind::parameter);
  return std::ranges::all_of(names, [&](const std::string& name) { return session.state().has_full(name); });
}

// Takes the dataset for a call that has the session already; NULL is fine.
template <class F> Status with_optional_dataset(epl_dataset* dataset, F&& f) {
  return dataset == nullptr ? f() : with_caller(dataset, "dataset", f);
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

int64_t epl_session_state_count(const epl_session* session, int32_t kind) {
  if (!alive(session) || kind < 0 || kind > EPL_STATE_GRADIENT) return 0;
  return static_cast<int64_t>(session->names[kind].size());
}

epl_error* epl_session_state_port(const epl_session* session, int32_t kind, int64_t index, epl_tensor_info* info) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(session);
    EPL_REQUIRE(info);
    int64_t count = epl_session_state_count(session, kind);
    if (index < 0 || index >= count)
      return invalid("there is no state ", index, " of kind ", kind, "; there are ", count);
    const StateSlot* slot = session->session->plan().state().find(session->names[kind][static_cast<size_t>(index)]);
    EPL_CHECK(slot != nullptr, "state without a slot");
    return write_info(slot->name, slot->type.dtype, slot->type.shape, info);
  });
}

epl_error* epl_session_get(epl_session* session, const char* name, size_t name_length, const epl_call_options* call,
                           epl_tensor** tensor) {
  return giving(tensor, "tensor", [&]() -> Result<std::unique_ptr<epl_tensor>> {
    auto made = std::make_unique<epl_tensor>();
    EPL_TRY(in_session(session, [&]() -> Status {
      EPL_TEXT_ARGUMENT(name);
      const bool known = session->session->plan().state().find(name_text) != nullptr;
      return read_state(
          *session, "epl_session_get", !known || session->session->state().has_full(name_text), [&]() -> Status {
            EPL_ASSIGN(const Call begun, begin_call(*session, call));
            const StopScope stopping(session->session->world().call(), begun.stop);
            EPL_ASSIGN(const Tensor value, session->session->state().view(name_text));
            std::shared_ptr<const void> memory = allocate_bytes(session->engine, static_cast<size_t>(value.bytes()));
            EPL_TRY(value.read(0, value.bytes(), const_cast<void*>(memory.get())));
            const void* data = memory.get();
            made->tensor = Tensor(value.type(), std::move(memory), data);
            made->engine = session->engine;
            return {};
          });
    }));
    return made;
  });
}

epl_error* epl_session_set(epl_session* session, const char* name, size_t name_length, const epl_tensor* tensor,
                           const epl_call_options* call) {
  return with_session(session, [&]() -> Status {
    EPL_REQUIRE(tensor);
    EPL_TRY(check_on_host(*tensor, "tensor"));
    EPL_TEXT_ARGUMENT(name);
    EPL_ASSIGN(const Call begun, begin_call(*session->engine, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return session->session->state().set_checked(name_text, tensor->tensor);
  });
}

epl_error* epl_session_hash(epl_session* session, const epl_call_options* call, uint64_t* hash) {
  return with_session(session, [&]() -> Status {
    return read_state(*session, "epl_session_hash", has_all_weights(*session->session), [&]() -> Status {
      EPL_REQUIRE(hash);
      EPL_ASSIGN(const Call begun, begin_call(*session, call));
      const StopScope stopping(session->session->world().call(), begun.stop);
      EPL_ASSIGN(*hash, session->session->state().hash());
      return {};
    });
  });
}

epl_error* epl_session_save(epl_session* session, const char* path, size_t path_length, const epl_dataset* dataset,
                            const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return with_optional_dataset(const_cast<epl_dataset*>(dataset), [&]() -> Status {
      return save_session(*session->session, std::string(path_text), training_data(dataset));
    });
  });
}

epl_error* epl_session_load(epl_session* session, const char* path, size_t path_length, epl_dataset* dataset,
                            const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return with_optional_dataset(
        dataset, [&] { return load_session(*session->session, std::string(path_text), training_data(dataset)); });
  });
}

epl_error* epl_session_save_to(epl_session* session, epl_write_fn write, void* userdata, const epl_dataset* dataset,
                               const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return with_optional_dataset(const_cast<epl_dataset*>(dataset), [&]() -> Status {
      return write_or_help(write, userdata, begun.stop, [&](ByteWriter* out) {
        return write_session(*session->session, out, training_data(dataset));
      });
    });
  });
}

epl_error* epl_session_load_from(epl_session* session, const epl_source* source, epl_dataset* dataset,
                                 const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_ASSIGN(HostSource from, HostSource::of(source, "source"));
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    EPL_TRY(with_optional_dataset(dataset, [&] {
      return load_session(*session->session, CheckpointFiles::in_archive(from.files().file), training_data(dataset));
    }));
    from.keep();
    return {};
  });
}

epl_error* epl_session_load_bytes(epl_session* session, const void* data, size_t bytes, epl_dataset* dataset,
                                  const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_REQUIRE(data);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    const auto file = FileReader::of_bytes("the host's memory", {static_cast<const std::byte*>(data), bytes}, nullptr);
    return with_optional_dataset(dataset, [&] {
      return load_session(*session->session, CheckpointFiles::in_archive(file), training_data(dataset));
    });
  });
}

epl_error* epl_session_compare(epl_session* session, const char* path, size_t path_length, const epl_dataset* dataset,
                               const epl_call_options* call, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    Json out = Json::array();
    EPL_TRY(in_session(session, [&]() -> Status {
      EPL_TEXT_ARGUMENT(path);
      EPL_ASSIGN(const Call begun, begin_call(*session->engine, call));
      const StopScope stopping(session->session->world().call(), begun.stop);
      return with_optional_dataset(const_cast<epl_dataset*>(dataset), [&]() -> Status {
        EPL_ASSIGN(const std::vector<FactDifference> differences,
                   compare_session(*session->session, std::string(path_text), training_data(dataset)));
        for (const FactDifference& one : differences) {
          out.push_back({{"key", one.key},
                         {"topic", one.topic},
                         {"checkpoint", one.saved},
                         {"session", one.now},
                         {"breaks", one.breaks}});
        }
        return {};
      });
    }));
    return print_json(out, 2);
  });
}

namespace epl::capi {
namespace {

// Lines "key: value" of a flat object.
Result<std::string> lines_of(std::string_view json) {
  if (json.empty()) return std::string();
  EPL_ASSIGN(const Json read, parse_json(json));
  if (!read.is_object()) return invalid("facts is ", shown_plain(json, 60), "; it is a JSON object");
  std::string out;
  for (const auto& [key, value] : read.items()) {
    if (value.is_structured())
      return invalid("facts: ", shown(key), " is no text, number or boolean, and no more than these is compared");
    out += told_line(key, value.is_string() ? quoted(value.text()) : print_json(value));
  }
  return out;
}

}  // namespace
}  // namespace epl::capi

epl_error* epl_session_agree(epl_session* session, const char* facts, size_t facts_length, const epl_dataset* dataset,
                             const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(facts);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    EPL_ASSIGN(std::string lines, lines_of(facts_text));
    return with_optional_dataset(const_cast<epl_dataset*>(dataset), [&]() -> Status {
      for (const auto& [key, value] : training_data(dataset).facts) lines += told_line(key, quoted(value));
      return session->session->world().compare(lines);
    });
  });
}

epl_error* epl_checkpoint_remove(const epl_engine* engine, const char* path, size_t path_length) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    return remove_checkpoint(std::string(path_text));
  });
}

epl_error* epl_checkpoint_describe(const epl_engine* engine, const char* path, size_t path_length,
                                   const epl_call_options* call, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*engine->engine, call));
    EPL_ASSIGN(Checkpoint checkpoint, load_checkpoint(std::string(path_text), begun.stop));
    Json out = {{"schema", 1}};
    out["step"] = checkpoint.step;
    out["seed"] = checkpoint.seed;
    out["units"] = checkpoint.units;
    out["numerics"] = checkpoint.numerics;
    out["data_position"] = checkpoint.data_position;
    Json facts = Json::object();
    for (const auto& [key, value] : checkpoint.facts) facts[key] = value;
    out["facts"] = facts;
    Json items = Json::array();
    for (const CheckpointItem& item : checkpoint.items) {
      items.push_back({{"name", item.name},
                       {"kind", state_kind_row(item.kind).name},
                       {"dtype", dtype_name(item.value.dtype())},
                       {"dims", item.value.shape()}});
    }
    out["tensors"] = items;
    return print_json(out, 2);
  });
}

epl_error* epl_session_export_onnx(epl_session* session, const char* path, size_t path_length,
                                   const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return export_model(*session->session, std::string(path_text), true);
  });
}

epl_error* epl_session_export_onnx_for_training(epl_session* session, const char* path, size_t path_length,
                                                const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return export_model(*session->session, std::string(path_text), false);
  });
}

epl_error* epl_session_export_adapters(epl_session* session, const char* folder, size_t folder_length,
                                       const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(folder);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return export_adapters(*session->session, std::string(folder_text));
  });
}

epl_error* epl_session_export_safetensors(epl_session* session, const char* path, size_t path_length,
                                          const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return export_weights(*session->session, std::string(path_text));
  });
}

epl_error* epl_session_export_to(epl_session* session, const char* format, size_t format_length, epl_write_fn write,
                                 void* userdata, const epl_call_options* call) {
  return with_job(session, [&]() -> Status {
    EPL_TEXT_ARGUMENT(format);
    EPL_ASSIGN(const Call begun, begin_call(*session, call));
    const StopScope stopping(session->session->world().call(), begun.stop);
    return write_or_help(write, userdata, begun.stop,
                         [&](ByteWriter* out) { return export_to(*session->session, format_text, out); });
  });
}
