// Every option struct and every output struct, at every size that an older or newer program may have compiled: what is
// not there is not read and not written, and what this library does not know is zero or an error. The list of structs
// is the header's.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

// Ends where a page begins that may not be touched.
class Guarded {
 public:
  Guarded() : page_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))) {
    memory_ =
        static_cast<char*>(::mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(memory_ + 2 * page_, page_, PROT_NONE);
  }
  ~Guarded() { ::munmap(memory_, 3 * page_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  // `bytes` of them, zeros but for the size at the beginning.
  char* at(size_t bytes, uint64_t struct_size) {
    char* start = memory_ + 2 * page_ - bytes;
    std::memset(memory_, 0, 2 * page_);
    std::memcpy(start, &struct_size, std::min(bytes, sizeof struct_size));
    return start;
  }

 private:
  size_t page_;
  char* memory_;
};

struct Struct {
  size_t known = 0;
  bool written = false;                   // by the library, not read
  std::function<epl_error*(void*)> call;  // gives back whatever it makes
};

class StructSizes : public testing::Test {
 protected:
  void SetUp() override {
    ::world_make(&w, folder.c_str(), 1, 8);
    must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\": 8, \"classes\": true}"), nullptr, &data));
    must(epl_job_create(w.engine, EPL_STR("{\"steps\": 1000000}"), &job));
    must(epl_job_start(job, w.session, data, nullptr, nullptr));
    structs["epl_engine_options"] = {sizeof(epl_engine_options), false, [](void* o) {
                                       epl_engine* made = nullptr;
                                       epl_error* error = epl_engine_create(static_cast<epl_engine_options*>(o), &made);
                                       epl_engine_destroy(made);
                                       return error;
                                     }};
    structs["epl_model_options"] = {sizeof(epl_model_options), false, [this](void* o) {
                                      epl_model* made = nullptr;
                                      epl_error* error =
                                          epl_model_load(w.engine, TEXT(w.model_path),
                                                         static_cast<epl_model_options*>(o), nullptr, &made);
                                      epl_model_destroy(made);
                                      return error;
                                    }};
    structs["epl_adapter_options"] = {sizeof(epl_adapter_options), false, [this](void* o) {
                                        epl_trainer* made = nullptr;
                                        must(epl_trainer_create(w.engine, &made));
                                        epl_error* error = epl_trainer_add_adapter(
                                            made, EPL_STR("net.*"), static_cast<epl_adapter_options*>(o));
                                        epl_trainer_destroy(made);
                                        return error;
                                      }};
    structs["epl_plan_options"] = {sizeof(epl_plan_options), false, [this](void* o) {
                                     epl_plan* made = nullptr;
                                     epl_error* error =
                                         epl_plan_create(w.model, w.trainer, w.strategy,
                                                         static_cast<epl_plan_options*>(o), nullptr, &made);
                                     epl_plan_destroy(made);
                                     return error;
                                   }};
    structs["epl_session_options"] = {sizeof(epl_session_options), false, [this](void* o) {
                                        epl_session* made = nullptr;
                                        epl_error* error = epl_session_create(
                                            w.plan, static_cast<epl_session_options*>(o), nullptr, &made);
                                        epl_session_destroy(made);
                                        return error;
                                      }};
    structs["epl_store_options"] = {sizeof(epl_store_options), false, [this](void* o) {
                                      epl_store* made = nullptr;
                                      epl_error* error =
                                          epl_store_create(w.engine, static_cast<epl_store_options*>(o), &made);
                                      epl_store_destroy(made);
                                      return error;
                                    }};
    structs["epl_call_options"] = {sizeof(epl_call_options), false, [this](void* o) {
                                     return epl_session_step(w.session, w.inputs, 2, static_cast<epl_call_options*>(o),
                                                             nullptr);
                                   }};
    structs["epl_source"] = {sizeof(epl_source), false, [this](void* o) -> epl_error* {
                               epl_error* error =
                                   epl_session_load_from(w.session, static_cast<epl_source*>(o), nullptr, nullptr);
                               // Its sizes are right, and its zeros say nothing to read by.
                               if (std::strstr(epl_error_message(error, nullptr), "no function that reads") == nullptr)
                                 return error;
                               epl_error_destroy(error);
                               return nullptr;
                             }};
    structs["epl_op_options"] = {
        sizeof(epl_op_options), false, [this](void* o) -> epl_error* {
          epl_error* error = epl_engine_add_op(w.engine, static_cast<epl_op_options*>(o));
          if (std::strstr(epl_error_message(error, nullptr), "no function for shapes") == nullptr) return error;
          epl_error_destroy(error);
          return nullptr;
        }};
    structs["epl_metrics"] = {sizeof(epl_metrics), true, [this](void* o) {
                                return epl_session_evaluate(w.session, w.inputs, 2, nullptr,
                                                            static_cast<epl_metrics*>(o));
                              }};
    structs["epl_job_event"] = {sizeof(epl_job_event), true,
                                [this](void* o) { return epl_job_next(job, nullptr, static_cast<epl_job_event*>(o)); }};
    structs["epl_device_info"] = {sizeof(epl_device_info), true, [this](void* o) {
                                    return epl_engine_device(w.engine, 0, static_cast<epl_device_info*>(o));
                                  }};
    structs["epl_tensor_info"] = {sizeof(epl_tensor_info), true, [this](void* o) {
                                    return epl_plan_port(w.plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, 0,
                                                         static_cast<epl_tensor_info*>(o));
                                  }};
  }
  void TearDown() override {
    failures = 0;
    epl_job_destroy(job);
    epl_dataset_destroy(data);
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path();
  world w;
  epl_dataset* data = nullptr;
  epl_job* job = nullptr;
  std::map<std::string, Struct> structs;
  Guarded room;
};

TEST_F(StructSizes, AllStructsOfTheHeaderAreTried) {
  std::map<std::string, size_t> declared;
#define EPL_STRUCT(name) declared[#name] = sizeof(name);
#include "epl_structs.inc"
#undef EPL_STRUCT
  for (const auto& [name, size] : declared) {
    ASSERT_TRUE(structs.contains(name)) << name << " is not tried here; add it";
    EXPECT_EQ(structs[name].known, size) << name;
  }
  EXPECT_EQ(declared.size(), structs.size());
}

TEST_F(StructSizes, EverySizeIsReadAsFarAsItGoes) {
  for (const auto& [name, one] : structs) {
    for (uint64_t size = 0; size <= one.known + 64; ++size) {
      // Of an impossible size nothing but the size itself is looked at.
      char* options = room.at(std::max<size_t>(size, sizeof size), size);
      EXPECT_EQ(taken(one.call(options)), size < sizeof size ? EPL_ERROR_INVALID_ARGUMENT : EPL_OK)
          << name << " of " << size << " bytes";
    }
    for (const uint64_t size : {uint64_t{4096}, uint64_t{4097}, uint64_t{1} << 32, UINT64_MAX}) {
      char* options = room.at(size > 4096 ? sizeof size : size, size);
      EXPECT_EQ(taken(one.call(options)), size > 4096 ? EPL_ERROR_INVALID_ARGUMENT : EPL_OK)
          << name << " of " << size << " bytes";
    }
  }
}

TEST_F(StructSizes, WhatIsNotKnownIsZeroOrRefused) {
  for (const auto& [name, one] : structs) {
    for (uint64_t size = one.known + 1; size <= one.known + 64 && !one.written; ++size) {
      char* options = room.at(size, size);
      options[size - 1] = 1;
      epl_error* error = one.call(options);
      EXPECT_EQ(epl_error_code(error), EPL_ERROR_UNSUPPORTED) << name << " of " << size << " bytes";
      const std::string message = epl_error_message(error, nullptr);
      std::string words = name.substr(std::string("epl_").size());
      std::ranges::replace(words, '_', ' ');
      EXPECT_TRUE(message.starts_with("byte " + std::to_string(size - 1) + " of the " + words + " is set")) << message;
      epl_error_destroy(error);
    }
  }
}

TEST_F(StructSizes, NoMoreIsWrittenThanThereIsRoomFor) {
  for (const auto& [name, one] : structs) {
    for (uint64_t size = sizeof size; size <= one.known + 64 && one.written; ++size) {
      char* target = room.at(size, size);
      std::memset(target + sizeof size, 0x55, size - sizeof size);
      ASSERT_EQ(taken(one.call(target)), EPL_OK);
      uint64_t after = 0;
      std::memcpy(&after, target, sizeof after);
      EXPECT_EQ(after, size) << name;  // the caller's own
      for (uint64_t i = one.known; i < size; ++i)
        EXPECT_EQ(target[i], 0x55) << name << " of " << size << " bytes, byte " << i;
    }
  }
}

}  // namespace
