// libcudnn.so.9 for tests: the functions of its backend interface, as the manual describes them.
#include <algorithm>
#include <cstdio>

#include "tests/cuda/machine/control.h"
#include "tests/cuda/machine/dnn/objects.h"

#define EPL_DNN extern "C" __attribute__((visibility("default"))) int

extern "C" int cuCtxGetDevice(int* device);

namespace epl::cuda_dnn {
namespace {

std::string& last_error() {
  static auto* const text = new std::string;
  return *text;
}

// One call: a refusal becomes its number, and is told to the machine, but for an engine that has no room: the caller
// takes another one.
template <class F> int call(F&& f) {
  Objects& objects = Objects::get();
  const std::lock_guard lock(objects.mutex);
  try {
    f(objects);
    return kSuccess;
  } catch (const Refused& refused) {
    last_error() = refused.what();
    if (refused.code != kNoSharedMemory) epl_test_machine_refused(refused.what());
    return refused.code;
  } catch (int) {
    last_error() = "cuDNN: the driver refuses the command";
    return kExecutionFailed;
  }
}

int current_device() {
  int device = 0;
  require(cuCtxGetDevice(&device) == 0, kNotInitialized, "no context is current in this thread");
  return device;
}

// The handle, of the device that is current.
Object& handle_at(const Objects& objects, const void* handle) {
  require(handle != nullptr, kNotInitialized, "no handle");
  const int device = current_device();
  static_cast<void>(objects.at(handle, kHandle, "the handle"));
  Object& own = objects.at(handle, "the handle");
  require(own.device == device, kBadParameter,
          "the handle is of device " + std::to_string(own.device) + ", and device " + std::to_string(device) +
              " is current");
  return own;
}

// Descriptors of configurations and engines, which the caller has made, are filled and are finalized with that.
Object& to_fill(const Objects& objects, const void* place, Kind kind) {
  Object& made = objects.at(place, "a place for a descriptor");
  require(made.kind == kind && !made.finalized, kBadParameter,
          "a place for a descriptor of another kind, or a used one");
  return made;
}

void get_configs(const Objects& objects, const Object& of, int64_t wanted, int64_t* count, void* places) {
  const Object& graph = objects.at(of.get<const void*>(201), kGraph, "the graph that engines are suggested for");
  const Object& operation = objects.at(graph.get<const void*>(801), "the operation of a graph");
  const std::vector<int> engines = suggested(convolution_of(objects, operation), of.get<int>(200));
  require(count != nullptr, kNullPointer, "no place for the number of configurations");
  *count = static_cast<int64_t>(engines.size());
  if (places == nullptr) return;
  *count = std::min(*count, wanted);
  for (int64_t i = 0; i < *count; ++i) {
    Object& config = to_fill(objects, static_cast<void**>(places)[i], kConfig);
    config.engine = engines[static_cast<size_t>(i)];
    config.graph = &graph;
    config.finalized = true;
  }
}

Engine engine_at(const Objects& objects, const Object& of) {
  const Object& graph = objects.at(of.graph, kGraph, "the graph of an engine");
  const Object& operation = objects.at(graph.get<const void*>(801), "the operation of a graph");
  return engine_of(convolution_of(objects, operation), of.engine);
}

void get(const Objects& objects, const Object& of, int attribute, int type, int64_t wanted, int64_t* count,
         void* values) {
  require(of.finalized, kNotFinalized, "what is read is not finalized");
  const auto expect = [&](AttributeType right) {
    require(type == right, kAttributeType, "an attribute is read as another type");
    require(values != nullptr || wanted == 0, kNullPointer, "no place for what is read");
  };
  const auto one = [&] {
    require(wanted == 1, kBadParameter, "one value is asked for as " + std::to_string(wanted));
    if (count != nullptr) *count = 1;
  };
  if (of.kind == kSuggestion && attribute == 202) {
    expect(kAsDescriptor);
    return get_configs(objects, of, wanted, count, values);
  }
  if (of.kind == kConfig && attribute == 300) {
    expect(kAsDescriptor), one();
    Object& engine = to_fill(objects, *static_cast<void**>(values), kEngine);
    engine.engine = of.engine, engine.graph = of.graph, engine.finalized = true;
    return;
  }
  if ((of.kind == kConfig && attribute == 303) || (of.kind == kPlan && attribute == 402)) {
    expect(kAsInteger), one();
    const Object& config =
        of.kind == kConfig ? of : objects.at(of.get<const void*>(401), kConfig, "the configuration of a plan");
    const int64_t bytes = engine_at(objects, config).workspace;
    std::memcpy(values, &bytes, sizeof bytes);
    return;
  }
  require(of.kind == kEngine && attribute == 1303, kBadParameter,
          "attribute " + std::to_string(attribute) + " is none that this machine lets be read");
  expect(kAsNote);
  const std::vector<int> notes = engine_at(objects, of).notes;
  require(count != nullptr, kNullPointer, "no place for the number of notes");
  *count = static_cast<int64_t>(notes.size());
  std::copy_n(notes.begin(), std::min(*count, wanted), static_cast<int*>(values));
}

// The values of an attribute, each in the first bytes of eight.
std::vector<uint64_t> read(const AttributeRow& row, int64_t count, const void* values) {
  require(count >= 1 && count <= row.most, kBadParameter,
          std::string("attribute ") + row.name + " takes " + std::to_string(row.most) +
              " values at most and is given " + std::to_string(count));
  require(values != nullptr, kNullPointer, std::string("attribute ") + row.name + " without values");
  std::vector<uint64_t> all(static_cast<size_t>(count));
  const size_t bytes = bytes_of(row.type);
  for (size_t i = 0; i < all.size(); ++i) std::memcpy(&all[i], static_cast<const char*>(values) + i * bytes, bytes);
  return all;
}

}  // namespace
}  // namespace epl::cuda_dnn

using namespace epl::cuda_dnn;

extern "C" __attribute__((visibility("default"))) size_t cudnnGetVersion() { return 92600; }

extern "C" __attribute__((visibility("default"))) const char* cudnnGetErrorString(int code) {
  switch (code / 1000) {
    case 0:
      return "CUDNN_STATUS_SUCCESS";
    case 1:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
      return "CUDNN_STATUS_BAD_PARAM";
    case 3:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case 5:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "unknown status";
  }
}

extern "C" __attribute__((visibility("default"))) void cudnnGetLastErrorString(char* text, size_t bytes) {
  const std::lock_guard lock(Objects::get().mutex);
  if (text != nullptr && bytes > 0) std::snprintf(text, bytes, "%s", last_error().c_str());
}

EPL_DNN cudnnCreate(void** handle) {
  return call([&](Objects& objects) {
    require(handle != nullptr, kNullPointer, "no place for what is made");
    const int device = current_device();
    Object* made = objects.make(kHandle);
    made->device = device;
    *handle = made;
  });
}
EPL_DNN cudnnDestroy(void* handle) {
  return call([&](Objects& objects) {
    handle_at(objects, handle);
    objects.destroy(handle);
  });
}
EPL_DNN cudnnSetStream(void* handle, void* stream) {
  return call([&](Objects& objects) { handle_at(objects, handle).stream = stream; });
}

EPL_DNN cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  return call([&](Objects& objects) {
    require(descriptor != nullptr, kNullPointer, "no place for what is made");
    constexpr int kinds[] = {kConvolution, kEngine,    kConfig, kSuggestion, kPlan,  kForward,
                             kGradWeight,  kGradInput, kGraph,  kPack,       kTensor};
    require(std::ranges::find(kinds, kind) != std::end(kinds), kNotSupported,
            "descriptors of kind " + std::to_string(kind) + " are not known to this machine");
    *descriptor = objects.make(static_cast<Kind>(kind));
  });
}
EPL_DNN cudnnBackendDestroyDescriptor(void* descriptor) {
  return call([&](Objects& objects) {
    require(objects.at(descriptor, "what is destroyed").kind != kHandle, kBadParameter, "a handle is no descriptor");
    objects.destroy(descriptor);
  });
}
EPL_DNN cudnnBackendFinalize(void* descriptor) {
  return call([&](Objects& objects) {
    Object& object = objects.at(descriptor, "what is finalized");
    require(!object.finalized, kBadParameter, "a descriptor is finalized twice");
    check_descriptor(objects, object);
    object.finalized = true;
  });
}
EPL_DNN cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count, const void* values) {
  return call([&](Objects& objects) {
    Object& object = objects.at(descriptor, "a descriptor");
    require(!object.finalized, kBadParameter, "an attribute of a descriptor that is finalized");
    const AttributeRow& row = attribute_row(object, attribute, type);
    std::vector<uint64_t> all = read(row, count, values);
    if (row.type == kAsDescriptor) {
      for (const uint64_t one : all)
        require(objects.at(reinterpret_cast<const void*>(one), row.name).finalized, kNotFinalized,
                std::string("attribute ") + row.name + " is given a descriptor that is not finalized");
    }
    object.values[attribute] = std::move(all);
  });
}
EPL_DNN cudnnBackendGetAttribute(void* descriptor, int attribute, int type, int64_t wanted, int64_t* count,
                                 void* values) {
  return call([&](Objects& objects) {
    get(objects, objects.at(descriptor, "a descriptor"), attribute, type, wanted, count, values);
  });
}

EPL_DNN cudnnBackendExecute(void* handle, void* plan, void* pack) {
  return call([&](Objects& objects) {
    const Object& own = handle_at(objects, handle);
    execute(objects, own, objects.at(plan, kPlan, "the plan"), objects.at(pack, kPack, "the pack"));
  });
}
