//! What every handle has: it is never null, and is destroyed when it is dropped.
use crate::error::{check, Result};
use epl_sys as sys;
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

/// handle!(Name, epl_name, epl_name_destroy): the owner of a handle, in a struct with the documentation given.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $raw:ident, $destroy:ident) => {
        $(#[$doc])*
        pub struct $name(pub(crate) std::ptr::NonNull<epl_sys::$raw>);
        impl Drop for $name {
            fn drop(&mut self) {
                unsafe { epl_sys::$destroy(self.0.as_ptr()) }
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}
pub(crate) use handle;

/// A handle that any threads use at once, destroyed with its last owner.
pub(crate) struct Counted<T> {
    raw: ptr::NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}
// The header: what is shared in this way is for any threads.
unsafe impl<T> Send for Counted<T> {}
unsafe impl<T> Sync for Counted<T> {}

impl<T> Counted<T> {
    pub(crate) fn new(raw: ptr::NonNull<T>, destroy: unsafe extern "C" fn(*mut T)) -> Arc<Self> {
        Arc::new(Counted { raw, destroy })
    }
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        unsafe { (self.destroy)(self.raw.as_ptr()) }
    }
}

/// shared_handle!(Name, epl_name, epl_name_destroy): a handle whose clones are the same object. What is made from an
/// engine keeps it (`engine`), because its calls make tokens.
macro_rules! shared_handle {
    ($(#[$doc:meta])* $name:ident, $raw:ident, $destroy:ident $(, $engine:ident: $of:ty)?) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(pub(crate) std::sync::Arc<crate::handle::Counted<epl_sys::$raw>> $(, pub(crate) $of)?);
        impl $name {
            pub(crate) fn own(raw: std::ptr::NonNull<epl_sys::$raw> $(, $engine: &$of)?) -> Self {
                $name(crate::handle::Counted::new(raw, epl_sys::$destroy) $(, $engine.clone())?)
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}
pub(crate) use shared_handle;

/// A handle that a call gives: `f` writes it.
pub(crate) fn given<T>(f: impl FnOnce(*mut *mut T) -> *mut sys::epl_error) -> Result<ptr::NonNull<T>> {
    let mut place = ptr::null_mut();
    check(f(&mut place))?;
    Ok(ptr::NonNull::new(place).expect("a call that succeeds gives a handle"))
}

/// A text that a call gives.
pub(crate) fn given_text(f: impl FnOnce(*mut *mut sys::epl_text) -> *mut sys::epl_error) -> Result<String> {
    let text = given(f)?;
    let mut length = 0;
    unsafe {
        let copy = text_of(sys::epl_text_data(text.as_ptr(), &mut length), length);
        sys::epl_text_destroy(text.as_ptr());
        Ok(copy)
    }
}

/// A copy of a text of the library.
///
/// # Safety
/// `data` points to `length` bytes, or is null.
pub(crate) unsafe fn text_of(data: *const c_char, length: usize) -> String {
    if data.is_null() {
        return String::new();
    }
    String::from_utf8_lossy(std::slice::from_raw_parts(data.cast(), length)).into_owned()
}

/// A text as an argument: pointer and length.
pub(crate) fn raw(text: &str) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}

/// A path as an argument. Paths that are no UTF-8 are refused: the library's texts are UTF-8.
pub(crate) fn path_text(path: &std::path::Path) -> Result<&str> {
    path.to_str().ok_or_else(|| crate::Error::invalid(format!("the path {} is no UTF-8", path.display())))
}

/// What serde writes, as the JSON that the library reads.
#[cfg(feature = "serde")]
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| crate::Error::invalid(format!("the settings are no JSON: {error}")))
}
