// A library that answers as libnvrtc.so.13 and compiles nothing, for tests of what is kept of its work: its "PTX" is
// the options and the source. Each compilation adds a byte to the file that EPL_TEST_COMPILED names, so that those of
// all processes are counted. It takes some milliseconds, so that processes meet.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define EPL_SEEN extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
  std::string source, text, log;
};

void count() {
  const char* path = std::getenv("EPL_TEST_COMPILED");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "ae");
  if (file == nullptr) return;
  std::fputc('1', file);
  std::fclose(file);
}

constexpr int success = 0, error_compilation = 6;

}  // namespace

EPL_SEEN int nvrtcVersion(int* major, int* minor) {
  const char* other = std::getenv("EPL_TEST_NVRTC_MINOR");
  *major = 13;
  *minor = other == nullptr ? 0 : std::atoi(other);
  return success;
}

EPL_SEEN int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                                const char* const*) {
  *program = new Program{.source = source, .text = "", .log = ""};
  return success;
}

EPL_SEEN int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return success;
}

EPL_SEEN int nvrtcCompileProgram(Program* program, int option_count, const char* const* options) {
  count();
  ::usleep(3000);
  if (program->source.find("#error") != std::string::npos) {
    program->log = "the source has an #error";
    return error_compilation;
  }
  for (int i = 0; i < option_count; ++i) program->text += std::string("// ") + options[i] + "\n";
  program->text += program->source;
  return success;
}

EPL_SEEN int nvrtcGetPTXSize(Program* program, size_t* bytes) {
  *bytes = program->text.size() + 1;
  return success;
}

EPL_SEEN int nvrtcGetPTX(Program* program, char* text) {
  std::memcpy(text, program->text.c_str(), program->text.size() + 1);
  return success;
}

EPL_SEEN int nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return success;
}

EPL_SEEN int nvrtcGetProgramLog(Program* program, char* text) {
  std::memcpy(text, program->log.c_str(), program->log.size() + 1);
  return success;
}

EPL_SEEN const char* nvrtcGetErrorString(int code) { return code == success ? "success" : "NVRTC_ERROR_COMPILATION"; }
