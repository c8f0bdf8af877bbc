"""What epl.hpp has of jobs and of inputs by name beside the functions of C."""

EVENT = '''  epl::job_kind type() const { return static_cast<epl::job_kind>(kind); }
  /// Of job_kind::done. epl::name has a word for it.
  epl::job_end end() const { return static_cast<epl::job_end>(ended); }'''


def names(ends):
    """A word for each end of a job."""
    yield ""
    yield "/// How a job has ended, as a word: \"steps\", \"patience\"."
    yield "constexpr const char* name(job_end end) noexcept {"
    yield "  switch (end) {"
    for word in ["running", *(constant.name.removeprefix("EPL_JOB_ENDED_").lower() for constant in ends)]:
        yield f"    case job_end::{word}: return \"{word}\";"
    yield "  }"
    yield "  return \"\";"
    yield "}"


JOB = '''
namespace detail {
// Whatever ends the loop of fit, an exception of its caller's too: the last checkpoint is written.
struct running_job {
  epl_job* job;
  int32_t ended = EPL_JOB_ENDED_CANCELLED;
  bool done = false;
  running_job(epl_job* started) : job(started) {}
  running_job(const running_job&) = delete;
  ~running_job() {
    epl_error* failure = done ? nullptr : epl_job_end(job, ended, nullptr, 0);
    for (epl_job_event event = EPL_JOB_EVENT_INIT; !done && failure == nullptr; done = event.kind == EPL_JOB_DONE)
      failure = epl_job_next(job, nullptr, &event);
    epl_error_destroy(failure);
  }
};
}  // namespace detail

/// Runs a job from its start to its end, and gives its last event. `progress(event)` is called with every other one,
/// and says whether to go on. `settings` are those of epl::job; `held_out` may be NULL. The time of `call` is that of the
/// whole job, but for its last checkpoint.
template <class F>
returned<epl::job_event> fit(const epl_engine* engine, epl_session* session, epl_dataset* data, epl_dataset* held_out,
                             std::string_view settings, F&& progress, const epl::call_options& call = {}) {
  const auto began = std::chrono::steady_clock::now();
  epl::call_options left = call;
  epl_job* made = nullptr;
  epl::job_event event;
  epl_error* failure = epl_job_create(engine, settings.data(), settings.size(), &made);
  const epl::job owned(made);
  if (failure == nullptr) failure = epl_job_start(made, session, data, held_out, &call);
  if (failure == nullptr) {
    detail::running_job running(made);
    while (!running.done && failure == nullptr) {
      const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - began;
      if (call.timeout_nanoseconds > 0)
        left.timeout_nanoseconds = std::max<int64_t>(1, call.timeout_nanoseconds - passed.count());
      failure = epl_job_next(made, &left, &event);
      running.done = failure == nullptr && event.kind == EPL_JOB_DONE;
      if (failure == nullptr && !running.done && !progress(static_cast<const epl::job_event&>(event)))
        failure = epl_job_end(made, EPL_JOB_ENDED_STOPPED, nullptr, 0);
    }
    const int32_t code = epl_error_code(failure);
    if (failure != nullptr && code != EPL_ERROR_CANCELLED && code != EPL_ERROR_DEADLINE_EXCEEDED)
      running.ended = EPL_JOB_ENDED_FAILED;
  }
  event.text = nullptr;  // it goes with the job
  event.text_length = 0;
  return detail::give(failure, [&]() -> epl::job_event { return event; });
}

/// Inputs by name in the order in which calls of an entry take them:
/// session.step(epl::named(plan, EPL_ENTRY_TRAIN, {{"x", x}, {"target", target}})).
inline returned<std::vector<const epl_tensor*>> named(
    const epl_plan* plan, int32_t entry, std::initializer_list<std::pair<std::string_view, const epl_tensor*>> inputs) {
  std::vector<const epl_tensor*> ordered(static_cast<std::size_t>(epl_plan_port_count(plan, entry, EPL_PORT_INPUT)));
  std::string wrong;
  for (const auto& [name, tensor] : inputs) {
    const int64_t position = epl_plan_find_port(plan, entry, EPL_PORT_INPUT, name.data(), name.size());
    if (position < 0) wrong = "there is no input " + std::string(name);
    if (position >= 0) ordered[static_cast<std::size_t>(position)] = tensor;
  }
  for (std::size_t i = 0; i < ordered.size() && wrong.empty(); ++i) {
    epl_tensor_info info = EPL_TENSOR_INFO_INIT;
    if (ordered[i] != nullptr) continue;
    epl_error_destroy(epl_plan_port(plan, entry, EPL_PORT_INPUT, static_cast<int64_t>(i), &info));
    wrong = "nothing is given for " + std::string(info.name == nullptr ? "" : info.name);
  }
  epl_error* failure = wrong.empty() ? nullptr : epl_error_create(EPL_ERROR_INVALID_ARGUMENT, wrong.data(), wrong.size());
  return detail::give(failure, [&]() -> std::vector<const epl_tensor*> { return std::move(ordered); });
}'''
