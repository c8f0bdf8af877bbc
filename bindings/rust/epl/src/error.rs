use epl_sys as sys;
use std::fmt;

/// What kind of failure an [`Error`] is. A newer library may have codes that this crate has no name for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

#[allow(missing_docs)] // the names say it, and the library explains each error
impl Code {
    pub const INVALID_ARGUMENT: Code = Code(sys::EPL_ERROR_INVALID_ARGUMENT);
    pub const INVALID_MODEL: Code = Code(sys::EPL_ERROR_INVALID_MODEL);
    pub const UNSUPPORTED: Code = Code(sys::EPL_ERROR_UNSUPPORTED);
    pub const NOT_FOUND: Code = Code(sys::EPL_ERROR_NOT_FOUND);
    pub const IO: Code = Code(sys::EPL_ERROR_IO);
    pub const OUT_OF_MEMORY: Code = Code(sys::EPL_ERROR_OUT_OF_MEMORY);
    pub const CANCELLED: Code = Code(sys::EPL_ERROR_CANCELLED);
    pub const DEADLINE_EXCEEDED: Code = Code(sys::EPL_ERROR_DEADLINE_EXCEEDED);
    pub const PEER_FAILED: Code = Code(sys::EPL_ERROR_PEER_FAILED);
    pub const MISUSE: Code = Code(sys::EPL_ERROR_MISUSE);
    pub const NOT_FINITE: Code = Code(sys::EPL_ERROR_NOT_FINITE);
    pub const INTERNAL: Code = Code(sys::EPL_ERROR_INTERNAL);
    pub const DATA_LOSS: Code = Code(sys::EPL_ERROR_DATA_LOSS);
    pub const BUSY: Code = Code(sys::EPL_ERROR_BUSY);
    pub const STATE_LOST: Code = Code(sys::EPL_ERROR_STATE_LOST);
    pub const EXHAUSTED: Code = Code(sys::EPL_ERROR_EXHAUSTED);

    /// "not found", ...; "unknown" for a code that the library does not know.
    pub fn name(self) -> &'static str {
        let name = unsafe { std::ffi::CStr::from_ptr(sys::epl_error_code_name(self.0)) };
        name.to_str().unwrap_or("unknown")
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.name())
    }
}

/// A failure that the library explains.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Error {
    /// The kind of failure.
    pub code: Code,
    /// What was wrong and what to do.
    pub message: String,
    /// The node, file or object it concerns; empty when there is none.
    pub place: String,
    /// The rank it concerns.
    pub rank: Option<u64>,
    /// The same call may succeed later.
    pub retryable: bool,
}

/// What fallible calls give.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.place, self.message)
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// An error of the host's own, which its callbacks return.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), place: String::new(), rank: None, retryable: false }
    }
    pub(crate) fn invalid(message: String) -> Error {
        Error::new(Code::INVALID_ARGUMENT, message)
    }
}

/// Takes an error of the library over; NULL is success.
pub(crate) fn check(error: *mut sys::epl_error) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    let taken = unsafe {
        let mut length = 0;
        let message = crate::handle::text_of(sys::epl_error_message(error, &mut length), length);
        let place = crate::handle::text_of(sys::epl_error_where(error, &mut length), length);
        Error {
            code: Code(sys::epl_error_code(error)),
            message,
            place,
            rank: u64::try_from(sys::epl_error_rank(error)).ok(),
            retryable: sys::epl_error_retryable(error) != 0,
        }
    };
    unsafe { sys::epl_error_destroy(error) };
    Err(taken)
}

/// Runs code of the host's within a call of the library, which gets its error. A panic must not unwind into C; it is an
/// error too.
pub(crate) fn guarded(f: impl FnOnce() -> Result<()>) -> *mut sys::epl_error {
    let error = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(error)) => error,
        Err(caught) => {
            let said = caught.downcast_ref::<&str>().map(|one| one.to_string());
            let said = said.or_else(|| caught.downcast_ref::<String>().cloned()).unwrap_or_default();
            Error::new(Code::INTERNAL, format!("the host's code panicked: {said}"))
        }
    };
    let (message, length) = crate::handle::raw(&error.message);
    unsafe { sys::epl_error_create(error.code.0, message, length) }
}
