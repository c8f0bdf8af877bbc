use crate::engine::Engine;
use crate::error::Result;
use crate::handle::{given, handle};
use epl_sys as sys;
use std::sync::Arc;
use std::time::{Duration, Instant};

handle!(
    #[doc(hidden)]
    RawToken,
    epl_cancel,
    epl_cancel_destroy
);
// The header: cancel tokens are for any threads.
unsafe impl Send for RawToken {}
unsafe impl Sync for RawToken {}

/// Stops calls from another thread, once and for all. Clones are the same token.
#[derive(Clone, Debug)]
pub struct CancelToken(Arc<RawToken>);

impl CancelToken {
    /// A token that nobody has triggered.
    pub fn new(engine: &Engine) -> Result<CancelToken> {
        let token = given(|place| unsafe { sys::epl_cancel_create(engine.0.as_ptr(), place) })?;
        Ok(CancelToken(Arc::new(RawToken(token))))
    }
    /// Calls that were given the token end with [`Code::CANCELLED`](crate::Code::CANCELLED), before they have changed
    /// anything or not at all. Also from a signal handler.
    pub fn trigger(&self) {
        unsafe { sys::epl_cancel_trigger(self.0 .0.as_ptr()) }
    }
    /// Whether somebody has.
    pub fn is_triggered(&self) -> bool {
        unsafe { sys::epl_cancel_triggered(self.0 .0.as_ptr()) != 0 }
    }
    /// Triggers the token when the guard is dropped, in whatever way the scope is left.
    pub fn drop_guard(&self) -> impl Drop {
        struct Guard(CancelToken);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.trigger();
            }
        }
        Guard(self.clone())
    }
}

/// For how long one call may take. The default: as long as it takes.
#[derive(Clone, Debug, Default)]
pub struct Call {
    timeout: Option<Duration>,
    token: Option<CancelToken>,
    samples: i64,
    stream: i64,
}

impl Call {
    /// The default.
    pub fn new() -> Call {
        Call::default()
    }
    /// The call ends after this time with [`Code::DEADLINE_EXCEEDED`](crate::Code::DEADLINE_EXCEEDED).
    pub fn timeout(mut self, timeout: Duration) -> Call {
        self.timeout = Some(timeout);
        self
    }
    /// The call ends when the token is triggered.
    pub fn cancel(mut self, token: &CancelToken) -> Call {
        self.token = Some(token.clone());
        self
    }
    /// Where a session takes slices, in evaluate and predict: how many samples of the full batch count.
    pub fn samples(mut self, samples: u64) -> Call {
        self.samples = samples as i64;
        self
    }
    /// Of tensors of a GPU: the stream of the program behind whose work they may be read and written, as DLPack numbers
    /// it. 0 (the default) and 1: the legacy default stream; 2: that of this thread, not for work that goes on beside
    /// it; -1: none, the program has waited itself; else the handle of a stream of that GPU.
    pub fn stream(mut self, stream: i64) -> Call {
        self.stream = stream;
        self
    }
    /// Sees to it that there is a token.
    pub(crate) fn own_token(&mut self, engine: &Engine) -> Result<()> {
        if self.token.is_none() {
            self.token = Some(CancelToken::new(engine)?);
        }
        Ok(())
    }
    /// The same with what is left of its time, which began then.
    pub(crate) fn left(&self, began: Instant) -> Call {
        let mut left = self.clone();
        left.timeout = self.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        left
    }
    /// Triggers its token, if it has one.
    pub(crate) fn trigger(&self) {
        if let Some(token) = &self.token {
            token.trigger();
        }
    }
    pub(crate) fn raw(&self) -> sys::epl_call_options {
        sys::epl_call_options {
            // A duration of zero is over at once, and 0 would be none.
            timeout_nanoseconds: self.timeout.map_or(0, |t| i64::try_from(t.as_nanos()).unwrap_or(i64::MAX).max(1)),
            cancel: self.token.as_ref().map_or(std::ptr::null_mut(), |t| t.0 .0.as_ptr()),
            samples: self.samples,
            stream: self.stream,
            ..Default::default()
        }
    }
}
