//! Steps as futures, over the library's events: no runtime is needed, and none is preferred.
use crate::call::Call;
use crate::error::{check, Result};
use crate::handle::{given, handle};
use crate::session::{writable, Metrics, Session};
use crate::tensor::Tensor;
use epl_sys as sys;
use std::ffi::c_void;
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

handle!(
    #[doc(hidden)]
    RawEvent,
    epl_event,
    epl_event_destroy
);

type Begin = unsafe extern "C" fn(
    *mut sys::epl_session,
    *const *const sys::epl_tensor,
    usize,
    *const sys::epl_call_options,
    *mut *mut sys::epl_event,
) -> *mut sys::epl_error;

enum Work {
    Metrics(Begin),
    Outputs,
}

/// What the library's callback holds until the work is done, whatever became of the future: so the inputs stay as they
/// are, and nobody reads the outputs, even where it was forgotten.
struct Shared {
    waker: Mutex<Option<Waker>>,
    inputs: Vec<Arc<Tensor<'static>>>,
    outputs: Mutex<Vec<Tensor<'static>>>,
}

impl Shared {
    fn outputs(&self) -> MutexGuard<'_, Vec<Tensor<'static>>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe extern "C" fn ready(userdata: *mut c_void) {
    let shared = &*(userdata as *const Shared);
    let waker = shared.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
    // A panic must not unwind into C.
    let _ = catch_unwind(AssertUnwindSafe(|| waker.map(Waker::wake)));
}

unsafe extern "C" fn drop_shared(userdata: *mut c_void) {
    drop(Arc::from_raw(userdata as *const Shared));
}

/// Work of a session as a future: [`Session::step_async`]. It begins when it is polled first. Where it is dropped before
/// it is ready, in a `select!` or by a timeout, it triggers the token of its [`Call`], or one of its own where that has
/// none, and waits for the work to end: milliseconds, and the session is free.
#[must_use = "futures do nothing unless they are polled"]
pub struct Pending<'s> {
    session: &'s mut Session,
    running: Running,
}

/// The work of one call: what has begun when there is an event.
pub(crate) struct Running {
    work: Work,
    call: Call,
    shared: Arc<Shared>,
    event: Option<RawEvent>,
}
// The header: events are for any threads. The rest is Send by itself.
unsafe impl Send for Running {}

impl Running {
    fn new(
        work: Work, inputs: impl IntoIterator<Item = Arc<Tensor<'static>>>, outputs: Vec<Tensor<'static>>, call: &Call,
    ) -> Running {
        let inputs = inputs.into_iter().collect();
        let shared = Arc::new(Shared { waker: Mutex::new(None), inputs, outputs: Mutex::new(outputs) });
        Running { work, call: call.clone(), shared, event: None }
    }
    #[cfg(feature = "futures")]
    pub(crate) fn step(inputs: impl IntoIterator<Item = Arc<Tensor<'static>>>, call: &Call) -> Running {
        Running::new(Work::Metrics(sys::epl_session_step_async), inputs, Vec::new(), call)
    }
    fn start(&mut self, session: &mut Session) -> Result<()> {
        self.call.own_token(&session.1)?;
        let inputs: Vec<_> = self.shared.inputs.iter().map(|one| one.raw.as_ptr().cast_const()).collect();
        let (session, call) = (session.0.as_ptr(), self.call.raw());
        let event = RawEvent(given(|place| match self.work {
            Work::Metrics(begin) => unsafe { begin(session, inputs.as_ptr(), inputs.len(), &call, place) },
            Work::Outputs => {
                let mut outputs = self.shared.outputs();
                let outputs = writable(&mut outputs);
                unsafe {
                    sys::epl_session_predict_async(
                        session,
                        inputs.as_ptr(),
                        inputs.len(),
                        &call,
                        outputs.as_ptr(),
                        outputs.len(),
                        place,
                    )
                }
            }
        })?);
        let userdata = Arc::into_raw(self.shared.clone()) as *mut c_void;
        let told =
            check(unsafe { sys::epl_event_on_ready(event.0.as_ptr(), Some(ready), userdata, Some(drop_shared)) });
        if let Err(error) = told {
            unsafe {
                let _ = check(sys::epl_event_wait(event.0.as_ptr(), std::ptr::null(), std::ptr::null_mut()));
                drop_shared(userdata); // where it fails it is still ours
            }
            return Err(error);
        }
        self.event = Some(event);
        Ok(())
    }
    pub(crate) fn poll(&mut self, session: &mut Session, context: &mut Context<'_>) -> Poll<Result<Metrics>> {
        if self.event.is_none() {
            self.start(session)?;
        }
        // First the waker, then the question: the callback comes behind the answer 1.
        *self.shared.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        let event = self.event.as_ref().expect("it was started").0.as_ptr();
        if unsafe { sys::epl_event_ready(event) } == 0 {
            return Poll::Pending;
        }
        let mut metrics = sys::epl_metrics::default();
        check(unsafe { sys::epl_event_wait(event, std::ptr::null(), &mut metrics) })?;
        Poll::Ready(Ok(metrics.into()))
    }
}

impl Future for Pending<'_> {
    type Output = Result<Metrics>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.running.poll(this.session, context)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(event) = self.event.as_ref().map(|one| one.0.as_ptr()) else { return };
        if unsafe { sys::epl_event_ready(event) } == 0 {
            self.call.trigger();
            let _ = check(unsafe { sys::epl_event_wait(event, std::ptr::null(), std::ptr::null_mut()) });
        }
    }
}

/// [`Session::predict_into`] as a future: [`Session::predict_async`]. It gives back the tensors that it was given, with
/// what was predicted in them. Otherwise it is as [`Pending`].
#[must_use = "futures do nothing unless they are polled"]
pub struct Predicting<'s>(Pending<'s>);

impl Future for Predicting<'_> {
    type Output = Result<Vec<Tensor<'static>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = Pin::new(&mut self.0).poll(context);
        done.map(|result| result.map(|_| std::mem::take(&mut *self.0.running.shared.outputs())))
    }
}

impl Session {
    /// [`Session::step`] as a future, for any executor. The work is done by a thread of the session's own. The inputs are
    /// shared, so that nobody writes them before it has ended.
    pub fn step_async(&mut self, inputs: impl IntoIterator<Item = Arc<Tensor<'static>>>, call: &Call) -> Pending<'_> {
        self.pending(Work::Metrics(sys::epl_session_step_async), inputs, Vec::new(), call)
    }
    /// [`Session::evaluate`] as a future.
    pub fn evaluate_async(
        &mut self, inputs: impl IntoIterator<Item = Arc<Tensor<'static>>>, call: &Call,
    ) -> Pending<'_> {
        self.pending(Work::Metrics(sys::epl_session_evaluate_async), inputs, Vec::new(), call)
    }
    /// [`Session::predict_into`] as a future, which has the outputs meanwhile and gives them back when it is ready.
    pub fn predict_async(
        &mut self, inputs: impl IntoIterator<Item = Arc<Tensor<'static>>>, outputs: Vec<Tensor<'static>>, call: &Call,
    ) -> Predicting<'_> {
        Predicting(self.pending(Work::Outputs, inputs, outputs, call))
    }
    fn pending(
        &mut self, work: Work, inputs: impl IntoIterator<Item = Arc<Tensor<'static>>>, outputs: Vec<Tensor<'static>>,
        call: &Call,
    ) -> Pending<'_> {
        Pending { session: self, running: Running::new(work, inputs, outputs, call) }
    }
}
