// The floating-point environment in which all our numbers are computed: round to nearest, subnormals kept, no traps.
//
// The host process may have set another one. Results must not depend on it, and the host must get its own back.
#pragma once

namespace epl {

// The default environment on this thread, for the lifetime of this object. A host's exception flags stay as they are.
class FloatEnvironment {
 public:
  FloatEnvironment() {
#if defined(__x86_64__)
    before_ = __builtin_ia32_stmxcsr();
    if ((before_ & ~exception_flags) != default_control)
      __builtin_ia32_ldmxcsr(default_control | (before_ & exception_flags));
#endif
  }
  ~FloatEnvironment() {
#if defined(__x86_64__)
    if ((before_ & ~exception_flags) != default_control) __builtin_ia32_ldmxcsr(before_);
#endif
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  static constexpr unsigned default_control = 0x1f80;  // all exceptions masked, nearest, no flush to zero
  static constexpr unsigned exception_flags = 0x3f;
  unsigned before_ = default_control;
};

}  // namespace epl
